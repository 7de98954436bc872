"""Counts test cases over meson's JUnit files: the last line is `N passed, M failed, K skipped`.

    python3 tests/count_results.py BUILD_FAILURES FILE.xml ...

Beside FILE.xml stands FILE.status, what `meson test` ended with: not 0 without a failed case (a crash, say) is a failure
too. So is each build that did not come to its tests, and leaves no file. Exits 1 where anything failed, or nothing
passed. A skipped case is told by its name and the last line of its reason.
"""
import collections
import os
import sys
import xml.etree.ElementTree as ElementTree

failed = int(sys.argv[1])
passed = 0
skipped = collections.Counter()
for path in filter(os.path.exists, sys.argv[2:]):
    failed_before = failed
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname') or ''}.{case.get('name')}".strip(".")
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
            print(f"failed: {name} ({path.rsplit('/', 1)[-1]})")
        elif skip is not None or case.get("result") == "skipped":
            reason = "" if skip is None else skip.get("message") or skip.text or ""
            skipped[": ".join([name, *reason.strip().splitlines()[-1:]])] += 1
        else:
            passed += 1
    if failed == failed_before and open(path[:-4] + ".status", encoding="utf-8").read().strip() != "0":
        failed += 1
        print(f"failed: a test of {path.rsplit('/', 1)[-1]} crashed or ran out of time; its log is above")
for name, count in sorted(skipped.items()):
    print(f"skipped: {name}")
print(f"{passed} passed, {failed} failed, {sum(skipped.values())} skipped", flush=True)
sys.exit(1 if failed or not passed else 0)
