#!/bin/sh
# Runs the folder that carry.sh made:
#   sh run_gpu.sh [PART...]   PART: suite, sanitizers, benchmarks; default: all, in this order
# Ends with one line for each run: its name and exit status. Logs go to $OUT, or to out/ beside this file.
set -u
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export MINISGL_MODELS="$here/models"
out=${OUT:-$here/out}
mkdir -p "$out"
[ $# -gt 0 ] || set -- suite sanitizers benchmarks
PATH=$PATH:/usr/local/cuda/bin
summary=""
failures=0

# run LABEL SECONDS COMMAND...: prints the end of the output; LABEL.log has all of it
run() {
    label=$1 seconds=$2
    shift 2
    echo "== $label"
    timeout "$seconds" "$@" >"$out/$label.log" 2>&1
    status=$?
    tail -n 25 "$out/$label.log"
    [ $status -eq 0 ] || failures=$((failures + 1))
    summary="$summary$label: $status
"
}

suite() {
    run suite 1500 "$here/bin/test_gpu" --gtest_output="xml:$out/suite.xml"
    grep "tokens the same" "$out/suite.log"
}

# Kernels run 10 to 1,000 times slower, so tests use small sizes. Tests that fill the device or break it on purpose are left
# out; so are whole engines in the tools that check only shared memory and barriers.
sanitizers() {
    if ! command -v compute-sanitizer >/dev/null 2>&1; then
        echo "skipped: sanitizers: no compute-sanitizer is here"
        return
    fi
    export MINISGL_SMALL_TESTS=1
    for tool in memcheck racecheck initcheck synccheck; do
        case $tool in
        memcheck) filter='-GpuFaultTest.*' ;;
        initcheck) filter='-GpuFaultTest.*:GpuCanaryTest.*:*Wren*' ;;
        *) filter='-GpuFaultTest.*:GpuCanaryTest.*:GpuEngineTest.*' ;;
        esac
        run "$tool" 600 compute-sanitizer --tool "$tool" --error-exitcode 9 \
            "$here/bin/test_gpu" "--gtest_filter=$filter"
    done
    unset MINISGL_SMALL_TESTS
}

benchmarks() {
    if [ ! -x "$here/bin/minisgl" ]; then
        echo "skipped: benchmarks: bin/minisgl was not carried"
        return
    fi
    for name in nano bs1 attn-decode attn-prefill; do
        run "$name-wren" 600 "$here/bin/minisgl" bench "$name" --device cuda --model "$here/models/wren"
        for shape in "$here"/shapes/*.json; do
            [ -f "$shape" ] || continue
            run "$name-$(basename "$shape" .json)" 600 "$here/bin/minisgl" bench "$name" --device cuda \
                --shape "$shape" --dummy-weights
        done
    done
}

for part in "$@"; do
    case $part in
    suite | sanitizers | benchmarks) $part ;;
    *)
        echo "run_gpu.sh: no part is named $part" >&2
        exit 64
        ;;
    esac
done
echo "== exit statuses"
printf '%s' "$summary"
[ $failures -eq 0 ]
