#!/usr/bin/env python3
"""Compares `minisgl grammar` with the jsonschema package over random schemas (2020-12) and values.

    json_schema_random.py MINISGL [--seed N] [--schemas N]

No value that the package calls invalid may be accepted. A valid one may be rejected for the order
of its members alone: a valid value of at most one member in each object must be accepted, and so
must a schema with a valid value compile, unless a message says what is not supported. Exit status
1 if that does not hold.
"""
import argparse
import collections
import json
import random
import subprocess
import sys
import tempfile

import jsonschema

NAMES = ["a", "b", "c", "ab"]
KEYWORDS = """type type enum const properties properties required additionalProperties
patternProperties propertyNames minProperties maxProperties dependentRequired dependentSchemas
unevaluatedProperties items prefixItems contains minContains maxContains minItems maxItems
unevaluatedItems minimum maximum exclusiveMinimum multipleOf minLength maxLength pattern not anyOf
oneOf allOf if $ref""".split()
TYPES = ["integer", "number", "string", "object", "array", "null", "boolean",
         ["integer", "string"], ["object", "null"], ["array", "object"]]


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def value(self, depth=2):
        pick = self.random.choice
        kind = self.random.randrange(10 if depth > 0 else 7)
        if kind == 0:
            return None
        if kind == 1:
            return pick([True, False])
        if kind in (2, 3):
            return pick([0, 1, 2, 3, 5, 7, -1, 1.5, 2.0, 10, 0.5])
        if kind in (4, 5, 6):
            # No newline: Python's `$` matches before one, ECMA-262's does not.
            return pick(["", "a", "b", "ab", "abc", "x1", "é", "\t"])
        if kind in (7, 8):
            return {name: self.value(depth - 1) for name in NAMES if self.random.random() < .4}
        return [self.value(depth - 1) for _ in range(self.random.randrange(4))]

    def schema(self, depth=3):
        if depth <= 0 or self.random.random() < .06:
            return self.random.choice([True, False, {}, {"type": "integer"}, {"const": 1}])
        schema = {}
        for _ in range(self.random.choice([1, 1, 2, 2, 3])):
            self.add(self.random.choice(KEYWORDS), schema, depth - 1)
        return schema

    def add(self, keyword, schema, depth):
        pick, count = self.random.choice, self.random.randrange
        if keyword == "type":
            schema[keyword] = pick(TYPES)
        elif keyword == "enum":
            schema[keyword] = [self.value(1) for _ in range(count(1, 4))]
        elif keyword == "const":
            schema[keyword] = self.value(1)
        elif keyword in ("properties", "dependentSchemas"):
            schema[keyword] = {name: self.schema(depth) for name in NAMES if pick([0, 1])}
        elif keyword == "required":
            schema[keyword] = [name for name in NAMES if self.random.random() < .4]
        elif keyword == "dependentRequired":
            schema[keyword] = {pick(NAMES): [pick(NAMES)]}
        elif keyword == "patternProperties":
            schema[keyword] = {pick(["^a", "b$", "c", "."]): self.schema(depth)}
        elif keyword == "propertyNames":
            schema[keyword] = pick([{"maxLength": 1}, {"pattern": "a"}, {"not": {"const": "a"}}])
        elif keyword in ("prefixItems", "anyOf", "oneOf", "allOf"):
            schema[keyword] = [self.schema(depth) for _ in range(count(1, 4))]
        elif keyword in ("minContains", "maxContains"):
            schema[keyword] = count(3)
            schema.setdefault("contains", self.schema(depth))
        elif keyword.startswith(("min", "max")) and keyword[3] in "ILP":
            schema[keyword] = count(4)
        elif keyword in ("minimum", "maximum", "exclusiveMinimum"):
            schema[keyword] = pick([0, 1, 2, 1.5, -1, 5])
        elif keyword == "multipleOf":
            schema[keyword] = pick([1, 2, 3, 0.5])
        elif keyword == "pattern":
            schema[keyword] = pick(["^a", "b", "^x\\d$", ".", "^$", "^(?!a)"])
        elif keyword == "$ref":
            schema[keyword] = "#/$defs/" + pick("pq")
        else:
            schema[keyword] = self.schema(depth)
            if keyword == "if":
                schema["then"], schema["else"] = self.schema(depth), self.schema(depth)


def make_cases(maker, count):
    cases = []
    while len(cases) < count:
        schema = maker.schema()
        if not isinstance(schema, dict):
            continue
        schema["$defs"] = {"p": maker.schema(2), "q": maker.schema(1)}
        values = [maker.value(3) for _ in range(30)]
        try:
            validator = jsonschema.Draft202012Validator(schema)
            cases.append((schema, values, [validator.is_valid(value) for value in values]))
        except RecursionError:
            pass  # defined by itself
    return cases


def has_order(value):
    if isinstance(value, dict):
        return len(value) > 1 or any(map(has_order, value.values()))
    return isinstance(value, list) and any(map(has_order, value))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--schemas", type=int, default=2000)
    options = parser.parse_args()
    cases = make_cases(Maker(options.seed), options.schemas)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as rows:
        for number, (schema, values, _) in enumerate(cases):
            texts = [json.dumps(value, ensure_ascii=False) for value in values]
            row = {"id": number, "json_schema": schema, "texts": texts}
            rows.write(json.dumps(row, ensure_ascii=False) + "\n")
        rows.flush()
        result = subprocess.run([options.program, "grammar", "--file", rows.name], text=True,
                                capture_output=True, check=False)
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(answers) == len(cases), result.stderr
    kinds, refusals = collections.Counter(), collections.Counter()
    for (schema, values, valid), answer in zip(cases, answers):
        if not answer["compiled"]:
            message = answer["error"]["message"]
            if "no text matches" not in message:
                refusals[message.split(": ")[-1]] += 1
            elif any(valid):
                kinds["FAULT: refused as impossible"] += 1
                print("impossible?", json.dumps(schema))
            continue
        for value, good, accepted in zip(values, valid, answer["accepted"]):
            kind = f"{'valid' if good else 'invalid'}, {'accepted' if accepted else 'rejected'}"
            if accepted and not good or good and not accepted and not has_order(value):
                kind = "FAULT: " + kind
                print(kind, json.dumps(schema), json.dumps(value))
            kinds[kind] += 1
    print(dict(kinds), dict(refusals))
    sys.exit(any(kind.startswith("FAULT") for kind in kinds))


if __name__ == "__main__":
    main()
