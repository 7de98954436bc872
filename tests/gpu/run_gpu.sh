#!/bin/sh
# Runs the folder that carry.sh made:
#   sh run_gpu.sh [PART...]      default: all parts, in this order
#     contact        the machine, a first kernel, a first product (which needs cuBLAS: its error names the folders searched)
#     kernels-serial one case at a time, MINISGL_CUDA_DEBUG=no-dependent-launch: no kernel begins before the one before it ends
#     kernels        the same cases as users run them
#     engine         whole models, graphs, experts on the CPU, faults
#     attention      decode attention: the rate of reading keys and values
#     gemv           one answer at a time: as it is, with cuBLAS's products alone, and without fetching weights ahead
#     codes          one answer at a time with weights of int8 and int4, whose products read codes, and by expanding them
#     models         the benchmarks bs1 and nano
#     switched       the cases of products with each of the words that put untried kernels in use
#     answer         one answer at a time with each of these words alone, and with all
#     products       the products of a layer one by one, by the engine and by cuBLASLt; then with all words
#     coded          the products of 8B's layers in int4 and int8, by expansion and by tiles, and in FP8, with inputs of bf16 and of e4m3;
#                    the cases of these products
#     formats        an answer, rows and a prompt of 8B in other formats; an answer of models with experts
#     peers          1,000 tokens in and 1,000 out, as other engines publish it
#     drafts         8B with a layer that drafts and is always right, one answer and 64: the cost of drafts
#     call-1, call-2, call-3, call-4   the parts switched and answer; products and formats; drafts and peers; coded: what has never run on a
#                    GPU, in four calls that end within 200 seconds each. They want the shapes of tests/bench/shapes.
#     keys8          keys and values in 8 bits beside 16: their cases, decode attention, and the benchmarks nano and bs1
#     memcheck, racecheck, initcheck, synccheck    compute-sanitizer on small cases
# Each part takes at most 8 minutes ($PART_SECONDS); cases that no time is left for are named. Each case is a process of its own,
# with a time limit ($CASE_SECONDS caps it), so a crash or a hang ends one case. $JOBS cases run at once (default: half of the
# processors, at most 12), as most of their time is the oracle's; benchmarks run alone. A case that fails runs again with
# MINISGL_CUDA_DEBUG=sync, so that its log names the operation that failed.
#
# $OUT, or out/ beside this file, gets a log for each case, results.txt (a line as each case ends) and summary.txt, written again
# after every case: failures first. A call begins both anew. The end of the output is summary.txt. Exit status: 0 if cases passed
# and none failed or was left out, 3 if no GPU can be used or nothing ran, 64 for an unknown part, else 1.
set -u
here=$(cd "$(dirname "$0")" && pwd)
LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export LD_LIBRARY_PATH
export MINISGL_MODELS="$here/models" MINISGL_GOLDEN_MODELS="$here/golden"
out=${OUT:-$here/out}
part_seconds=${PART_SECONDS:-480}
jobs=${JOBS:-$(($(nproc) / 2))}
[ "$jobs" -le 12 ] || jobs=12
[ "$jobs" -ge 1 ] || jobs=1
mkdir -p "$out"
total_seconds=100000
# A call is parts and a limit of their own.
case "$*" in
call-1) set -- contact switched answer ;;
call-2) set -- contact products formats ;;
call-3) set -- contact drafts peers ;;
call-4) set -- contact coded ;;
*) false ;;
esac && total_seconds=190
all_parts="contact kernels-serial kernels engine attention gemv codes models switched answer products coded formats drafts peers keys8 memcheck racecheck initcheck synccheck"
# shellcheck disable=SC2086
[ $# -gt 0 ] || set -- contact kernels-serial kernels engine attention gemv codes models memcheck racecheck initcheck synccheck
for part in "$@"; do
    case " $all_parts " in
    *" $part "*) ;;
    *)
        echo "run_gpu.sh: no part is named $part; the parts are $all_parts" >&2
        exit 64
        ;;
    esac
done
PATH=$PATH:/usr/local/cuda/bin
: >"$out/results.txt"
: >"$out/failures.txt"
engine_cases='GpuEngineTest.*:GpuHostExpertsTest.*:GpuCanaryTest.*:GpuFaultTest.*'

