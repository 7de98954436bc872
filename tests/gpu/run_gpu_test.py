"""Tests run_gpu.sh without a GPU, as TAP: runs a copy of it in a folder as carry.sh makes them, with a fake in place of the suite
that passes, fails, crashes, hangs or does nothing, and compares what it records.

    python3 tests/gpu/run_gpu_test.py SOURCE_ROOT [EMULATED_SUITE]

EMULATED_SUITE: test_gpu_emulated, which then takes the place of the suite once.
"""
import concurrent.futures
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE_ROOT = Path(sys.argv[1]).resolve()
EMULATED = Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else None
TOOLS = ["sh", "awk", "sed", "grep", "sort", "head", "tail", "rm", "mv", "cat", "tr", "dirname", "basename", "mkdir", "env", "sleep",
         "wc", "cut", "nproc", "mktemp", "mkfifo", "chmod"]
# A case does what its name says.
FAKE_SUITE = """#!/bin/sh
echo "$* debug=${MINISGL_CUDA_DEBUG:-}" >>"$CALLS"
cases="CASES"
case $1 in
--gtest_list_tests)
    echo "Running main() from gpu_main.cc"
    case $2 in
    *=-*) echo "GpuTablesTest."; for case in $cases; do echo "  $case"; done ;;
    *Engine*) echo "GpuEngineTest."; echo "  Runs/0  # GetParam() = 1" ;;
    *) echo "GpuCanaryTest."; echo "  AlsoRuns" ;;
    esac
    exit ;;
esac
case $1 in
*Passes*|*PlanWrites*|*MatchesTheSum*|*Runs*) echo "[  PASSED  ] 1 test." ;;
*Fails*) echo "x.cc:7: Failure: cudaStreamSynchronize: illegal address"; echo "[  FAILED  ] 1 test"; exit 1 ;;
*OnlyAsync*) [ "${MINISGL_CUDA_DEBUG#*sync}" != "${MINISGL_CUDA_DEBUG:-}" ] && { echo "[  PASSED  ] 1 test."; exit; }
    echo "a wrong bit: error"; exit 1 ;;
*Crashes*) echo "before it"; kill -SEGV $$ ;;
*Hangs*) echo "waiting"; sleep 600 ;;
*Meets*) : >"$CALLS.$$"; while [ "$(echo "$CALLS".* | wc -w)" -lt 3 ]; do sleep 0.05; done; echo "[  PASSED  ] 1 test." ;;
*Ignores*) trap '' TERM; sleep 5; sleep 5 ;;
*Prints*) echo "hello" ;;
*Skips*) echo "[ RUN      ] x"; echo "no NVIDIA driver found"; echo "[  SKIPPED ] x"; echo "[  PASSED  ] 0 tests." ;;
esac
"""
# The script's clock stands still, unless a case that ignores signals is killed. The limit of a case that hangs is real, and each
# other case has a long limit, whatever the script wants: a busy machine is not a case without end.
DATE = "#!/bin/sh\ncat FOLDER/clock\n"
TIMEOUT = """#!/bin/sh
case $* in
*Hangs*) exec TIMEOUT "$@" ;;
*Ignores*) TIMEOUT "$@"; status=$?; ADVANCE; exit $status ;;
esac
shift 3
exec TIMEOUT 600 "$@"
"""
ADVANCE = 'echo $(($(cat FOLDER/clock) + $3 + 2)) >FOLDER/later; mv FOLDER/later FOLDER/clock'
PROGRAM = """#!/bin/sh
echo "minisgl $* debug=${MINISGL_CUDA_DEBUG:-}" >>"$CALLS"
case "$*" in
*--json*) echo "decode: 1234 GB/s of 4000 (31 %)"; while [ $# -gt 1 ]; do [ "$1" = --json ] && echo '{"rate": 1}' >"$2"; shift; done ;;
*) echo "device  cuda:0 (a fake)" ;;
esac
"""


