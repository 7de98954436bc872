#!/bin/sh
# Makes a Debian package of the program, its manual pages and its shell completions, for the release and the architecture of this machine.
#   sh tests/deb.sh [FOLDER]   FOLDER is a build folder (build), which is configured and built if necessary
# Prints the name of the package, FOLDER/minisgl_VERSION_ARCHITECTURE.deb. Install it with
#   apt install ./FOLDER/minisgl_VERSION_ARCHITECTURE.deb
# Installs what the program is built with, if it is missing (tests/packages.sh).
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/packages.sh

build=${1:-build}
stage=$(mktemp -d) || exit 1
trap 'rm -rf "$stage"' EXIT
trap 'exit 1' HUP INT TERM

# fail LOG WHAT: prints the last lines of LOG and what failed; ends with 1.
fail() {
    tail -n 20 "$1" >&2
    echo "$2" >&2
    explain_failure "$1"
    exit 1
}

# Prints the files that are built and installed, as ninja names them: not the tests of the folder.
installed_targets() {
    meson introspect "$build" --targets | python3 -c '
import json, os, sys
for target in json.load(sys.stdin):
    if target["installed"]:
        print(*(os.path.relpath(name, sys.argv[1]) for name in target["filename"]))' "$(realpath "$build")"
}

# Installs into $stage/tree, with the prefix /usr whatever the build folder's is.
install_files() {
    [ -f "$build/build.ninja" ] || meson setup "$build" --buildtype=release -Dtests=disabled -Dunity=on -Dunity_size=40 >"$stage/log" 2>&1 ||
        fail "$stage/log" "The build could not be configured."
    # A package runs on other machines, too, and the demo's build has kernels for this one alone.
    meson configure "$build" -Dcpu_targets=all >"$stage/log" 2>&1 || fail "$stage/log" "The build could not be configured."
    # shellcheck disable=SC2046
    { ninja -C "$build" $(installed_targets) && meson install -C "$build" --no-rebuild --destdir "$stage/installed" --strip; } \
        >"$stage/log" 2>&1 || fail "$stage/log" "The program was not built."
    prefix=$(cd "$stage/installed" && find . -path '*/bin/minisgl' | sed 's,/bin/minisgl$,,')
    mkdir -p "$stage/tree/DEBIAN" && mv "$stage/installed/$prefix" "$stage/tree/usr" || exit 1
    # The folder that Debian's zsh reads.
    zsh=$stage/tree/usr/share/zsh
    [ ! -d "$zsh/site-functions" ] || mv "$zsh/site-functions" "$zsh/vendor-completions"
    documents=$stage/tree/usr/share/doc/minisgl
    mkdir -p "$documents"
    cp CHANGELOG.md "$documents/changelog"
    cp LICENSE "$documents/copyright"
    find "$stage/tree/usr/share/man" "$documents/changelog" -type f -exec gzip -9n {} +
}

# The packages of the libraries that the program names, in at least the installed versions.
dependencies() {
    # Where /usr is merged, ldd prints names in /lib that dpkg knows in either place.
    readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | while read -r library; do
        path=$(ldd "$1" | awk -v library="$library" '$1 == library && $2 == "=>" { print $3 }')
        [ -n "$path" ] || continue # the loader, which is libc6's
        found=$(dpkg -S "$path" 2>/dev/null || dpkg -S "/usr$path" 2>/dev/null || dpkg -S "$(readlink -f "$path")" 2>/dev/null) || {
            echo "no package has $path" >&2
            exit 1
        }
        dpkg-query -W -f='${Package} (>= ${source:Upstream-Version})\n' "${found%%: *}"
    done | sort -u | paste -sd, | sed 's/,/, /g'
}

# shellcheck disable=SC2086
install_packages $BUILD_PACKAGES || exit 1
install_files
program=$stage/tree/usr/bin/minisgl
version=$("$program" --version | sed -n 's/^minisgl //p')
architecture=$(dpkg --print-architecture)
needed=$(dependencies "$program")
[ -n "$version" ] && [ -n "$needed" ] || exit 1
(cd "$stage/tree" && find usr -type f -exec md5sum {} +) >"$stage/tree/DEBIAN/md5sums"
cat >"$stage/tree/DEBIAN/control" <<END
Package: minisgl
Version: $version
Architecture: $architecture
Maintainer: The minisgl project <minisgl@localhost>
Installed-Size: $(du -sk "$stage/tree/usr" | cut -f1)
Depends: $needed
Recommends: libcurl4t64 | libcurl4, ca-certificates
Section: science
Priority: optional
Description: language models in the terminal
 Chats with a language model in the terminal and answers files of prompts,
 on an NVIDIA GPU or on the CPU, with a shared prefix cache and continuous
 batching.
END
package=$build/minisgl_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$stage/tree" "$package" >"$stage/log" 2>&1 || fail "$stage/log" "The package was not made."
echo "$package"
