"""Writes which texts patterns with assertions match in Python's re: pattern_cases.jsonl, read by pattern_cases_test.cc.

    python3 tests/grammar/make_pattern_cases.py

Needs the package pydantic 2.12, whose schemas of decimal numbers are among the patterns. `$` of ECMA-262, the end of
the text alone, is Python's \\Z. Texts are examples, changed at random, and random texts of their characters.
"""
import json
import random
import re
from decimal import Decimal
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

OUT = Path(__file__).resolve().parent / "pattern_cases.jsonl"
TEXTS = 48

DECIMALS = [
    Decimal,
    Annotated[Decimal, Field(max_digits=10)],
    Annotated[Decimal, Field(decimal_places=2)],
    Annotated[Decimal, Field(max_digits=10, decimal_places=2)],
    Annotated[Decimal, Field(max_digits=6, decimal_places=3, ge=0, le=100)],
    Annotated[Decimal, Field(max_digits=5, decimal_places=0)],
    Annotated[Decimal, Field(max_digits=5, decimal_places=5)],
]
NUMBERS = ["1.5", "-.5", "007", "-", "", "1e5", "12345678901", "00123.4500", "+1.", ".", "1.555", "99999.00000"]

# Patterns with texts about them. The first group stands in published schemas and validators.
CASES = [
    (r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$",
     ["a.b@c.de", ".a@b.cd", "a..b@c.de", "a.@b.cd", "x@y-z.a.org", "x@-y.org"]),
    (r"^(?=.{1,12}\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\.?$",
     ["a.b", "a-.b", "abc-d.ef.", "abcdefghijkl", "abcdefghijklm", "a..b"]),
    (r"^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$",
     ["P3W", "P1Y2M", "PT", "PT5M", "P1DT2.5S", "P", "P1W2D", "P1DT"]),
    (r"^P(?!$)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+S)?)?$", ["P", "P1Y", "PT1H", "PT", "P1D"]),
    (r"^(?:(?!-)[A-Za-z0-9-]{1,6}(?<!-)\.)+[A-Za-z]{2,4}$", ["a.bc", "a-b.cd.ef", "-a.bc", "a-.bc", "abcdefg.hi"]),
    (r"^(?!xn--)(?!.*-s3alias$)(?!.*\.\.)[a-z0-9][a-z0-9.-]{1,14}[a-z0-9]$",
     ["my-bucket", "xn--a", "ab-s3alias", "a..b", "a.b.c", "ab"]),
    (r"^(?!.*--)[a-z](?:[a-z0-9-]*[a-z0-9])?$", ["a", "a-b", "a--b", "a-", "-a", "a1-2b"]),
    (r"^(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[A-Za-z\d]{4,8}$", ["aB3x", "aB3", "abc1", "ABC1a", "aaaaB1", "aB3xxxxxx"]),
    (r"^(?!000|666)[0-8]\d{2}-(?!00)\d{2}-(?!0000)\d{4}$", ["123-45-6789", "000-12-3456", "123-00-4567", "666-11-1111"]),
    (r"^(?!(?:CON|PRN|AUX)(?:\.|$))[^<>:\"/\\|?*]+(?<![ .])$", ["CON", "CON.txt", "CONS", "a.", "a b", "PRN.x", "a "]),
    (r"^(?!/|.*(?:[/.]\.|//|@\{))[^ ~^:?*\[]+(?<!\.lock)(?<![/.])$",
     ["a/b", "/a", "a..b", "a.lock", "a/", "a.b", "a@{b", "x.lockx"]),
    (r"^((?!no).)*$", ["", "yes", "no", "a no b", "n", "on", "nnoo"]),
    (r"^(?:(?!-->).)*-->$", ["-->", "a-->", "a-->-->", "--->", "a->", "a--"]),
    (r"^<!--(?:(?!--).)*-->$", ["<!---->", "<!--a-->", "<!--a--b-->", "<!--a--->"]),
    (r"^\"(?:(?!\").)*\"$", ['""', '"a"', '"a"b"', '"'] ),
    (r"^(?:(?!ab)\w|-)+(?=c)c$", ["c", "xc", "abc", "-c", "axbc", "a-bc", "cc"]),
    (r"^(?!\s)(?!.*\s$)(?!.*\s{2}).+$", ["a", " a", "a ", "a b", "a  b"]),
    (r"\bcat\b", ["cat", "a cat.", "cats", "concat", "cat_", "the cat sat"]),
    (r"^\b\w+\b(?: \b\w+)*$", ["a", "a b", "ab cd e", "a  b", "a-b", " a"]),
    (r"\Bcat", ["cat", "concat", "a cat", "_cat"]),
    (r"^v?(?=\d)(?:\d+\.){0,2}\d+(?!\.)$", ["v1", "1.2.3", "1.2.3.4", "v", "1."]),
    (r"(?<=\$)\d+(?!\d|\.)", ["$5", "5", "a $12.", "$1.5", "$12 x"]),
    (r"(?<!\d)\d{4}(?!\d)", ["1234", "12345", "a1234b", "123", "1234 12345"]),
    (r"(?:^|(?<=,))x(?=,|$)", ["x", "a,x", "x,a", "ax", "a,x,b", "xa", ",x"]),
    (r"^(?:a(?!b)|b(?!a)|c)*$", ["", "aa", "bb", "acb", "ab", "ba", "cab", "aacbb"]),
    (r"^(?:(?=a)[abc]|(?!a)[bcd]){2,3}$", ["ab", "dd", "abc", "a", "abcd", "da"]),
    (r"^(?!(?!a)b)(?=(?:ab|c)).*$", ["ab", "c", "b", "a", "abx", "cb"]),
    (r"^(?!^[ab]*$)(?!^$).+$", ["a", "ab", "abc", "", "c"]),
    (r"^(?:(?=.{3}$)a+|b(?=b))b*$", ["aaa", "aab", "aa", "bb", "b", "bbb", "aaab"]),
    (r"^a(?=b$)|c(?!d)$|(?!e)[a-e]{2}$", ["ab", "c", "cd", "xc", "ea", "ae", "xde"]),
    (r"^(?:^a|b)+$", ["a", "ab", "abb", "aab", "ba", "b"]),
    (r"(?:^|x)a(?:$|y)", ["a", "xa", "ay", "xay", "ba", "ab", "bxa"]),
    (r"^(?=[^A-Z]*[A-Z])(?=\D*\d)\S{2,}$", ["A1", "a1", "1A", "A", "Aa 1"]),
]


