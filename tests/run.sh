#!/bin/sh
# Runs every test on this machine; installs and builds what they need. The last line counts test cases:
#   N passed, M failed, K skipped
# Each case belongs to one of three builds (tests/meson.build lists which): optimised (build), with the address and
# undefined-behaviour sanitizers (build-asan), with the thread sanitizer (build-tsan).
#   sh tests/run.sh           all cases, then the README's first command on a bare system, if this machine can make one
#   sh tests/run.sh --long    all cases in the optimised build and under the address sanitizer, and more under the thread
#                             sanitizer, in their long form: more seeds, more mutations, every instruction set; the
#                             demo's answers from a build without optimisation; each file compiled by itself;
#                             clang-tidy
#   sh tests/run.sh --budget  a case that takes more than two seconds of processor time fails, unless it is marked slow
#   sh tests/run.sh --gpu     the suite gpu alone, which needs nvcc: on the emulator and on this machine's GPU; without a GPU
#                             its tests are skipped, each by name
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/packages.sh

budget="" mode=short
case $#:${1:-} in
0:) ;;
1:--long) mode=long; export MINISGL_SEEDS=20000 MINISGL_FUZZ_RUNS=200000 MINISGL_LONG=1 MINISGL_SIM_SEEDS=100000 ;;
1:--budget) budget=--budget ;;
1:--gpu) mode=gpu ;;
*)
    echo "usage: sh tests/run.sh [--long | --budget | --gpu]" >&2
    exit 64
    ;;
esac
[ $mode = long ] && TEST_PACKAGES="$TEST_PACKAGES $LONG_PACKAGES"
# shellcheck disable=SC2086
install_packages $BUILD_PACKAGES $TEST_PACKAGES || exit 1

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
trap 'exit 1' HUP INT TERM
build_failures=0
begun=$(date +%s)

say() { echo "== $* ($(($(date +%s) - begun)) s)"; }

count_results() { python3 tests/count_results.py $budget "$build_failures" "$results"/*.xml; }

# build FOLDER "MESON OPTIONS" [TARGET...]: without a target builds all of them.
build() {
    folder=$1 options=$2
    shift 2
    say "$folder: building"
    # shellcheck disable=SC2086
    # The folder may be of an earlier version, whose options cannot be changed.
    if [ -f "$folder/build.ninja" ]; then
        meson setup --reconfigure "$folder" $options >"$results/setup.log" 2>&1 ||
            meson setup --wipe "$folder" $options >"$results/setup.log" 2>&1
    else
        meson setup "$folder" $options >"$results/setup.log" 2>&1
    fi || { cat "$results/setup.log"; build_failures=$((build_failures + 1)); return 1; }
    if ! ninja -C "$folder" "$@" >"$results/ninja.log" 2>&1; then
        grep -E "error|FAILED" "$results/ninja.log" | head -n 40
        say "$folder did not build"
        build_failures=$((build_failures + 1))
        return 1
    fi
}

# run_suites FOLDER NAME [OPTION OF MESON TEST...]: runs tests; their results are called NAME.
run_suites() {
    folder=$1 name=$2
    shift 2
    say "$name: running"
    # Remove the results of an earlier run: they must not be counted for a test that crashes in this one.
    rm -f "$folder"/*.xml "$folder"/meson-logs/run_sh*
    # Two at a time, except those that run alone (tests/meson.build).
    meson test -C "$folder" --no-rebuild --num-processes 2 --print-errorlogs --logbase run_sh "$@"
    echo $? >"$results/$name.status"
    cp "$folder/meson-logs/run_sh.junit.xml" "$results/$name.xml" || build_failures=$((build_failures + 1))
    cp "$folder/meson-logs/run_sh.json" "$results/$name.json"
}

# Prints the instruction sets of this machine as the program names them, the best first.
cpu_targets() {
    build/src/cli/minisgl run -m tests/models/wren --device cpu --cpu-target none -p a 2>&1 |
        sed -n 's/.*choose one of: \([a-z0-9_, ]*\).*/\1/p' | tr -d ','
}

