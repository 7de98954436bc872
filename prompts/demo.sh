#!/bin/sh
# Builds minisgl and asks the demo model sixty questions about one long list of notes. The notes are computed once and
# shared through the prefix cache. Prints the answers, a JSON row each, and then the summary.
# Run it from anywhere: sh prompts/demo.sh
set -eu
cd "$(dirname "$0")/.."
. tests/packages.sh

# shellcheck disable=SC2086
install_packages $BUILD_PACKAGES
[ -f build/build.ninja ] || meson setup build --buildtype=release >/dev/null
echo "Building (some minutes the first time)" >&2
ninja -C build src/cli/minisgl >/dev/null

build/src/cli/minisgl run --model tests/models/wren --file prompts/notes.jsonl
