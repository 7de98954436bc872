#!/bin/sh
# Runs the folder that carry.sh made:
#   sh run_gpu.sh [PART...]      default: all parts, in this order
#     contact        the machine, cuBLAS, a first kernel, a first product
#     kernels-serial one case at a time, MINISGL_CUDA_DEBUG=no-dependent-launch: no kernel begins before the one before it ends
#     kernels        the same cases as users run them
#     engine         whole models, graphs, faults
#     attention      decode attention: the rate of reading keys and values
#     gemv           one answer at a time, with the program's own products and with cuBLAS's alone
#     models         the benchmarks bs1 and nano
#     memcheck, racecheck    compute-sanitizer on small cases
# Each part takes at most 8 minutes ($PART_SECONDS); cases that no time is left for are named. Each case is a process of its own,
# with a time limit ($CASE_SECONDS caps it), so a crash or a hang ends one case. A case that fails runs again with MINISGL_CUDA_DEBUG=sync, so that its log
# names the operation that failed.
#
# $OUT, or out/ beside this file, gets a log for each case, results.txt (a line as each case ends) and summary.txt, written again
# after every case: failures first. The end of the output is summary.txt. Exit status: 0 if all passed, 1 if not, 3 if no GPU
# can be used.
set -u
here=$(cd "$(dirname "$0")" && pwd)
LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export LD_LIBRARY_PATH
export MINISGL_MODELS="$here/models" MINISGL_GOLDEN_MODELS="$here/golden"
out=${OUT:-$here/out}
part_seconds=${PART_SECONDS:-480}
mkdir -p "$out"
[ $# -gt 0 ] || set -- contact kernels-serial kernels engine attention gemv models memcheck racecheck
PATH=$PATH:/usr/local/cuda/bin:/sbin
: >"$out/results.txt"
: >"$out/failures.txt"
no_cublas="" part=start calls=0
engine_cases='GpuEngineTest.*:GpuCanaryTest.*:GpuFaultTest.*'

now() { date +%s; }
begun=$(now)
part_end=$((begun + part_seconds))
count() { grep -c "^$1 " "$out/results.txt"; }

summarize() {
    {
        [ -z "$no_cublas" ] || echo "$no_cublas"
        cat "$out/failures.txt"
        grep -E "^(left-out|skipped) " "$out/results.txt"
        [ ! -s "$out/figures.txt" ] || cat "$out/figures.txt"
        echo "== $(count passed) passed, $(count failed) failed, $(count skipped) skipped, $(count left-out) left out" \
            "in $(($(now) - begun)) s"
    } >"$out/summary.new"
    mv -f "$out/summary.new" "$out/summary.txt"
}

# record RESULT CASE [WORDS]: RESULT: passed, failed, skipped, left-out
record() {
    line="$1 $part $2${3:+: $3}"
    echo "$line" >>"$out/results.txt"
    summarize
    echo "$line"
}

# limited SECONDS LOG COMMAND...: its exit status; 124 if it was ended for its time, 125 if it cannot be ended (a process that
# waits in the driver) and is left alone.
limited() {
    limit=$1 log=$2
    shift 2
    # A file of its own: one that is left alone may end later.
    calls=$((calls + 1))
    status_file="$out/status.$calls"
    { timeout -k 2 "$limit" "$@" >"$log" 2>&1 </dev/null; echo $? >"$status_file.new"; mv "$status_file.new" "$status_file"; } &
    waits_until=$(($(now) + limit + 5))
    until [ -e "$status_file" ]; do
        [ "$(now)" -lt $waits_until ] || return 125
        sleep 0.05
    done
    status=$(cat "$status_file")
    rm -f "$status_file"
    # Killed: by `timeout`, unless it was earlier.
    [ "$status" -ne 137 ] || [ "$(now)" -lt $((waits_until - 5)) ] || return 124
    return "$status"
}

# Names what an exit status means.
meaning() {
    case $1 in
    124) echo "no end after $2 s" ;;
    125) echo "no end after $2 s, and cannot be killed" ;;
    12[89] | 1[3-9][0-9]) echo "crash, signal $(($1 - 128))" ;;
    *) echo "exit status $1" ;;
    esac
}

# The lines of a log that say what failed.
excerpt() {
    grep -aE "cuda|CUDA|cuBLAS|Failure|error|expected|Check|check failed|Sanitizer|=========|FAILED" "$1" | head -n 8
    [ "$(wc -l <"$1")" -gt 40 ] || tail -n 4 "$1"
}