class Folder:
    """A carried folder, and a PATH of the tools that the script uses."""

    def __init__(self, folder, cases, program=PROGRAM, suite=None):
        self.folder = folder
        for name in ("bin", "lib", "models/wren", "shapes", "tools", "home"):
            (folder / name).mkdir(parents=True)
        shutil.copy(SOURCE_ROOT / "tests/gpu/run_gpu.sh", folder)
        for tool in TOOLS:
            (folder / "tools" / tool).symlink_to(shutil.which(tool))
        (folder / "clock").write_text("1000000\n")
        self.write_tool("date", DATE)
        self.write_tool("timeout", TIMEOUT)
        self.write("bin/test_gpu", FAKE_SUITE.replace("CASES", " ".join(cases)))
        if suite:
            (folder / "bin/test_gpu").unlink()
            (folder / "bin/test_gpu").symlink_to(suite)
        self.write("bin/minisgl", program)
        self.write("tools/nvidia-smi", "#!/bin/sh\necho 'fake, 580.1'\n")
        (folder / "shapes/small.json").write_text("{}")

    def write(self, name, text):
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def write_tool(self, name, text):
        text = text.replace("TIMEOUT", shutil.which("timeout")).replace("SLEEP", shutil.which("sleep")).replace("ADVANCE", ADVANCE)
        self.write(f"tools/{name}", text.replace("FOLDER", str(self.folder)))

    def run(self, *parts, **env):
        calls = self.folder / "calls"
        calls.touch()
        done = subprocess.run(["sh", str(self.folder / "run_gpu.sh"), *parts], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              env={"PATH": str(self.folder / "tools"), "CALLS": str(calls), "OUT": str(self.folder / "results"),
                                   "HOME": str(self.folder / "home"), "JOBS": "1", **env})
        return done, calls.read_text()


cases = []


def case(test):
    cases.append((test.__name__.replace("_", " "), test))
    return test


def lacks(text, *wanted):
    return [f"does not say: {words}" for words in wanted if words not in text]


def ends(done, status):
    return [] if done.returncode == status else [f"ends with {done.returncode}"]


@case
def each_case_is_recorded_by_what_it_did(folder):
    made = Folder(folder, ["Passes", "Fails", "Crashes", "Hangs", "Prints", "Skips", "OnlyAsync", "AlsoPasses"])
    done, calls = made.run("kernels", CASE_SECONDS="3")
    results = (folder / "results/results.txt").read_text()
    yield from lacks(results, "passed kernels GpuTablesTest.Passes", "failed kernels GpuTablesTest.Fails: exit status 1",
                     "failed kernels GpuTablesTest.Crashes: crash, signal 11", "failed kernels GpuTablesTest.Hangs: no end after 3 s",
                     "failed kernels GpuTablesTest.Prints: no test ran", "skipped kernels GpuTablesTest.Skips: no NVIDIA driver found",
                     "failed kernels GpuTablesTest.OnlyAsync", "passed kernels GpuTablesTest.AlsoPasses")
    yield from lacks(done.stdout, "2 passed, 5 failed, 1 skipped, 0 left out", "illegal address", "with sync: passes", "with sync: crash, signal 11")
    yield from lacks(calls, "Fails debug=sync", "Hangs debug=sync")
    if "Passes debug=sync" in calls:
        yield "repeats a case that passed"
    yield from ends(done, 1)


@case
def several_cases_run_at_once(folder):
    # Each of three waits for the two others.
    names = ["Hangs1", "Meets1", "Meets2", "Meets3", "Hangs2", "Passes", "Fails", "Skips"]
    done, _ = Folder(folder, names).run("kernels", CASE_SECONDS="2", JOBS="5")
    results = (folder / "results/results.txt").read_text()
    yield from lacks(results, *(f"failed kernels GpuTablesTest.Hangs{i}: no end after 2 s" for i in (1, 2)),
                     *(f"passed kernels GpuTablesTest.Meets{i}" for i in (1, 2, 3)), "passed kernels GpuTablesTest.Passes",
                     "failed kernels GpuTablesTest.Fails: exit status 1", "skipped kernels GpuTablesTest.Skips")
    summary = (folder / "results/summary.txt").read_text()
    yield from lacks(summary, "4 passed, 3 failed, 1 skipped, 0 left out")
    if not done.stdout.endswith(summary):
        yield "the output does not end with the summary"
    if len(results.splitlines()) != 8:
        yield f"{len(results.splitlines())} lines of results"
    yield from ends(done, 1)


@case
def failures_come_first_in_the_summary(folder):
    made = Folder(folder, ["Passes", "Fails"])
    done, _ = made.run("kernels")
    summary = (folder / "results/summary.txt").read_text()
    if not summary.startswith("FAILED kernels GpuTablesTest.Fails: exit status 1"):
        yield f"begins with {summary[:80]!r}"
    if not done.stdout.endswith(summary):
        yield "the output does not end with the summary"


