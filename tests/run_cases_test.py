"""Tests run_cases.py and count_results.py with a program whose cases end the process, as TAP.

    python3 tests/run_cases_test.py DYING_CASES_PROGRAM
"""
import os
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

HERE, PROGRAM = Path(__file__).parent, sys.argv[1]
PASS = ["DyingTest.FirstPasses", "DyingTest.SecondPasses", "DyingTest.ChecksEndDeathTests",
        "Values/DyingValuesTest.MayDie/0", "Values/DyingValuesTest.MayDie/2"]
FAIL = {"DyingTest.Aborts": "signal SIGABRT", "DyingTest.Fails": "", "DyingTest.FailsACheck": "failed check: a check of the case",
        "DyingTest.CatchesAFailedCheck": "failed check: a caught check", "DyingTest.FailsACheckOnAnotherThread": "a check of a thread",
        "DyingTest.Exits": "exit status 0", "DyingTest.ThrowsBesideAThread": "signal SIGABRT",
        "DyingSuiteTest.outside_of_its_cases": "signal SIGSEGV", "Values/DyingValuesTest.MayDie/1": "signal SIGKILL"}
SKIP = ["DyingTest.Skips", "HangingTest.WaitsForever", "LastTest.ItsProcessFailsAtTheEnd"]


def run(folder, *arguments, **environment):
    """The process and the results by case: "passed", "skipped", or the words of the failure."""
    path = folder / "results.xml"
    command = [sys.executable, HERE / "run_cases.py", PROGRAM, f"--gtest_output=xml:{path}", *arguments]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done, results(path)


def results(path):
    found = {}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        assert name not in found, f"{name} is there twice"
        failures = [f"{failure.get('message')}{failure.text}" for failure in case.findall("failure")]
        is_skipped = case.find("skipped") is not None
        found[name] = "\n".join(failures) if failures else "skipped" if is_skipped else "passed"
    return found


def every_other_case_runs(folder):
    done, found = run(folder)
    assert done.returncode == 1, done
    assert set(found) == set(PASS) | set(FAIL) | set(SKIP), sorted(found)
    assert all(found[name] == "passed" for name in PASS), found
    assert all(found[name] == "skipped" for name in SKIP), found
    for name, words in FAIL.items():
        assert found[name] not in ("passed", "skipped") and words in found[name], (name, found[name])


def each_is_counted(folder):
    done, _ = run(folder)
    (folder / "results.status").write_text(f"{done.returncode}\n")
    counted = subprocess.run([sys.executable, HERE / "count_results.py", "0", folder / "results.xml"], capture_output=True, text=True)
    assert counted.stdout.splitlines()[-1] == f"{len(PASS)} passed, {len(FAIL)} failed, {len(SKIP)} skipped", counted.stdout
    assert counted.returncode == 1


def a_filter_is_kept(folder):
    done, found = run(folder, "--gtest_filter=DyingTest.*Passes:DyingTest.Aborts-DyingTest.First*")
    assert done.returncode == 1 and set(found) == {"DyingTest.SecondPasses", "DyingTest.Aborts"}, found
    done, found = run(folder, "--gtest_filter=DyingTest.*Passes")
    assert done.returncode == 0 and set(found.values()) == {"passed"}, found
    done, found = run(folder, "--gtest_filter=DyingTest.Fails")
    assert done.returncode == 1 and len(found) == 1, found


def a_fault_at_the_end_of_the_process_is_a_failure(folder):
    done, found = run(folder, "--gtest_filter=LastTest.*:DyingTest.FirstPasses", MINISGL_FAIL_AT_END="1")
    assert done.returncode == 66, done
    assert found["DyingTest.FirstPasses"] == found["LastTest.ItsProcessFailsAtTheEnd"] == "passed", found
    assert [words for name, words in found.items() if name.endswith(".outside_of_its_cases")][0].find("exit status 66") >= 0, found


def a_case_without_end_is_named(folder):
    path = folder / "results.xml"
    process = subprocess.Popen([sys.executable, HERE / "run_cases.py", PROGRAM, f"--gtest_output=xml:{path}",
                                "--gtest_filter=HangingTest.*:DyingTest.*Passes"], env=os.environ | {"MINISGL_HANG": "1"},
                               stdout=subprocess.PIPE, text=True)
    while "HangingTest.WaitsForever" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate()
    found = results(path)
    assert process.returncode == 1 and found["DyingTest.FirstPasses"] == "passed", found
    assert "no end before the time of its suite was over" in found["HangingTest.WaitsForever"], found


# A suite that meson ended for its time has no results; its log says so.
def a_suite_that_ran_out_of_time_is_counted(folder):
    (folder / "a.xml").write_text('<testsuites><testsuite name="s"><testcase name="passes" classname="s"/>'
                                  '<testcase name="fails" classname="s"><failure/></testcase>'
                                  '<testcase name="late" classname="minisgl"><system-out>x</system-out></testcase></testsuite></testsuites>')
    (folder / "a.status").write_text("2\n")
    (folder / "a.json").write_text('{"name": "minisgl:one / ok", "result": "OK"}\n{"name": "minisgl:slow / late", "result": "TIMEOUT"}\n')
    counted = subprocess.run([sys.executable, HERE / "count_results.py", "0", folder / "a.xml"], capture_output=True, text=True)
    assert counted.stdout.splitlines()[-1] == "1 passed, 2 failed, 0 skipped", counted.stdout
    assert "failed: minisgl:slow / late of a ran out of time" in counted.stdout, counted.stdout


# The log of a run may be cut: the failures are its last lines.
def failures_are_printed_last_with_their_messages(folder):
    (folder / "a.xml").write_text('<testsuites><testsuite name="s"><testcase name="1" classname="s"><skipped/></testcase>'
                                  '<testcase name="2" classname="s"><failure message="Expected: 1&#10;Which is: 2"/></testcase></testsuite>'
                                  '<testsuite name="t"><testcase name="3 - passes" classname="t"/>'
                                  '<testcase name="4 - tidy" classname="t"><failure/></testcase>'
                                  '<system-out># of the first\nok 3 - passes\n# a line is too long\nnot ok 4 - tidy\n# of another</system-out>'
                                  '</testsuite></testsuites>')
    (folder / "a.status").write_text("2\n")
    counted = subprocess.run([sys.executable, HERE / "count_results.py", "0", folder / "a.xml"], capture_output=True, text=True)
    assert counted.stdout.splitlines()[-6:] == ["failed: s.2 (a)", "    Expected: 1", "    Which is: 2", "failed: t.4 - tidy (a)",
                                                "    # a line is too long", "1 passed, 2 failed, 1 skipped"], counted.stdout


CASES = [every_other_case_runs, each_is_counted, a_filter_is_kept, a_fault_at_the_end_of_the_process_is_a_failure,
         a_case_without_end_is_named, a_suite_that_ran_out_of_time_is_counted,
         failures_are_printed_last_with_their_messages]


def main():
    print(f"1..{len(CASES)}")
    for number, case in enumerate(CASES, 1):
        fault = ""
        with tempfile.TemporaryDirectory(prefix="minisgl-test-") as folder:
            try:
                case(Path(folder))
            except AssertionError as failed:
                fault = f"failed {failed}"
        for line in fault.splitlines():
            print(f"# {line}")
        print(f"{'not ok' if fault else 'ok'} {number} - {case.__name__.replace('_', ' ')}", flush=True)


main()