# run CASE SECONDS COMMAND...: true if it passed. Sets log.
run() {
    name=$1 seconds=$2
    shift 2
    [ "$seconds" -le "${CASE_SECONDS:-600}" ] || seconds=$CASE_SECONDS
    log="$out/$part-$(echo "$name" | tr '/ *:' '____').log"
    left=$((part_end - $(now)))
    if [ $left -le 2 ]; then
        record left-out "$name" "no time is left in this part"
        return 2
    fi
    [ "$seconds" -le $left ] || seconds=$left
    case_begun=$(now)
    limited "$seconds" "$log" "$@"
    result=$?
    took=$(($(now) - case_begun))
    why=""
    if [ $result -ne 0 ]; then
        why=$(meaning $result "$seconds")
    elif [ "$expects" = test ] && grep -aq '^\[  SKIPPED \]' "$log"; then
        record skipped "$name" "$(grep -avE '^\[|^Note|^Running|^$|: Skipped$' "$log" | head -n 1 | cut -c1-300)"
        return 2
    elif [ "$expects" = test ] && ! grep -aq '^\[  PASSED  \] [1-9]' "$log"; then
        why="no test ran"
    fi
    if [ -z "$why" ]; then
        record passed "$name" "$took s"
        return 0
    fi
    { echo "FAILED $part $name: $why"; excerpt "$log" | cut -c1-300 | sed 's/^/    /'; } >>"$out/failures.txt"
    # Once more, with a wait behind each operation.
    sync_log="${log%.log}-sync.log"
    left=$((part_end - $(now)))
    [ "$seconds" -le 60 ] || seconds=60
    [ "$seconds" -le $left ] || seconds=$left
    if [ $left -gt 2 ]; then
        limited "$seconds" "$sync_log" env MINISGL_CUDA_DEBUG="${MINISGL_CUDA_DEBUG:+$MINISGL_CUDA_DEBUG,}sync" "$@"
        again=$?
        {
            if [ $again -eq 0 ]; then echo "  with sync: passes"; else echo "  with sync: $(meaning $again "$seconds")"; fi
            [ $again -eq 0 ] || excerpt "$sync_log" | cut -c1-300 | sed 's/^/    /'
        } >>"$out/failures.txt"
    fi
    record failed "$name" "$why, $took s"
    return 1
}

# The cases of test_gpu that a gtest filter selects, one a line.
cases() {
    limited 60 "$out/list.log" "$here/bin/test_gpu" --gtest_list_tests "--gtest_filter=$1"
    sed 's/ *#.*//' "$out/list.log" | awk '/^[^ ].*\.$/ { suite = $1; next } /^  [^ ]/ && suite != "" { print suite $1 }'
}

# tests FILTER SECONDS: each case that the filter selects.
tests() {
    selected=$(cases "$1") expects='test'
    [ -n "$selected" ] || record failed "list of cases" "bin/test_gpu names none for $1"
    for case in $selected; do
        run "$case" "$2" "$here/bin/test_gpu" "--gtest_filter=$case"
    done
}

# try_place FOLDER NAME: prints what is there; true if the library is.
try_place() {
    if [ -e "$1/$2" ]; then
        echo "  found: $1/$2"
        LD_LIBRARY_PATH="$LD_LIBRARY_PATH:$1"
        return 0
    fi
    echo "  not in $1"
    return 1
}

