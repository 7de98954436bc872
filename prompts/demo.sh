#!/bin/sh
# Builds minisgl and asks the demo model sixty questions about one long list of notes. The notes are computed once and
# shared through the prefix cache. Run it from anywhere: sh prompts/demo.sh
# On a terminal it ends with some of the answers. Otherwise all sixty go to standard output, a JSON row each, and the rest to
# standard error.
# The program alone is built, in the folder build: for the CPU, and for the GPU if this machine has one.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/packages.sh

program=build/src/cli/minisgl
model=tests/models/wren
questions=prompts/notes.jsonl
megabytes_needed=150
log=""
trap 'rm -f "$log"' EXIT

say() { printf '%s\n' "$*" >&2; }

# fail LOG WHAT: the last lines of LOG, what failed, what to do; ends with 1.
fail() {
    grep -vE '^\[[0-9]+/[0-9]+\]|^ninja: Entering|^(ccache )?(c\+\+|g\+\+) ' "$1" | tail -n 20 >&2
    say "$2"
    explain_failure "$1"
    exit 1
}

# The architectures of this machine's GPUs as nvcc calls them, separated by commas; "all" if they cannot be told.
gpu_archs() {
    [ -e /dev/nvidia0 ] || [ -e /dev/dxg ] || return 0
    smi=$(command -v nvidia-smi || echo /usr/lib/wsl/lib/nvidia-smi)
    [ -x "$smi" ] || { [ -e /dev/nvidia0 ] && echo all; return 0; }
    # Code for compute capability 9.0 uses instructions that 9.0 alone has.
    "$smi" --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d ' .' | grep -E '^[0-9]+$' | sort -nu |
        awk '$1 >= 80 { printf "%ssm_%s%s", separator, $1, $1 == 90 ? "a" : ""; separator = "," }'
}

# CUDA 12 or newer.
has_nvcc() {
    nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
    [ -x "$nvcc" ] || return 1
    release=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9][0-9]*\)\..*/\1/p')
    [ "${release:-0}" -ge 12 ]
}

# Sets `options` for what this machine has.
choose_options() {
    # Several files are compiled as one, which takes a third of the time.
    options="--buildtype=release -Dtests=disabled -Dunity=on -Dunity_size=20"
    archs=$(gpu_archs)
    if [ -z "$archs" ]; then
        options="$options -Dcuda=disabled"
    elif ! has_nvcc; then
        say "There is a GPU here, but no nvcc of CUDA 12 or newer to build for it: this build is for the CPU."
        options="$options -Dcuda=disabled"
    elif [ "$archs" = all ]; then
        say "There is a GPU here, but no nvidia-smi that tells its kind: this build is for several kinds."
    else
        say "Building for the CPU and for the GPU ($archs)"
        options="$options -Dgpu_archs=$archs"
    fi
}

configure() {
    version=$(meson --version 2>/dev/null) || { say "There is no meson. Install version 1.0.1 or newer: pip install meson"; exit 1; }
    if [ "$(printf '1.0.1\n%s\n' "$version" | sort -t. -k1,1n -k2,2n -k3,3n | head -n 1)" != 1.0.1 ]; then
        say "meson $version is too old: 1.0.1 or newer is needed. One way: pip install --user 'meson>=1.0.1'"
        exit 1
    fi
    # shellcheck disable=SC2086
    meson setup "$@" build $options >"$log" 2>&1
}

# Shows what ninja does, read from standard input: on a terminal in one line, else every fifteen seconds.
show_progress() {
    shown=$(date +%s)
    begun=$shown
    while IFS= read -r line; do
        printf '%s\n' "$line" >>"$log"
        case $line in
        \[*) ;;
        *) continue ;;
        esac
        done_of_all=${line%%]*}
        done_of_all=${done_of_all#[}
        now=$(date +%s)
        if [ -t 2 ]; then
            printf '\rBuilding: %s of %s files, %d s ' "${done_of_all%/*}" "${done_of_all#*/}" $((now - begun)) >&2
        elif [ $((now - shown)) -ge 15 ]; then
            shown=$now
            say "Building: ${done_of_all%/*} of ${done_of_all#*/} files, $((now - begun)) s"
        fi
    done
    [ -t 2 ] && printf '\n' >&2
}

build() {
    ninja=$(command -v ninja || command -v ninja-build || echo ninja)
    : >"$log"
    # shellcheck disable=SC2086
    status=$({ { NINJA_STATUS="[%f/%t] " "$ninja" ${NINJAFLAGS:-} -C build src/cli/minisgl 2>&1 3>&-; echo $? >&3; } |
        show_progress >/dev/null; } 3>&1)
    [ "$status" = 0 ]
}

# Some of the questions with their answers, how many are right, and what was shared. Reads the questions, then the rows.
show_answers() {
    LC_ALL=C awk -v shown_max=6 '
        function member(name,    at) {
            if (!match($0, "\"" name "\": *\"([^\"\\\\]|\\\\.)*\"")) return ""
            at = substr($0, RSTART, RLENGTH)
            sub("^\"" name "\": *\"", "", at)
            return substr(at, 1, length(at) - 1)
        }
        function number(name,    at) {
            if (!match($0, "\"" name "\": *[0-9]+")) return 0
            at = substr($0, RSTART, RLENGTH)
            sub(/.*: */, "", at)
            return at + 0
        }
        NR == FNR {
            id = member("id")
            sub(/.*"role": "user", /, "")
            question[id] = member("content")
            next
        }
        {
            ++rows
            right += member("text") == member("expected")
            prompt += number("prompt_tokens")
            cached += number("cached_tokens")
            if (rows % 10 == 1 && shown++ < shown_max) printf "  %-26s %s\n", question[member("id")], member("text")
        }
        END {
            printf "%d of %d answers are right. Of %d prompt tokens %d (%d %%) came from the prefix cache: ",
                   right, rows, prompt, cached, prompt ? 100 * cached / prompt : 0
            print "the notes were computed once."
        }' "$questions" "$1"
}

# shellcheck disable=SC2086
install_packages $BUILD_PACKAGES || exit 1
free=$(df -Pk . | awk 'END { print int($4 / 1024) }')
if [ ! -x "$program" ] && [ "$free" -lt "$megabytes_needed" ]; then
    say "The disk has $free MB left, and building takes $megabytes_needed. Free some room and run this again."
    exit 1
fi
log=$(mktemp) || exit 1
start=$(date +%s)
choose_options
was_there=no
if [ -f build/build.ninja ]; then
    was_there=yes
else
    say "Configuring the build"
    configure || configure --wipe || fail "$log" "The build could not be configured."
fi
say "Building (a minute or two the first time)"
if ! build; then
    # A folder that an earlier failure or another version left.
    [ "$was_there" = yes ] && ! grep -q "error:" "$log" && say "The folder build is not whole: configuring it again" &&
        configure --wipe && build || fail "$log" "The program was not built."
fi
say "Built in $(($(date +%s) - start)) s"

rows=build/notes.answers.jsonl
if [ -t 1 ]; then
    "$program" run --model "$model" --file "$questions" >"$rows" || exit
    echo
    show_answers "$rows"
    echo "All rows: $rows"
    echo "Next, talk to the model: $program chat -m $model"
else
    "$program" run --model "$model" --file "$questions" >"$rows" || exit
    cat "$rows"
    show_answers "$rows" >&2
    say "Next, talk to the model: $program chat -m $model"
fi