@case
def results_are_there_while_it_runs(folder):
    made = Folder(folder, ["Passes", "Ignores"])
    env = {"PATH": str(folder / "tools"), "CALLS": str(folder / "calls"), "OUT": str(folder / "results"), "HOME": str(folder)}
    with subprocess.Popen(["sh", str(made.folder / "run_gpu.sh"), "kernels"], stdout=subprocess.PIPE, text=True, env=env,
                          start_new_session=True) as process:
        for line in process.stdout:
            if line.startswith("passed kernels GpuTablesTest.Passes"):
                break
        else:
            yield "does not print a result as it comes"
        os.killpg(process.pid, signal.SIGKILL)  # as a time limit of the machine does
    yield from lacks((folder / "results/summary.txt").read_text(), "1 passed, 0 failed")


@case
def a_case_that_ignores_signals_is_killed(folder):
    made = Folder(folder, ["Ignores", "Passes"])
    made.run("kernels", CASE_SECONDS="2")
    results = (folder / "results/results.txt").read_text()
    yield from lacks(results, "failed kernels GpuTablesTest.Ignores: no end after 2 s", "passed kernels GpuTablesTest.Passes")
    if "cannot be killed" in results:
        yield "is left alone"


@case
def a_part_ends_in_time_and_names_what_is_left_out(folder):
    made = Folder(folder, ["Hangs", "Passes"])
    made.write_tool("timeout", '#!/bin/sh\ncase $* in *Hangs*) ADVANCE; exit 124 ;; esac\nshift 3\nexec TIMEOUT 600 "$@"\n')
    done, _ = made.run("kernels", "engine", PART_SECONDS="6")
    yield from lacks((folder / "results/results.txt").read_text(), "left-out kernels GpuTablesTest.Passes: no time is left",
                     "passed engine GpuEngineTest.Runs/0", "passed engine GpuCanaryTest.AlsoRuns")
    yield from lacks(done.stdout, "3 passed, 1 failed, 0 skipped, 1 left out")


@case
def launches_are_serial_in_kernels_serial_alone(folder):
    made = Folder(folder, ["Passes", "Fails"])
    _, calls = made.run("kernels-serial", "kernels")
    yield from lacks(calls, "=GpuTablesTest.Passes debug=no-dependent-launch\n", "=GpuTablesTest.Passes debug=\n",
                     "=GpuTablesTest.Fails debug=no-dependent-launch,sync\n")


@case
def contact_tries_the_program_and_two_cases(folder):
    done, _ = Folder(folder, ["Passes"]).run("contact")
    yield from lacks(done.stdout, "fake, 580.1", "device  cuda:0 (a fake)", "3 passed, 0 failed")
    yield from ends(done, 0)


@case
def without_time_contact_does_not_blame_the_gpu(folder):
    done, _ = Folder(folder, ["Passes"]).run("contact", PART_SECONDS="0")
    yield from lacks(done.stdout, "left-out contact GpuLinearTest.MatchesTheSum")
    yield from ends(done, 1)


@case
def nothing_that_passed_is_no_success(folder):
    done, _ = Folder(folder, ["Skips"]).run("kernels")
    yield from lacks(done.stdout, "0 passed, 0 failed, 1 skipped")
    yield from ends(done, 3)


@case
def an_unknown_part_ends_before_anything_runs(folder):
    done, calls = Folder(folder, ["Passes"]).run("kernels", "kernel")
    yield from lacks(done.stderr, "no part is named kernel; the parts are contact")
    yield from ends(done, 64)
    if calls:
        yield f"ran {calls!r}"


@case
def a_list_that_crashes_is_a_failure(folder):
    made = Folder(folder, ["Passes"])
    made.write("bin/test_gpu", FAKE_SUITE.replace("CASES", "Passes").replace("    exit ;;", "    kill -SEGV $$ ;;"))
    done, _ = made.run("kernels")
    yield from lacks(done.stdout, "failed kernels list of cases: crash, signal 11", "passed kernels GpuTablesTest.Passes")
    yield from ends(done, 1)