# Runs the cases that depend on the instruction set again, with other sets than the best.
run_other_targets() {
    # shellcheck disable=SC2046
    set -- $(cpu_targets)
    [ $# -gt 0 ] || { echo "the program names no instruction sets"; build_failures=$((build_failures + 1)); return; }
    shift
    for target in "$@"; do
        [ "$target" = avx2 ] || [ $mode = long ] || continue
        export MINISGL_CPU_TARGET="$target"
        run_suites build "build-$target" --suite by_target
        unset MINISGL_CPU_TARGET
    done
}

# The README's first command on a bare system, and its Debian package on another. One case, skipped with a reason if this machine
# cannot make a bare root.
run_bare_root() {
    say "bare root: running"
    sh tests/fresh.sh --demo >"$results/fresh.log" 2>&1
    python3 tests/report_case.py bare_root demo $? "$results/fresh.log" "$results/bare-root.xml"
    grep "^fresh:" "$results/fresh.log"
}

# Every source and every header compiled by itself. One case. (The short form reads their includes: tests/tidy/includes.py.)
run_compile_alone() {
    say "each file alone: compiling"
    {
        rm -rf build-alone && meson setup build-alone -Dcuda=disabled -Dtests=enabled >/dev/null && python3 tests/tidy/compile_alone.py build-alone
    } >"$results/alone.log" 2>&1
    python3 tests/report_case.py compile_alone files $? "$results/alone.log" "$results/alone.xml"
}

# Static analysis of some rooms (.clang-tidy lists the checks). One case.
run_clang_tidy() {
    say "clang-tidy: running"
    {
        rm -rf build-tidy && meson setup build-tidy -Dcuda=disabled -Dtests=disabled >/dev/null &&
            clang-tidy -p build-tidy --quiet src/base/*.cc src/kv/*.cc src/sched/*.cc src/runtime/*.cc src/weights/*.cc
    } >"$results/clang-tidy.log" 2>&1
    python3 tests/report_case.py clang_tidy rooms $? "$results/clang-tidy.log" "$results/clang-tidy.xml"
}

# The sanitizer keeps ten frames of each allocation: enough to find it, and suites that allocate much take a seventh less time.
export ASAN_OPTIONS="detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1:malloc_context_size=10"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
export TSAN_OPTIONS="halt_on_error=1"
if [ $mode = gpu ]; then
    build build-gpu "--buildtype=release -Dcuda=enabled -Dtests=enabled" tests/gpu/test_gpu tests/gpu/test_gpu_emulated &&
        run_suites build-gpu build-gpu --suite gpu
    count_results
    exit
fi

tier() { [ $mode = long ] && echo all || echo "$1"; }
# Compiling several files as one takes a third of the time of a full build.
joined="-Dtests=enabled -Dcpu_targets=all -Dunity=on -Dunity_size=40 -Dcpp_link_args=-fuse-ld=mold"
# Code for four GPU architectures takes minutes; without a GPU, one is enough to see that it compiles.
archs=sm_90a
[ $mode = short ] && [ ! -e /dev/nvidia0 ] || archs=sm_80,sm_90a,sm_100,sm_120
# Not compressed, so that the suite gpu_code can read it.
build build "--buildtype=release $joined -Dtest_tier=$(tier release) -Dcuda=auto -Dgpu_archs=$archs -Dgpu_compress=false" && {
    run_suites build build
    run_other_targets
}
# The sanitizers see the kernels on the emulator; nvcc's output is in the optimised build alone. Reports need line numbers and no
# other debug information. Checks that the address sanitizer makes as well, such as the one for null pointers, are off; in the
# short form also alignment, pointers that wrap round, and the use of variables after their scope, which take a tenth to a third
# of the compilation each. Programs at a fixed address start in half the time, because each has two million relocations otherwise.
checked="--buildtype=debug --optimization=1 -Db_lundef=false -Dcuda=disabled -Dtests=enabled -Dunity=on -Dunity_size=20"
# With sanitizers each instruction set takes a minute to compile, and all have the same source.
targets_option=-Dcpu_targets=avx2
unchecked="-fno-sanitize=null,vptr,object-size,nonnull-attribute,returns-nonnull-attribute"
[ $mode = long ] && targets_option=-Dcpu_targets=all || unchecked="$unchecked,alignment,pointer-overflow','-fno-sanitize-address-use-after-scope"
build build-asan "$checked -Db_sanitize=address,undefined -Db_staticpic=false $targets_option -Dtest_tier=$(tier checked) \
    -Dcpp_args=['-g1','-D_GLIBCXX_ASSERTIONS','-fno-pie','$unchecked'] -Dcpp_link_args=['-fuse-ld=mold','-no-pie']" &&
    run_suites build-asan build-asan --no-suite mutants --no-suite tidy --no-suite demo_script --no-suite gpu_code
# Several threads use the thread pool, the runtime on it, the store and the decoders of pictures, and nothing else, whatever the
# model and the request, so few suites need this build.
threaded="base runtime store vision"
[ $mode = long ] && threaded="base engine runtime store vision"
suites="" targets=""
for suite in $threaded; do
    suites="$suites --suite $suite" targets="$targets tests/test_$suite"
done
# shellcheck disable=SC2086
build build-tsan "$checked -Db_sanitize=thread -Dtest_tier=$(tier threaded) -Dcpp_args=-g1 -Dcpp_link_args=-fuse-ld=mold" $targets &&
    run_suites build-tsan build-tsan $suites

if [ $mode = long ]; then
    # As `--buildtype=debug` builds: nothing is inlined, so that two types of one name would show.
    build build-debug "--buildtype=debug -Dcuda=disabled $joined -Dtest_tier=release" src/cli/minisgl tests/test_answers &&
        run_suites build-debug build-debug --suite answers --test-args=--gtest_filter='ScoresTest.*Questions*:ScoresTest.Notes*'
fi
[ $mode = short ] || { run_clang_tidy; run_compile_alone; }
[ -n "${MINISGL_BARE_ROOT:-}" ] || run_bare_root
say "done"
count_results
