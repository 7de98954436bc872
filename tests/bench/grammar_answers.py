#!/usr/bin/env python3
"""Asks a model for answers under 20 JSON schemas, and checks each with the jsonschema package.

    grammar_answers.py MINISGL MODEL [--rows N] [--temperature T]

Every answer that is not cut must be valid; a cut one must say so. All settings, drafts among them,
must give the same rows. Exit status 1 if that does not hold.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import jsonschema

TEXT = {"type": "string", "maxLength": 12}
SMALL = {"type": "integer", "minimum": 0, "maximum": 99}


def record(properties, required=None, **more):
    return {"type": "object", "properties": properties, "additionalProperties": False,
            "required": list(properties) if required is None else required, **more}


SCHEMAS = [
    record({"name": TEXT, "age": SMALL}),
    record({"name": TEXT, "age": SMALL, "city": TEXT}, ["name"]),
    record({"label": {"enum": ["positive", "negative", "neutral"]}}),
    record({"label": {"enum": ["spam", "no spam"]}, "score": {"type": "number", "minimum": 0, "maximum": 1}}),
    record({"items": {"type": "array", "items": SMALL, "minItems": 1, "maxItems": 4}}),
    record({"tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "uniqueItems": True}}),
    record({"when": {"type": "string", "format": "date"}, "what": TEXT}),
    record({"id": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"}}),
    record({"a": record({"b": record({"c": SMALL})})}),
    {"type": "array", "items": record({"x": SMALL, "y": SMALL}), "minItems": 1, "maxItems": 3},
    {"anyOf": [record({"cat": TEXT}), record({"dog": SMALL})]},
    {"oneOf": [record({"kind": {"const": "circle"}, "r": SMALL}), record({"kind": {"const": "square"}, "a": SMALL})]},
    {"type": ["integer", "null"], "multipleOf": 7, "minimum": -700, "maximum": 700},
    {"enum": ["yes", "no", 1, None, [1, 2], {"deep": True}]},
    record({"a": {"type": "boolean"}, "b": {"type": "null"}}),
    {"type": "object", "properties": {"a": SMALL}, "required": ["a"], "maxProperties": 2,
     "additionalProperties": {"type": "boolean"}},
    {"$defs": {"node": record({"value": SMALL, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}})},
     "$ref": "#/$defs/node"},
    {"type": "array", "prefixItems": [TEXT, SMALL], "items": False, "minItems": 2},
    {"type": "string", "minLength": 3, "maxLength": 8, "not": {"const": "none"}},
    record({"price": {"type": "number", "exclusiveMinimum": 0, "maximum": 10}, "unit": {"enum": ["kg", "g"]}}),
]

SETTINGS = [
    [], ["--disable-overlap"], ["--schedule", "prefill-first"], ["--cache", "naive"],
    ["--max-running-requests", "3"], ["--max-prefill-length", "32"], ["--page-size", "1"],
    ["--speculate", "ngram:4"], ["--speculate", "ngram:8", "--max-running-requests", "8"],
    ["--num-pages", "40", "--admission", "optimistic"], ["--threads", "1"],
]


def run(args, rows, setting, folder):
    out = folder / "answers.jsonl"
    done = subprocess.run([args.minisgl, "run", "-m", args.model, "--device", "cpu", "--file", str(rows), "-o", str(out),
                           "--force", "--quiet", "--temperature", str(args.temperature), "--max-tokens", "200", *setting],
                          capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{setting}: exit status {done.returncode}\n{done.stderr}")
    answers = [json.loads(line) for line in out.read_text().splitlines()]
    for answer in answers:
        answer["usage"].pop("cached_tokens", None)
    return sorted(answers, key=lambda answer: answer["index"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("minisgl")
    parser.add_argument("model")
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--temperature", type=float, default=1.5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = folder / "rows.jsonl"
        with rows.open("w") as file:
            for i in range(args.rows):
                schema = SCHEMAS[i % len(SCHEMAS)]
                form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema, "strict": True}}
                file.write(json.dumps({"prompt": f"Tell me about number {i // 20}.", "response_format": form}) + "\n")
        first, bad = None, 0
        for setting in SETTINGS:
            answers = run(args, rows, setting, folder)
            if first is not None:
                differing = sum(a != b for a, b in zip(first, answers)) + abs(len(first) - len(answers))
                print(f"{' '.join(setting)}: {differing} rows differ")
                bad += differing
                continue
            first = answers
            cut = errors = invalid = 0
            for answer in answers:
                if "error" in answer:
                    errors += 1
                    print(answer["error"])
                    continue
                is_cut = any("grammar" in warning for warning in answer.get("warnings", []))
                cut += is_cut
                try:
                    schema = SCHEMAS[answer["index"] % len(SCHEMAS)]
                    jsonschema.validate(json.loads(answer["text"]), schema,
                                        format_checker=jsonschema.FormatChecker())
                    valid = True
                except (ValueError, jsonschema.ValidationError) as error:
                    valid = False
                    if not is_cut:
                        print(f"row {answer['index']}: {answer['text']!r}: {error}")
                invalid += not valid and not is_cut
            print(f"{len(answers)} rows, {cut} cut, {errors} errors, {invalid} invalid and not cut")
            bad += errors + invalid
    return 1 if bad else 0


sys.exit(main())
