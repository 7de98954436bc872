#!/bin/sh
# Builds minisgl and asks the demo model sixty questions about one long list of notes. The notes are computed once and
# shared through the prefix cache. Run it from anywhere: sh prompts/demo.sh
# On a terminal it prints some of the answers. Otherwise all sixty go to standard output, one JSON row each, and messages to
# standard error.
# Builds only the program, in the folder build: for the CPU, and for the GPU if this machine has one.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/packages.sh

program=build/src/cli/minisgl
model=tests/models/wren
questions=prompts/notes.jsonl
megabytes_needed=150
log=""
trap 'rm -f "$log"' EXIT
trap 'exit 1' HUP INT TERM

say() { printf '%s\n' "$*" >&2; }

# fail LOG WHAT: prints the last lines of LOG, what failed and what to do; ends with 1.
fail() {
    grep -vE '^\[[0-9]+/[0-9]+\]|^ninja: Entering|^(ccache )?(c\+\+|g\+\+) ' "$1" | tail -n 20 >&2
    say "$2"
    explain_failure "$1"
    exit 1
}

# Prints the architectures of this machine's GPUs in nvcc's spelling, separated by commas; "unknown" if they cannot be
# determined, "old" if the program supports none of them, nothing if there is no GPU.
gpu_archs() {
    [ -e /dev/nvidia0 ] || [ -e /dev/dxg ] || return 0
    smi=$(command -v nvidia-smi || echo /usr/lib/wsl/lib/nvidia-smi)
    found=$("$smi" --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d ' .' | grep -E '^[0-9]+$' | sort -nu)
    if [ -z "$found" ]; then
        # /dev/dxg exists with GPUs of other vendors too.
        [ ! -e /dev/nvidia0 ] || echo unknown
        return 0
    fi
    # Code for compute capability 9.0 uses instructions that only 9.0 has (sm_90a).
    printf '%s\n' "$found" |
        awk '$1 >= 80 { printf "%ssm_%s%s", separator, $1, $1 == 90 ? "a" : ""; separator = "," } END { if (!separator) print "old" }'
}

# True if nvcc is of CUDA 12 or newer.
has_nvcc() {
    nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
    [ -x "$nvcc" ] || return 1
    release=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9][0-9]*\)\..*/\1/p')
    [ "${release:-0}" -ge 12 ]
}

# Sets `options` for this machine, and `gpu` to the architectures to build for, or to nothing.
choose_options() {
    # Compiling several files as one takes a third of the time, and kernels for this machine alone a third of theirs.
    options="--buildtype=release -Dtests=disabled -Dunity=on -Dunity_size=40 -Dcpu_targets=native"
    gpu=$(gpu_archs)
    case $gpu in
    "") ;;
    old)
        say "This machine's GPU is older than compute capability 8.0: this build is for the CPU."
        gpu=""
        ;;
    *)
        if ! has_nvcc; then
            say "This machine has a GPU, but no nvcc of CUDA 12 or newer: this build is for the CPU."
            gpu=""
        elif [ "$gpu" = unknown ]; then
            say "This machine has a GPU, but no nvidia-smi that names its architecture: this build is for several architectures."
        else
            options="$options -Dgpu_archs=$gpu"
        fi
        ;;
    esac
    [ -n "$gpu" ] && options="$options -Dcuda=auto" || options="$options -Dcuda=disabled"
}

check_meson() {
    version=$(meson --version 2>/dev/null) || { say "meson is not installed. Install version 1.0.1 or newer: pip install meson"; exit 1; }
    if [ "$(printf '1.0.1\n%s\n' "$version" | sort -t. -k1,1n -k2,2n -k3,3n | head -n 1)" != 1.0.1 ]; then
        say "meson $version is too old: 1.0.1 or newer is needed. One way: pip install --user 'meson>=1.0.1'"
        exit 1
    fi
}

# Configures the folder build from the beginning, after removing the state of an earlier failure.
configure_anew() {
    rm -rf build/meson-private build/meson-info build/build.ninja build/.ninja_log build/.ninja_deps
    # shellcheck disable=SC2086
    meson setup build $options >"$log" 2>&1 && [ -f build/build.ninja ]
}

# Configures the folder build. If it is configured, changes it only for a GPU.
configure() {
    if [ -f build/build.ninja ]; then
        # shellcheck disable=SC2086
        [ -z "$gpu" ] || meson setup --reconfigure build $options >"$log" 2>&1 || configure_anew
    else
        say "Configuring the build"
        configure_anew
    fi || fail "$log" "The build could not be configured."
    [ -n "$gpu" ] || return 0
    gpu=$(sed -n 's/.*CUDA engine *: *//p' "$log")
    case $gpu in
    "" | no) say "nvcc cannot build for this GPU (build/meson-logs/meson-log.txt says why): this build is for the CPU." ;;
    *) say "Building for the CPU and for the GPU ($gpu)" ;;
    esac
}

# Shows the progress of ninja, read from standard input: on a terminal in one line, otherwise every fifteen seconds.
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

# show_answers ROWS: prints some of the questions with their answers, how many answers are right, and how much was shared.
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
            printf "%d of %d answers are right. Of %d prompt tokens %d (%d %%) came from the prefix cache%s.\n",
                   right, rows, prompt, cached, prompt ? 100 * cached / prompt : 0,
                   (2 * cached > prompt ? ": the notes were computed once" : "")
        }' "$questions" "$1"
}

# shellcheck disable=SC2086
install_packages $BUILD_PACKAGES || exit 1
free=$(df -Pk . | awk 'END { print int($4 / 1024) }')
if [ ! -x "$program" ] && [ "$free" -lt "$megabytes_needed" ]; then
    say "The disk has $free MB left, and building takes $megabytes_needed. Free some space and run this again."
    exit 1
fi
log=$(mktemp) || exit 1
start=$(date +%s)
check_meson
choose_options
[ -f build/build.ninja ] && was_there=yes || was_there=no
configure
say "Building (a few minutes the first time)"
# If neither the compiler nor a full disk nor a lack of memory explains the failure, files of an earlier failure or of another
# version may: the folder is configured again.
if ! build && { [ $was_there = no ] ||
    grep -qiE '^[^ ]+:[0-9]+:[0-9]+: (fatal )?error:|no space left|killed signal|cannot allocate memory' "$log" ||
    ! { say "The folder build is incomplete: configuring it again" && configure_anew && build; }; }; then
    fail "$log" "The program was not built."
fi
say "Built in $(($(date +%s) - start)) s"

rows=build/notes.answers.jsonl
if [ -t 1 ]; then
    "$program" run --no-config --model "$model" --file "$questions" >"$rows" || exit
    echo
    show_answers "$rows"
    echo "All rows: $rows"
    echo "Next, talk to the model: $program chat -m $model"
else
    "$program" run --no-config --model "$model" --file "$questions" >"$rows" || exit
    cat "$rows"
    show_answers "$rows" >&2
    say "Next, talk to the model: $program chat -m $model"
fi
