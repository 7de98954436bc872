"""Counts test cases over meson's JUnit files: the last line is `N passed, M failed, K skipped`.

    python3 tests/count_results.py [--budget] BUILD_FAILURES FILE.xml ...

FILE.status beside FILE.xml holds the exit status of `meson test`: if it is not 0 and no case failed, that counts as a failure.
FILE.json, if there is one, is the log of `meson test`: each test in it that ran out of time or was interrupted counts as a failure
(FILE.xml has it as one that passed, or not at all). BUILD_FAILURES is the number of builds that failed before their tests; each counts as a failure.
Exits 1 if anything failed or nothing passed. Prints the twenty cases that took the most processor time, the skipped cases with
the last line of their reason, and at the end, where a reader of a cut log finds them, the cases that failed with the first
lines of their messages. With --budget a case of more than two seconds fails, unless it is marked (tests/slow.h).
"""
import collections
import json
import os
import sys
import xml.etree.ElementTree as ElementTree

BUDGET_MS = 2000
SLOWEST_SHOWN = 20
MESSAGE_LINES, MESSAGE_COLUMNS = 30, 400  # of a failure's message that are shown


def unfinished(path):
    """The tests of a log of `meson test` that it ended: its name of each, and the name of the case that stands for it."""
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as lines:
        tests = [json.loads(line) for line in lines]
    return {test["name"].split(" / ")[-1]: test["name"] for test in tests if test["result"] in ("TIMEOUT", "INTERRUPT")}


def cases_of(path):
    """Yields (suite, case) of a JUnit file."""
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        yield from ((suite, case) for case in suite.findall("testcase"))


def message_of(case, suite):
    """The first lines of a failed case's message, indented. A TAP program prints it as comments before the case's result."""
    texts = [fault.text or fault.get("message") or "" for fault in case.findall("failure") + case.findall("error")]
    lines = [line for text in texts for line in text.strip().splitlines()]
    if not lines:
        for line in (suite.findtext("system-out") or "").splitlines():
            if line.startswith("not ok") and line.endswith(case.get("name").split(" - ", 1)[-1]):
                break
            lines = [*lines, line] if line.startswith("#") else []
    return "".join(f"\n    {line[:MESSAGE_COLUMNS]}" for line in lines[:MESSAGE_LINES])


arguments = sys.argv[1:]
has_budget = "--budget" in arguments
if has_budget:
    arguments.remove("--budget")
failed = int(arguments[0])
passed = 0
failures = []  # a text for each
skipped = collections.defaultdict(collections.Counter)  # the names of each reason's cases
times = []  # (milliseconds of processor time, name, reason for being slow or "")
for path in filter(os.path.exists, arguments[1:]):
    failed_before = failed
    build = os.path.basename(path)[:-len(".xml")]
    cut = unfinished(path[:-len(".xml")] + ".json")
    failed += len(cut)
    for name in cut.values():
        failures.append(f"{name} of {build} ran out of time")
    for suite, case in cases_of(path):
        name = f"{case.get('classname') or ''}.{case.get('name')}".strip(".")
        properties = {p.get("name"): p.get("value") for p in case.iter("property")}
        milliseconds, slow = int(properties.get("processor_ms", 0)), properties.get("slow", "")
        times.append((milliseconds, f"{name} ({build})", slow))
        skip = case.find("skipped")
        if case.get("name") in cut and case.find("failure") is None:
            continue
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
            failures.append(f"{name} ({build}){message_of(case, suite)}")
        elif has_budget and milliseconds > BUDGET_MS and not slow:
            failed += 1
            failures.append(f"{name} ({build}) took {milliseconds} ms of processor time and is not marked slow")
        elif skip is not None or case.get("result") == "skipped":
            reason = "" if skip is None else skip.get("message") or skip.text or ""
            skipped["".join(reason.strip().splitlines()[-1:])][name] += 1
        else:
            passed += 1
    with open(path[:-len(".xml")] + ".status", encoding="utf-8") as status:
        if failed == failed_before and status.read().strip() != "0":
            failed += 1
            failures.append(f"a test of {build} crashed or ran out of time; its log is above")
print(f"The slowest of {len(times)} cases, {sum(time[0] for time in times) / 1000:.0f} s of processor time in all:")
for milliseconds, name, slow in sorted(times, reverse=True)[:SLOWEST_SHOWN]:
    print(f"{milliseconds / 1000:7.1f} s  {name}{': ' + slow if slow else ''}")
for reason, names in sorted(skipped.items()):
    print(f"skipped: {reason}" if reason else "skipped:")
    for name, count in sorted(names.items()):
        print(f"    {name}" + (f" ({count} times)" if count > 1 else ""))
for failure in failures:
    print(f"failed: {failure}")
print(f"{passed} passed, {failed} failed, {sum(names.total() for names in skipped.values())} skipped", flush=True)
sys.exit(1 if failed or not passed else 0)