@case
def a_process_that_cannot_be_killed_holds_up_nothing(folder):
    made = Folder(folder, ["Passes"])
    # It ends after the script has, with its folder.
    made.write_tool("timeout", "#!/bin/sh\ncase $* in *Passes) ADVANCE; ADVANCE; ADVANCE; while [ -e FOLDER/clock ]; do SLEEP 0.1; done ;; "
                    "esac\nshift 3\nexec \"$@\"\n")
    done, _ = made.run("kernels", CASE_SECONDS="1")
    yield from lacks(done.stdout, "failed kernels GpuTablesTest.Passes: no end after 1 s, and cannot be killed")


@case
def without_a_gpu_it_ends_at_once(folder):
    made = Folder(folder, ["Passes"])
    made.write("bin/test_gpu", FAKE_SUITE.replace("*Skips*", "*") .replace("*Passes*|*PlanWrites*", "*Passes*"))
    done, _ = made.run("contact", "kernels")
    yield from lacks(done.stdout, "no GPU can be used: skipped contact GpuTablesTest.PlanWritesAreAppliedInOrder: no NVIDIA driver found")
    if done.returncode != 3 or "passed kernels" in done.stdout:
        yield f"ends with {done.returncode}"


@case
def benchmarks_stand_in_the_summary(folder):
    made = Folder(folder, ["Passes"])
    done, calls = made.run("attention", "gemv", "codes", "models")
    yield from lacks(calls, "--quantize int8", "--quantize int4", "minisgl bench attn-decode", "bench bs1 --shape", "debug=no-gemv", "debug=no-prefetch", "bench nano --shape", "bench nano -m")
    yield from lacks((folder / "results/summary.txt").read_text(), "-- small-no-gemv\ndecode: 1234 GB/s", "-- small-no-prefetch\ndecode: 1234 GB/s", "-- wren-bs1", "11 passed, 0 failed")
    yield from ends(done, 0)


@case
def keys_of_8_bits_are_measured_beside_16(folder):
    made = Folder(folder, ["Passes"])
    (folder / "shapes/qwen3-0.6b.json").write_text("{}")
    done, calls = made.run("keys8")
    yield from lacks(calls, "--contexts 4096 --repeat 3 --kv-dtype auto", "--kv-dtype fp8", "bench nano --shape", "bench bs1 --shape")
    yield from ends(done, 0)


@case
def each_word_of_untried_kernels_is_measured_alone(folder):
    made = Folder(folder, ["Passes"])
    (folder / "shapes/qwen3-0.6b.json").write_text("{}")
    done, calls = made.run("call-1")
    words = ["chain", "product-ends", "l2-hint", "whole-lines", "fetch-far", "product-ends,l2-hint,whole-lines,fetch-far"]
    yield from lacks(calls, *(f"=GpuCanaryTest.AlsoRuns debug={word}\n" for word in [*words, f"ring,{words[-1]}"]))
    yield from lacks((folder / "results/summary.txt").read_text(), "-- qwen3-0.6b\n", *(f"-- qwen3-0.6b-{word}\n" for word in words),
                     "-- qwen3-0.6b-kernels\n", "-- qwen3-0.6b-kernels-chain\n", "left-out answer qwen3-8b: its shape was not carried")
    yield from ends(done, 1)
    done, calls = made.run("call-2")
    yield from lacks(calls, "bench products --shape", "--tokens 1,8,16,64,256", f"debug={words[-1]}\n")
    (folder / "shapes/qwen3-8b.json").write_text("{}")
    done, calls = made.run("call-4")
    yield from lacks(calls, *(f"--format {kind} --tokens 64,512,4096" for kind in ["fp8", "fp8-blocks"]), "debug=keep-codes\n", "debug=w8a8\n", "--format int4 --tokens 32,64,128,256", "debug=code-tiles\n")
    (folder / "shapes/llama-3.1-8b.json").write_text("{}")
    done, calls = made.run("call-3")
    yield from lacks(calls, "bench uniform 256 1000 1000 --shape")
    if "GpuEngineTest" in calls:
        yield "runs more than the call's parts"


@case
def a_call_ends_within_its_time(folder):
    made = Folder(folder, ["Passes"])
    (folder / "shapes/qwen3-0.6b.json").write_text("{}")
    # Each benchmark takes 80 seconds of the script's clock.
    made.write_tool("timeout", '#!/bin/sh\ncase $* in *bs1*) echo $(($(cat FOLDER/clock) + 80)) >FOLDER/later; mv FOLDER/later FOLDER/clock ;; esac\n'
                    'shift 3\nexec TIMEOUT 600 "$@"\n')
    done, _ = made.run("call-1")
    yield from lacks((folder / "results/results.txt").read_text(), "passed answer qwen3-0.6b:", "passed answer qwen3-0.6b-product-ends",
                     "left-out answer qwen3-0.6b-fetch-far: no time is left")