now() { date +%s; }
begun=$(now)
total_end=$((begun + total_seconds))
set_part_end() {
    part_end=$(($(now) + part_seconds))
    [ $part_end -le $total_end ] || part_end=$total_end
}
set_part_end
count() { grep -c "^$1 " "$out/results.txt"; }

# Called by several cases at once.
summarize() {
    summary=$(mktemp "$out/summary.XXXXXX")
    {
        cat "$out/failures.txt"
        grep -E "^(left-out|skipped) " "$out/results.txt"
        [ ! -s "$out/figures.txt" ] || cat "$out/figures.txt"
        echo "== $(count passed) passed, $(count failed) failed, $(count skipped) skipped, $(count left-out) left out" \
            "in $(($(now) - begun)) s"
    } >"$summary"
    chmod a+r "$summary"
    mv -f "$summary" "$out/summary.txt"
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
    status_file=$(mktemp -u "$out/status.XXXXXX")
    # It holds no file of this script, whose reader would wait for it otherwise.
    {
        timeout -k 2 "$limit" "$@" >"$log" 2>&1
        echo $? >"$status_file.new"
        mv "$status_file.new" "$status_file"
    } </dev/null >/dev/null 2>&1 &
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

# Names the meaning of an exit status.
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

# run CASE SECONDS COMMAND...: 0 if it passed, 1 if it failed, 2 if it was skipped, 3 if it was left out. Sets log.
run() {
    name=$1 seconds=$2
    shift 2
    [ "$seconds" -le "${CASE_SECONDS:-600}" ] || seconds=$CASE_SECONDS
    log="$out/$part-$(echo "$name" | tr '/ *:' '____').log"
    left=$((part_end - $(now)))
    if [ $left -le 2 ]; then
        record left-out "$name" "no time is left in this part"
        return 3
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
    about=$(echo "FAILED $part $name: $why"; excerpt "$log" | cut -c1-300 | sed 's/^/    /')
    # Once more, with a wait behind each operation.
    sync_log="${log%.log}-sync.log"
    left=$((part_end - $(now)))
    [ "$seconds" -le 60 ] || seconds=60
    [ "$seconds" -le $left ] || seconds=$left
    if [ $left -gt 2 ]; then
        limited "$seconds" "$sync_log" env MINISGL_CUDA_DEBUG="${MINISGL_CUDA_DEBUG:+$MINISGL_CUDA_DEBUG,}sync" "$@"
        again=$?
        about=$(
            echo "$about"
            if [ $again -eq 0 ]; then echo "  with sync: passes"; else echo "  with sync: $(meaning $again "$seconds")"; fi
            [ $again -eq 0 ] || excerpt "$sync_log" | cut -c1-300 | sed 's/^/    /'
        )
    fi
    echo "$about" >>"$out/failures.txt"
    record failed "$name" "$why, $took s"
    return 1
}

# tests FILTER SECONDS [COMMAND...]: each case of test_gpu that the gtest filter selects, run by COMMAND.
tests() {
    filter=$1 seconds_each=$2
    shift 2
    expects='test'
    limited 60 "$out/list.log" "$here/bin/test_gpu" --gtest_list_tests "--gtest_filter=$filter"
    listed=$?
    selected=$(sed 's/ *#.*//' "$out/list.log" |
        awk '/^[^ ].*\.$/ { suite = $1; next } /^  [^ ]/ && suite != "" { print suite $1 }')
    [ $listed -eq 0 ] || record failed "list of cases" "$(meaning $listed 60)"
    [ -n "$selected" ] || record failed "list of cases" "bin/test_gpu names none for $filter"
    if [ "$jobs" -eq 1 ] || [ -n "$alone" ]; then
        for case in $selected; do
            run "$case" "$seconds_each" "$@" "$here/bin/test_gpu" "--gtest_filter=$case"
        done
        return
    fi
    # A line in the pipe for each case that may begin.
    turns="$out/turns"
    rm -f "$turns"
    mkfifo "$turns"
    exec 9<>"$turns"
    rm -f "$turns"
    i=0
    while [ $i -lt "$jobs" ]; do echo >&9; i=$((i + 1)); done
    for case in $selected; do
        read -r _ <&9
        {
            run "$case" "$seconds_each" "$@" "$here/bin/test_gpu" "--gtest_filter=$case"
            echo >&9
        } &
    done
    wait
    exec 9>&-
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
        if [ ! -f "$shape" ]; then
            record left-out shapes "none was carried"
            return
        fi
        "$1" "$(basename "$shape" .json)" --shape "$shape" --dummy-weights
    done
}
gemv_of() {
    what=$1 # figures has a label of its own
    shift
    figures "$what" bs1 "$@" --output-tokens 128 --repeat 1
    for off in no-gemv no-prefetch; do
        export MINISGL_CUDA_DEBUG=$off
        figures "$what-$off" bs1 "$@" --output-tokens 128 --repeat 1
    done
    unset MINISGL_CUDA_DEBUG
}
codes_of() {
    what=$1
    shift
    for kind in int8 int4; do
        figures "$what-$kind" bs1 "$@" --quantize "$kind" --output-tokens 128 --repeat 1
    done
    export MINISGL_CUDA_DEBUG=no-gemv
    figures "$what-int4-no-gemv" bs1 "$@" --quantize int4 --output-tokens 128 --repeat 1
    unset MINISGL_CUDA_DEBUG
}
models_of() {
    label=$1
    shift
    figures "$label-bs1" bs1 "$@"
    figures "$label-nano" nano "$@" --repeat 1
}

# keys8_of NAME OPTION...: rows and one answer with keys and values of 16 bits and of 8
keys8_of() {
    label=$1
    shift
    for kind in auto fp8; do
        figures "$label-nano-$kind" nano "$@" --kv-dtype $kind
        figures "$label-bs1-$kind" bs1 "$@" --output-tokens 64 --kv-dtype $kind
    done
}

# with_shape NAME FUNCTION: as for_each_shape, with one shape
with_shape() {
    if [ ! -f "$here/shapes/$1.json" ]; then
        record left-out "$1" "its shape was not carried"
        return
    fi
    "$2" "$1" --shape "$here/shapes/$1.json" --dummy-weights --repeat 1
}
untried="product-ends l2-hint whole-lines fetch-far chain"
# Products of a chain take none of the other kernels.
all_untried="product-ends,l2-hint,whole-lines,fetch-far"
answer_of() {
    what=$1
    shift
    figures "$what" bs1 "$@" --output-tokens 64
    for words in $untried $all_untried; do
        # A matrix of 96 MiB and more has whole lines: no smaller model has one but its head.
        export MINISGL_CUDA_DEBUG="$words"
        figures "$what-$words" bs1 "$@" --output-tokens 64
    done
    unset MINISGL_CUDA_DEBUG
    [ "$what" = qwen3-0.6b ] || return
    figures "$what-kernels" bs1 "$@" --output-tokens 64 --profile-kernels
    export MINISGL_CUDA_DEBUG=chain
    figures "$what-kernels-chain" bs1 "$@" --output-tokens 64 --profile-kernels
    unset MINISGL_CUDA_DEBUG
}
products_of() {
    what=$1
    shift
    figures "$what" products "$@" --tokens 1,8,16,64,256
    export MINISGL_CUDA_DEBUG="$all_untried"
    figures "$what-untried" products "$@" --tokens 1,8
    unset MINISGL_CUDA_DEBUG
}
# By expansion to a scratch, by tiles, and of FP8 with inputs of e4m3.
coded_of() {
    what=$1
    shift
    for words in keep-codes code-tiles; do
        export MINISGL_CUDA_DEBUG=$words
        for format in int4 int8; do figures "$what-$format-$words" products "$@" --format $format --tokens 32,64,128,256; done
    done
    for format in fp8 fp8-blocks; do
        export MINISGL_CUDA_DEBUG=keep-codes
        figures "$what-$format" products "$@" --format $format --tokens 64,512,4096
        export MINISGL_CUDA_DEBUG=w8a8
        figures "$what-$format-w8a8" products "$@" --format $format --tokens 64,512,4096
    done
    unset MINISGL_CUDA_DEBUG
}
formats_of() {
    what=$1
    shift
    figures "$what-prompt" prefix "$@"
    for format in none int8 int4; do
        quantize=""
        [ $format = none ] || quantize="--quantize $format"
        # shellcheck disable=SC2086
        figures "$what-$format-answer" bs1 "$@" $quantize --output-tokens 64
        # shellcheck disable=SC2086
        figures "$what-$format-rows" uniform 64 512 128 "$@" $quantize
    done
}
experts_of() {
    what=$1
    shift
    figures "$what-answer" bs1 "$@" --output-tokens 64
}
drafts_of() {
    what=$1
    shift
    for drafts in 1 3; do figures "$what-$drafts" spec "$@" --speculate "mtp:$drafts" --output-tokens 128; done
    figures "$what-64-rows" spec "$@" --speculate mtp:3 --output-tokens 128 --batch 64
}
peers_of() {
    what=$1
    shift
    figures "$what-1000-1000" uniform 256 1000 1000 "$@"
}

# Kernels run 10 to 1,000 times slower, so the cases use small sizes. Cases that fill the device or break it on purpose are
# left out; so are whole engines in the tools that are slowest or look at kernels alone.
sanitize() {
    if ! command -v compute-sanitizer >/dev/null 2>&1; then
        record skipped "$1" "no compute-sanitizer is here"
        return
    fi
    export MINISGL_SMALL_TESTS=1
    tests "$2" 120 compute-sanitizer --tool "$1" --error-exitcode 9
    unset MINISGL_SMALL_TESTS
}

rm -f "$out/figures.txt"
log=/dev/null expects='test' alone=""
for part in "$@"; do
    echo "== $part"
    set_part_end
    case $part in
    contact) contact ;;
    kernels-serial)
        export MINISGL_CUDA_DEBUG=no-dependent-launch
        tests "-$engine_cases" 60
        unset MINISGL_CUDA_DEBUG
        ;;
    kernels) tests "-$engine_cases" 60 ;;
    engine)
        tests 'GpuEngineTest.*:GpuHostExpertsTest.*' 90
        alone=yes # these fill the device
        tests 'GpuFaultTest.*' 90
        tests 'GpuCanaryTest.*' 200
        alone=""
        ;;
    attention) figures attn-decode attn-decode --batches 1,64 --contexts 1024,4096,32768 --repeat 3 ;;
    gemv) for_each_shape gemv_of ;;
    codes) for_each_shape codes_of ;;
    models)
        models_of wren -m "$here/models/wren"
        for_each_shape models_of
        ;;
    switched)
        for words in $untried $all_untried "ring,$all_untried"; do
            export MINISGL_CUDA_DEBUG="$words"
            tests 'GpuLinearTest.*:GpuFusedLinearTest.*:GpuProductsInARowTest.*' 60
        done
        unset MINISGL_CUDA_DEBUG
        ;;
    answer) for shape in qwen3-0.6b llama-3.2-1b qwen3-8b; do with_shape $shape answer_of; done ;;
    products) for shape in qwen3-0.6b qwen3-8b; do with_shape $shape products_of; done ;;
    coded)
        tests 'GpuCodeTilesTest.*:GpuScaledProductsTest.*' 60
        with_shape qwen3-8b coded_of
        ;;
    formats)
        with_shape qwen3-8b formats_of
        for shape in qwen3-30b-a3b gpt-oss-120b; do with_shape $shape experts_of; done
        ;;
    drafts) with_shape qwen3-8b-mtp drafts_of ;;
    peers) for shape in llama-3.1-8b gpt-oss-20b gpt-oss-120b; do with_shape $shape peers_of; done ;;
    keys8)
        tests 'GpuKvCodesTest.*' 60
        for kind in auto fp8; do
            figures "attn-decode-$kind" attn-decode --batches 1,64 --contexts 4096 --repeat 3 --kv-dtype $kind
        done
        with_shape qwen3-0.6b keys8_of
        ;;
    memcheck) sanitize memcheck '-GpuFaultTest.*' ;;
    racecheck | initcheck | synccheck) sanitize "$part" '-GpuFaultTest.*:GpuCanaryTest.*:GpuEngineTest.*:GpuHostExpertsTest.*' ;;
    esac
done
summarize
echo
cat "$out/summary.txt"
[ "$(count failed)" -eq 0 ] && [ "$(count left-out)" -eq 0 ] || exit 1
[ "$(count passed)" -gt 0 ] || exit 3
