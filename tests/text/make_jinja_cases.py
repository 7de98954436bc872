"""Writes jinja_cases.jsonl anew: what Jinja2 makes of each `source` in it, set up as the transformers library does.

    python3 make_jinja_cases.py jinja_cases.jsonl     # run by hand; needs jinja2; the tests never run it

A row has `source` and `messages`, and either `expected` or `error`. To add a case, append a row with the first two.
"""
import json
import sys

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def main(path):
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            out = {"source": row["source"], "messages": row["messages"]}
            try:
                out["expected"] = env.from_string(row["source"]).render(
                    messages=row["messages"], bos_token="<s>", add_generation_prompt=True, tools=None, documents=None)
            except Exception as error:
                out["error"] = f"{type(error).__name__}: {error}"
            file.write(json.dumps(out, ensure_ascii=False) + "\n")


main(sys.argv[1])