@case
def a_benchmark_that_fails_is_a_failure(folder):
    made = Folder(folder, ["Passes"], program="#!/bin/sh\necho 'error: cudaMalloc: out of memory' >&2; exit 70\n")
    done, _ = made.run("attention")
    yield from lacks((folder / "results/summary.txt").read_text(), "FAILED attention attn-decode: exit status 70\n    error: cudaMalloc: out of memory")
    yield from ends(done, 1)


@case
def sanitizers_run_case_by_case(folder):
    made = Folder(folder, ["Passes", "Fails"])
    made.write("tools/compute-sanitizer", '#!/bin/sh\nwhile [ "${1#*/bin/}" = "$1" ]; do shift; done\n[ -n "$MINISGL_SMALL_TESTS" ] && exec "$@"\n')
    made.run("memcheck")
    yield from lacks((folder / "results/results.txt").read_text(), "passed memcheck GpuTablesTest.Passes", "failed memcheck GpuTablesTest.Fails")
    (folder / "tools/compute-sanitizer").unlink()
    done, _ = made.run("racecheck")
    yield from lacks(done.stdout, "skipped racecheck racecheck: no compute-sanitizer is here")


@case
def carry_packs_what_is_needed(folder):
    build = folder / "build"
    for name in ("tests/gpu/test_gpu", "src/cli/minisgl"):
        (build / name).parent.mkdir(parents=True)
        shutil.copy(shutil.which("true"), build / name)
    (folder / "small.json").write_text("{}")
    carry = ["sh", str(SOURCE_ROOT / "tests/gpu/carry.sh"), str(build), str(folder / "out"), str(folder / "small.json")]
    done = subprocess.run(carry, capture_output=True, text=True)
    if done.returncode != 0:
        yield f"ends with {done.returncode}: {done.stderr}"
    for name in ("run_gpu.sh", "bin/test_gpu", "bin/minisgl", "models/wren/config.json", "golden/gemma2/config.json", "shapes/small.json", "lib"):
        if not (folder / "out" / name).exists():
            yield f"lacks {name}"
    yield from (f"has {path}" for path in (folder / "out").rglob("*") if path.name.startswith("libc.") or "golden" in str(path) and path.suffix == ".safetensors")
    (build / "tests/gpu/test_gpu").unlink()
    if subprocess.run(carry, capture_output=True).returncode != 66:
        yield "packs a build without the suite"


@case
def the_suite_on_the_emulator(folder):
    made = Folder(folder, [], suite=EMULATED)
    done, _ = made.run("contact")
    yield from lacks(done.stdout, "passed contact GpuTablesTest.PlanWritesAreAppliedInOrder", "3 passed, 0 failed")
    # The whole list; of its cases, those that take no time.
    made.run("kernels", PART_SECONDS="0")
    left_out = (folder / "results/results.txt").read_text().count("left-out kernels Gpu")
    engine = (folder / "results/results.txt").read_text().count("GpuEngineTest")
    if left_out < 20 or engine:
        yield f"lists {left_out} cases, {engine} of them of engines"


def run_case(test):
    """Its faults, and the results that the script recorded."""
    with tempfile.TemporaryDirectory() as folder:
        faults = list(test(Path(folder)))
        results = Path(folder) / "results/results.txt"
        return faults, results.read_text() if faults and results.exists() else ""


def main():
    os.environ.pop("MINISGL_CUDA_DEBUG", None)
    print(f"1..{len(cases)}")
    all_pass = True
    # They mostly wait for time limits to run out.
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        running = [(name, None if test is the_suite_on_the_emulator and EMULATED is None else pool.submit(run_case, test))
                   for name, test in cases]
        for number, (name, future) in enumerate(running, 1):
            if future is None:
                print(f"ok {number} - {name} # SKIP no emulated suite was given")
                continue
            faults, seen = future.result()
            all_pass &= not faults
            for line in [*faults, *seen.splitlines()]:
                print(f"# {line}")
            print(f"{'not ' if faults else ''}ok {number} - {name}", flush=True)
    sys.exit(not all_pass)


if __name__ == "__main__":
    main()
