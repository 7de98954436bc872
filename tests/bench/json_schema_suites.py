#!/usr/bin/env python3
"""Judges public JSON schema data with `minisgl grammar`, beside llguidance's recorded verdicts.

    json_schema_suites.py MINISGL --maskbench FOLDER [--expected expected_maskbench.json]
    json_schema_suites.py MINISGL --suite FOLDER [--expected expected_json_schema_test_suite.json]

The data are read and not kept in this tree:
    maskbench/data of https://github.com/guidance-ai/jsonschemabench
    tests of https://github.com/json-schema-org/JSON-Schema-Test-Suite (the required tests)
    json_stats/ and json_schema_test_suite/ of https://github.com/guidance-ai/llguidance (--expected)

A file (of the suite: a group of tests, one schema) passes if its schema compiles and every text is
judged rightly; one that is refused because nothing can match, and has no valid text, is counted
apart. Prints files that pass, are refused, lose valid texts, or accept invalid ones (there
should be none), and the most frequent reasons of refusals. --list FILE writes one line for each
file that does not pass. Exit status 1 if an invalid text is accepted.
"""
import argparse
import collections
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SUITE_DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}


def spell(value):
    return json.dumps(value, ensure_ascii=False)


def read_maskbench(folder):
    for path in sorted(folder.glob("*.json")):
        case = json.loads(path.read_text())
        yield path.name, case["schema"], [(test["data"], test["valid"]) for test in case["tests"]]


def read_suite(folder):
    for draft, uri in SUITE_DRAFTS.items():
        for path in sorted((folder / draft).glob("*.json")):
            for group in json.loads(path.read_text()):
                schema = group["schema"]
                if isinstance(schema, dict) and "$schema" not in schema:
                    schema = {"$schema": uri, **schema}
                yield (f"{draft}/{path.stem}/{group['description']}", schema,
                       [(test["data"], test["valid"]) for test in group["tests"]])


def judge(program, cases):
    """The answer of `minisgl grammar` for each case."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as rows:
        for name, schema, tests in cases:
            rows.write(spell({"id": name, "json_schema": schema,
                              "texts": [spell(data) for data, _ in tests]}) + "\n")
        rows.flush()
        result = subprocess.run([program, "grammar", "--file", rows.name], capture_output=True,
                                text=True, check=False)
    if result.returncode not in (0, 1):
        sys.exit(f"{program} failed with {result.returncode}: {result.stderr[-500:]}")
    return [json.loads(line) for line in result.stdout.splitlines()]


def llguidance_maskbench(path):
    verdicts = json.loads(path.read_text())
    kinds = collections.Counter()
    for verdict in verdicts.values():
        if "json_error" in verdict:
            kinds["refused"] += 1
        elif "validation_error" in verdict:
            kinds["wrong"] += 1
        else:
            kinds["passed"] += 1
    return verdicts, f"llguidance: {dict(kinds)}"


def llguidance_suite(path):
    kinds = collections.Counter()
    for draft in json.loads(path.read_text()).values():
        for file in draft.values():
            for group in file.values():
                kinds.update(group.values())
    return {}, f"llguidance, texts: {dict(kinds)}"


def reason_of(answer):
    message = answer["error"]["message"]
    message = re.sub(r"^#\S*: ", "", message)
    return re.sub(r'"[^"]{25,}"|\d+', "*", message)[:80]


def report(cases, answers, verdicts, listing):
    files, texts, reasons = collections.Counter(), collections.Counter(), collections.Counter()
    peer_lost = collections.Counter()
    compile_us = []
    for (name, _, tests), answer in zip(cases, answers, strict=True):
        valid = sum(good for _, good in tests)
        texts["valid"] += valid
        texts["invalid"] += len(tests) - valid
        verdict = verdicts.get(name, {})
        if "json_error" in verdict:
            peer_lost["refused"] += valid
        elif "validation_error" in verdict:
            peer_lost["rejected, at least"] += 1
        if not answer["compiled"] and not valid and "no text matches" in answer["error"]["message"]:
            files["rightly without any text"] += 1
            continue
        if not answer["compiled"]:
            files["refused"] += 1
            texts["valid in refused files"] += valid
            reasons[reason_of(answer)] += 1
            listing.append(f"refused {name}: {answer['error']['message']}")
            continue
        compile_us.append(answer["compile_us"])
        lost = [i for i, (_, good) in enumerate(tests) if good and not answer["accepted"][i]]
        wrong = [i for i, (_, good) in enumerate(tests) if not good and answer["accepted"][i]]
        texts["valid rejected"] += len(lost)
        texts["INVALID ACCEPTED"] += len(wrong)
        kind = "accepts invalid" if wrong else "loses valid" if lost else "passed"
        files[kind] += 1
        if wrong or lost:
            listing.append(f"{kind} {name}: texts {wrong or lost}")
    total = sum(files.values())
    print(f"files: {total}", *(f"{kind} {n} ({100 * n / total:.2f} %)" for kind, n in files.items()),
          sep=", ")
    print("texts:", dict(texts))
    if peer_lost:
        print("llguidance, valid texts lost:", dict(peer_lost))
    compile_us.sort()
    if compile_us:
        print(f"compile: median {compile_us[len(compile_us) // 2]} us, 99th percentile "
              f"{compile_us[len(compile_us) * 99 // 100]} us, at most {compile_us[-1]} us")
    for reason, count in reasons.most_common(25):
        print(f"  refused {count:4}: {reason}")
    return texts["INVALID ACCEPTED"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--maskbench", type=Path)
    parser.add_argument("--suite", type=Path)
    parser.add_argument("--expected", type=Path)
    parser.add_argument("--list", type=Path)
    parser.add_argument("--every", type=int, default=1, help="only every Nth file")
    options = parser.parse_args()
    read = read_maskbench(options.maskbench) if options.maskbench else read_suite(options.suite)
    cases = list(read)[::options.every]
    verdicts = {}
    if options.expected:
        peer = llguidance_maskbench if options.maskbench else llguidance_suite
        verdicts, summary = peer(options.expected)
        print(summary)
    listing = []
    bad = report(cases, judge(options.program, cases), verdicts, listing)
    if options.list:
        options.list.write_text("".join(line + "\n" for line in listing))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