def patterns():
    for kind in DECIMALS:
        for option in TypeAdapter(kind).json_schema()["anyOf"]:
            if "pattern" in option:
                yield option["pattern"], NUMBERS
    yield from CASES


def changed(rng, text, letters):
    at = rng.randrange(len(text) + 1)
    way = rng.randrange(4)
    if way == 0:
        return text[:at] + rng.choice(letters) + text[at:]
    if way == 1:
        return text[:at] + text[at + 1:]
    if way == 2:
        return text[:at] + rng.choice(letters) + text[at + 1:]
    return text[:at] + text[:at][::-1] + text[at:]


def texts_of(rng, examples):
    letters = sorted(set("".join(examples))) + ["é"]
    texts = dict.fromkeys(examples)
    while len(texts) < TEXTS:
        text = rng.choice(examples)
        for _ in range(rng.randrange(1, 4)):
            text = changed(rng, text, letters)
        texts[text[:24]] = None
    return list(texts)


def main():
    rng = random.Random(12)
    with open(OUT, "w", encoding="utf-8") as out:
        for pattern, examples in patterns():
            python = re.compile(re.sub(r"(?<!\\)\$(?![^\[]*\](?<!\\))", r"\\Z", pattern), re.ASCII)
            texts = texts_of(rng, examples)
            matches = "".join("1" if python.search(text) else "0" for text in texts)
            assert "0" in matches and "1" in matches, pattern
            out.write(json.dumps({"pattern": pattern, "texts": texts, "matches": matches}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
