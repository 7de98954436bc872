"""Rewrites jinja_cases.jsonl: each `source` in it as rendered by the transformers library.

    TZ=UTC python3 make_jinja_cases.py jinja_cases.jsonl            # run by hand; needs transformers 5 and jinja2
    TZ=UTC python3 make_jinja_cases.py jinja_cases.jsonl new.txt    # first adds new.txt, sources between lines of ----

A row has `source` and `messages` (left out: MESSAGES below), and either `expected` or `error`.
"""
import datetime
import json
import sys

from transformers.utils import chat_template_utils

NOW = 1753000000  # what strftime_now reads, in the test too
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi <b>\n\"x\"  "},
    {"role": "assistant", "content": "Yo é中", "n": 3, "f": 1.5, "t": [1, 2, {"k": None, "b": True}]},
]


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, tz)


def main(path, added=None):
    chat_template_utils.datetime = Clock
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    if added is not None:
        with open(added, encoding="utf-8") as file:
            rows += [{"source": source} for source in file.read().rstrip("\n").split("\n----\n")]
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            out = {key: row[key] for key in ("source", "messages") if key in row and row[key] != MESSAGES}
            try:
                rendered, _ = chat_template_utils.render_jinja_template(
                    conversations=[row.get("messages", MESSAGES)], chat_template=row["source"], bos_token="<s>",
                    add_generation_prompt=True)
                out["expected"] = rendered[0]
            except Exception as error:
                out["error"] = f"{type(error).__name__}: {error}"
            file.write(json.dumps(out, ensure_ascii=False) + "\n")


main(*sys.argv[1:])