# Folders that may have cuBLAS, one a line.
cublas_places() {
    echo "$LD_LIBRARY_PATH" | tr ':' '\n'
    ldconfig -p 2>/dev/null | sed -n 's|.*=> \(/.*\)/libcublasLt\.so.*|\1|p'
    for root in ${CUDA_HOME:+"$CUDA_HOME"} ${CUDA_PATH:+"$CUDA_PATH"} /usr/local/cuda*; do
        for folder in "$root/lib64" "$root/lib" "$root"/targets/*/lib; do echo "$folder"; done
    done
    # Of each Python in PATH, of active and usual virtual environments.
    for python in $(echo "$PATH" | tr ':' '\n' | sed 's|$|/python3|') ${VIRTUAL_ENV:+"$VIRTUAL_ENV/bin/python3"} \
        ${CONDA_PREFIX:+"$CONDA_PREFIX/bin/python3"} /opt/*/bin/python3 "${HOME:-/}"/.venv/bin/python3 "${HOME:-/}"/venv/bin/python3; do
        [ -x "$python" ] || continue
        timeout 20 "$python" -c 'import site, sys
for path in [*site.getsitepackages(), site.getusersitepackages(), *sys.path]:
    if path.endswith("-packages"): print(path)' 2>/dev/null </dev/null
    done | sort -u | while read -r packages; do
        for folder in "$packages"/nvidia/*/lib; do echo "$folder"; done
    done
}

find_cublas() {
    cublas_places | awk 'NF && !seen[$0]++' >"$out/cublas-places.txt"
    for name in libcublasLt.so.13 libcublasLt.so.12; do
        echo "$name:"
        while read -r folder; do
            try_place "$folder" "$name" && return
        done <"$out/cublas-places.txt"
    done
    no_cublas="FAILED $part: libcublasLt.so.13 or .12 is in none of $(wc -l <"$out/cublas-places.txt") folders: $(tr '\n' ' ' <"$out/cublas-places.txt")"
    record failed cuBLAS "found nowhere; put its folder into LD_LIBRARY_PATH"
}

contact() {
    nvidia-smi --query-gpu=name,driver_version,memory.total,memory.free,clocks.sm,clocks.max.sm,persistence_mode --format=csv 2>&1 </dev/null
    nvidia-smi 2>/dev/null </dev/null | grep -o "CUDA Version: [0-9.]*"
    expects='status'
    [ ! -x "$here/bin/minisgl" ] || run "minisgl info" 30 "$here/bin/minisgl" info --device cuda -m "$here/models/wren"
    cat "$log" 2>/dev/null
    expects='test'
    # The probe and a kernel without cuBLAS, then products.
    for case in GpuTablesTest.PlanWritesAreAppliedInOrder GpuLinearTest.MatchesTheSum; do
        run "$case" 60 "$here/bin/test_gpu" "--gtest_filter=$case"
        if [ $? -eq 2 ]; then
            echo "no GPU can be used: $(tail -n 1 "$out/results.txt")"
            cat "$out/summary.txt"
            exit 3
        fi
    done
}

# figures LABEL COMMAND...: a benchmark, whose lines of figures stand in the summary.
figures() {
    label=$1
    shift
    expects='status'
    run "$label" 240 "$here/bin/minisgl" bench "$@" --device cuda --json "$out/$part-$label.json" --force ||
        return
    { echo "-- $label"; grep -aE '[0-9]' "$log" | tail -n 16 | cut -c1-160; } >>"$out/figures.txt"
    { echo "-- $label (JSON)"; head -c 20000 "$out/$part-$label.json"; } >>"$log"
    summarize
}

# for_each_shape FUNCTION: with the name of each shape carried, and the options that choose it
for_each_shape() {
    for shape in "$here"/shapes/*.json; do
        [ -f "$shape" ] && "$1" "$(basename "$shape" .json)" --shape "$shape" --dummy-weights
    done
}
gemv_of() {
    label=$1
    shift
    figures "$label" bs1 "$@" --output-tokens 128 --repeat 1
    export MINISGL_CUDA_DEBUG=no-gemv
    figures "$label-no-gemv" bs1 "$@" --output-tokens 128 --repeat 1
    unset MINISGL_CUDA_DEBUG
}
models_of() {
    label=$1
    shift
    figures "$label-bs1" bs1 "$@"
    figures "$label-nano" nano "$@" --repeat 1
}

# Kernels run 10 to 1,000 times slower, so the cases use small sizes. Cases that fill the device or break it on purpose are
# left out; so are whole engines in the tool that checks only shared memory.
sanitize() {
    if ! command -v compute-sanitizer >/dev/null 2>&1; then
        record skipped "$1" "no compute-sanitizer is here"
        return
    fi
    export MINISGL_SMALL_TESTS=1
    expects='test'
    for case in $(cases "$2"); do
        run "$case" 120 compute-sanitizer --tool "$1" --error-exitcode 9 "$here/bin/test_gpu" "--gtest_filter=$case"
    done
    unset MINISGL_SMALL_TESTS
}

rm -f "$out/figures.txt"
log=/dev/null expects='test'
echo "== cuBLAS"
find_cublas
for part in "$@"; do
    echo "== $part"
    part_end=$(($(now) + part_seconds))
    case $part in
    contact) contact ;;
    kernels-serial)
        export MINISGL_CUDA_DEBUG=no-dependent-launch
        tests "-$engine_cases" 60
        unset MINISGL_CUDA_DEBUG
        ;;
    kernels) tests "-$engine_cases" 60 ;;
    engine)
        tests 'GpuEngineTest.*:GpuFaultTest.*' 90
        tests 'GpuCanaryTest.*' 200
        ;;
    attention) figures attn-decode attn-decode --batches 1,64 --contexts 1024,4096,32768 --repeat 3 ;;
    gemv) for_each_shape gemv_of ;;
    models)
        models_of wren -m "$here/models/wren"
        for_each_shape models_of
        ;;
    memcheck) sanitize memcheck '-GpuFaultTest.*' ;;
    racecheck) sanitize racecheck '-GpuFaultTest.*:GpuCanaryTest.*:GpuEngineTest.*' ;;
    *)
        echo "run_gpu.sh: no part is named $part" >&2
        exit 64
        ;;
    esac
done
summarize
echo
cat "$out/summary.txt"
[ -z "$no_cublas" ] && [ "$(count failed)" -eq 0 ]
