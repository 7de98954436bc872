#!/bin/sh
# Runs every test on this machine, installing and building what that takes. The last line counts test cases:
#   N passed, M failed, K skipped
#   sh tests/run.sh          release build; all suites but the whole program's answers under the address and
#                            undefined-behaviour sanitizers; the suites with threads under the thread sanitizer
#   sh tests/run.sh --long   the same with the long forms: more seeds, more mutations
#   sh tests/run.sh --gpu    the suite gpu alone, which needs nvcc: on the emulator, and on this machine's GPU; where
#                            there is none its tests are skipped, each by name
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/packages.sh

case $#:${1:-} in
0:) ;;
1:--long) export MINISGL_SEEDS=20000 MINISGL_FUZZ_RUNS=200000 MINISGL_LONG=1 ;;
1:--gpu) ;;
*)
    echo "usage: sh tests/run.sh [--long | --gpu]" >&2
    exit 64
    ;;
esac
# shellcheck disable=SC2086
install_packages $BUILD_PACKAGES $TEST_PACKAGES || exit 1

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
build_failures=0

# build_and_test FOLDER "MESON OPTIONS" "SUITE OPTIONS OF MESON TEST" [TARGET...]: no target builds them all.
build_and_test() {
    folder=$1 options=$2 suites=$3
    shift 3
    echo "== $folder"
    # shellcheck disable=SC2086
    if [ -f "$folder/build.ninja" ]; then
        meson configure "$folder" $options -Dtests=enabled >/dev/null
    else
        meson setup "$folder" $options -Dtests=enabled >"$results/setup.log" 2>&1
    fi || { cat "$results/setup.log"; build_failures=$((build_failures + 1)); return; }
    if ! ninja -C "$folder" "$@" >"$results/ninja.log" 2>&1; then
        grep -E "error|FAILED" "$results/ninja.log" | head -n 40
        echo "== $folder did not build"
        build_failures=$((build_failures + 1))
        return
    fi
    # What an earlier run left must not be counted for a test that crashes in this one.
    rm -f "$folder"/*.xml "$folder"/meson-logs/run_sh*
    # Two at a time; those that tests/meson.build says run alone do.
    # shellcheck disable=SC2086
    meson test -C "$folder" --no-rebuild --num-processes 2 --print-errorlogs \
        --logbase "run_sh" $suites
    echo $? >"$results/$folder.status"
    cp "$folder/meson-logs/run_sh.junit.xml" "$results/$folder.xml" ||
        build_failures=$((build_failures + 1))
}

export ASAN_OPTIONS="detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
export TSAN_OPTIONS="halt_on_error=1"
if [ "${1:-}" = "--gpu" ]; then
    build_and_test build-gpu "--buildtype=release -Dcuda=enabled" "--suite gpu" \
        tests/gpu/test_gpu tests/gpu/test_gpu_emulated
    exec python3 tests/count_results.py "$build_failures" "$results"/*.xml
fi
# Code for four kinds of GPU takes minutes; where there is none, one kind shows that it compiles.
archs=""
[ "${1:-}" = "--long" ] || [ -e /dev/nvidia0 ] || archs="-Dgpu_archs=sm_90a"
build_and_test build "--buildtype=release -Djoined_tests=true $archs" ""
[ "${1:-}" = "--long" ] || export MINISGL_SIM_SEEDS=700  # the release build ran all
# The sanitizers see the kernels on the emulator; what nvcc makes is in the release build alone. Line numbers are all the
# debug information that reports need, and checks that the address sanitizer makes as well (null pointers, say) are left to
# it: compiling takes about half as long.
# The whole program's answers are a release matter (minutes here); its parts and its command line are under the sanitizer.
whole_program="--no-suite answers"
[ "${1:-}" = "--long" ] && whole_program=""
# So are what a killed or stopped program leaves behind, hundreds of starts, which are ten times slower here; and some that
# compare bits over more settings and random cases than it takes to go through the code (their siblings and the simulation do).
# Files and templates made to do harm go through the same code there in the fuzz targets, whose corpora have their like.
left_out="RunDurabilityTest.*:PipelineTest.*:*WrenSettings*threads1*:WrenInvarianceTest.EveryTarget*:WrenQuantizedTest.*"
left_out="$left_out:AttentionTest.MoreSplits*:SchedulerTest.RandomWorkloads*:*ReadFaultTest.Interrupted*:HeaderMemoryTest.*"
left_out="$left_out:*SoakTest*Windows:*SoakTest*Drafts:RowTest.ARowOfTooManyValues*:ChatBatchTest.AnswersAreThoseOfRun"
left_out="$left_out:PlanProgramTest.APlanSays*:ReportsProgramTest.ASummarySays*:RunProgramTest.PromptsThatAreTooLong*"
left_out="$left_out:ChatBatchTest.WhatWasStopped*:ChatBatchTest.ThePromptShows*:ChatBatchTest.ASignalToEnd*:SimTest.TheSameSeed*"
left_out="$left_out:*ReadFaultTest.*/TokenizerJson:HostileTemplateTest.EachIsRefused*:*GoldenLogitsTest.*/wren_naive"
left_out="$left_out:AttentionSharingTest.RowsOfManyKinds:BenchProgramTest.WrongUsage*"
[ "${1:-}" = "--long" ] || export GTEST_FILTER="-$left_out"
# Several files are compiled as one (names that two files of a room have in common are found here), which halves that time.
debug="--buildtype=debug --optimization=1 -Db_lundef=false -Dcuda=disabled -Dunity=on -Dunity_size=10 -Dcpp_link_args=-fuse-ld=mold"
checked_twice="-fno-sanitize=null,vptr,object-size,nonnull-attribute,returns-nonnull-attribute"
build_and_test build-asan "$debug -Db_sanitize=address,undefined -Dcpp_args=['-g1','$checked_twice']" \
    "--no-suite mutants --no-suite tidy $whole_program"
# Threads are the same whatever the architecture of a model and the settings of a request: the pool, and the runtime on it.
threaded="base runtime"
[ "${1:-}" = "--long" ] && threaded="base engine runtime"
unset GTEST_FILTER
suites="" targets=""
for suite in $threaded; do
    suites="$suites --suite $suite" targets="$targets tests/test_$suite"
done
# shellcheck disable=SC2086
build_and_test build-tsan "$debug -Db_sanitize=thread -Dcpp_args=-g1" "$suites" $targets

exec python3 tests/count_results.py "$build_failures" "$results"/*.xml
