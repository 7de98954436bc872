"""Compares the masks of bench_grammar_masks with llguidance's and XGrammar's: the same grammars, texts and vocabulary.

    python3 tests/bench/grammar_masks.py BENCH VOCABULARY [MASKBENCH COUNT [REPEATS]]

BENCH is build/tests/bench_grammar_masks. VOCABULARY is a tekken.json (such as the one in the package
mistral-common), a sentencepiece model, or NAME.hex with the bytes of a token a line. MASKBENCH is the folder maskbench/data of
github.com/guidance-ai/jsonschemabench, COUNT the number of its files; without, two made grammars are used. Times are the
thread's processor time: other processes of a busy machine do not count, but for what they take of its caches. So each side runs over all
cases REPEATS times (default 1), in turn, with the vocabulary prepared and each grammar compiled anew, and of each mask the smallest time
counts. Needs the
package llguidance (and sentencepiece for a model of it); XGrammar is measured if xgrammar is installed and schemas are used.
"""
import base64
import importlib.util
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

JSON_GBNF = r'''
root ::= value
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (member ("," ws member)*)? "}"
member ::= string ws ":" ws value ws
array ::= "[" ws (value ws ("," ws value ws)*)? "]"
string ::= "\"" ([^"\\\x00-\x1f\x7f] | "\\" (["\\/bfnrt] | "u" [0-9a-f]{4}))* "\""
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [+-]? [0-9]+)?
ws ::= [ \t\n]{0,8}
'''
PERSON_GBNF = r'''
root ::= "{" ws "\"name\":" ws name "," ws "\"age\":" ws [0-9]{1,3} "," ws "\"city\":" ws name ("," ws "\"tags\":" ws tags)? ws "}"
tags ::= "[" (tag ("," ws tag){0,9})? "]"
tag ::= "\"" ("red" | "green" | "blue" | "ultraviolet") "\""
name ::= "\"" [^"\\\x00-\x1f\x7f]{1,60} "\""
ws ::= " "?
'''

# The same in the notation of llguidance, whose terminals are in capitals.
JSON_LARK = r'''
start: value
value: object | array | STRING | NUMBER | "true" | "false" | "null"
object: "{" WS (member ("," WS member)*)? "}"
member: STRING WS ":" WS value WS
array: "[" WS (value WS ("," WS value WS)*)? "]"
STRING: /"([^"\\\x00-\x1f\x7f]|\\(["\\\/bfnrt]|u[0-9a-f]{4}))*"/
NUMBER: /-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/
WS: /[ \t\n]{0,8}/
'''
PERSON_LARK = r'''
start: "{" WS "\"name\":" WS NAME "," WS "\"age\":" WS AGE "," WS "\"city\":" WS NAME ("," WS "\"tags\":" WS tags)? WS "}"
tags: "[" (TAG ("," WS TAG){0,9})? "]"
TAG: "\"red\"" | "\"green\"" | "\"blue\"" | "\"ultraviolet\""
NAME: /"[^"\\\x00-\x1f\x7f]{1,60}"/
AGE: /[0-9]{1,3}/
WS: / ?/
'''


def vocabulary_of(path):
    if path.suffix == ".hex":
        return [bytes.fromhex(line) for line in path.read_text().splitlines()]
    if path.suffix == ".json":
        data = json.loads(path.read_text())
        size = data["config"]["default_vocab_size"]
        special = data["config"]["default_num_special_tokens"]
        tokens = [b""] * special + [base64.b64decode(entry["token_bytes"]) for entry in data["vocab"]]
        return tokens[:size]
    import sentencepiece
    model = sentencepiece.SentencePieceProcessor(str(path))
    tokens = []
    for i in range(model.vocab_size()):
        piece = model.id_to_piece(i)
        if model.is_byte(i):
            tokens.append(bytes([int(piece[3:5], 16)]))
        else:
            tokens.append(b"" if model.is_control(i) or model.is_unknown(i) else piece.replace("▁", " ").encode())
    return tokens


def made_cases():
    records = [{"id": i, "name": f"Person number {i}", "tags": ["a", "bcd", 1.5e3, True], "nested": {"x": [[i], [2, 3]], "text":
               "A somewhat longer text, with “quotes” and a line\nbreak in it."}} for i in range(12)]
    people = [f'{{"name": "{name}", "age": {age}, "city": "{city}", "tags": ["red", "ultraviolet"]}}' for name, age, city in
              [("Ada Lovelace", 36, "London"), ("Jürgen Müller", 51, "Köln"), ("Li", 7, "São Paulo do Rio Grande")]]
    return [{"name": "JSON", "gbnf": JSON_GBNF, "lark": JSON_LARK, "texts": [json.dumps(r, ensure_ascii=False) for r in records]},
            {"name": "person", "gbnf": PERSON_GBNF, "lark": PERSON_LARK, "texts": people}]


class Cutter:
    def __init__(self, tokens):
        self.ids = {token: i for i, token in reversed(list(enumerate(tokens))) if token}
        self.longest = max(map(len, tokens))

    def __call__(self, text):
        ids, at = [], 0
        while at < len(text):
            for length in range(min(self.longest, len(text) - at), 0, -1):
                if (found := self.ids.get(text[at:at + length])) is not None:
                    ids.append(found)
                    at += length
                    break
            else:
                raise ValueError(f"no token for {text[at:at + 8]}")
        return ids


def run_llguidance(tokens, cases):
    import llguidance

    class Wrapped:
        eos_token_id, bos_token_id, special_token_ids = len(tokens) - 1, None, [i for i, t in enumerate(tokens) if not t]

    cut = Cutter(tokens)
    wrapped = Wrapped()
    wrapped.tokens = [t or f"<special{i}>".encode() for i, t in enumerate(tokens)]
    Wrapped.__call__ = lambda self, text: cut(text if isinstance(text, bytes) else text.encode())
    begin = time.thread_time()
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(wrapped))
    print(f"llguidance: tokenizer in {time.thread_time() - begin:.2f} s", file=sys.stderr)
    results = []
    for case in cases:
        begin = time.thread_time()
        if "lark" in case:
            grammar = llguidance.LLMatcher.grammar_from_lark(case["lark"])
        else:
            grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(case["json_schema"]))
        matcher = llguidance.LLMatcher(tokenizer, grammar)
        compile_us = (time.thread_time() - begin) * 1e6
        if matcher.is_error():
            results.append({"name": case["name"], "compile_us": compile_us, "error": matcher.get_error()})
            continue
        times, allowed, accepted = [], [], True
        words = (len(tokens) + 31) // 32
        import numpy
        mask = numpy.zeros(words, dtype=numpy.uint32)
        for text in case["texts"]:
            matcher.reset()
            for token in cut(text.encode()) + [None]:
                begin = time.thread_time()
                matcher.unsafe_compute_mask_ptr(mask.ctypes.data, words * 4)
                times.append((time.thread_time() - begin) * 1e6)
                allowed.append(int(numpy.unpackbits(mask.view(numpy.uint8)).sum()))
                if token is not None and not matcher.consume_token(token):
                    accepted = False
                    break
            accepted = accepted and matcher.is_accepting()
        results.append({"name": case["name"], "compile_us": compile_us, "accepted": accepted, "mask_us": times, "allowed": allowed})
    return results


def run_xgrammar(tokens, cases, seconds_max=20):
    """Each case in a process of its own: some schemas end it, some take minutes."""
    import numpy
    import xgrammar
    cut = Cutter(tokens)
    info = xgrammar.TokenizerInfo(tokens, stop_token_ids=[len(tokens) - 1])
    results = []
    for case in cases:
        with tempfile.NamedTemporaryFile("r") as file:
            child = os.fork()
            if child == 0:
                signal.alarm(seconds_max)
                Path(file.name).write_text(json.dumps(run_xgrammar_case(xgrammar, numpy, info, cut, case, len(tokens))))
                os._exit(0)
            _, status = os.waitpid(child, 0)
            text = file.read()
        results.append(json.loads(text) if text else {"name": case["name"], "error": f"ended with status {status}"})
    return results


def run_xgrammar_case(xgrammar, numpy, info, cut, case, num_tokens):
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    begin = time.process_time()
    try:
        grammar = compiler.compile_json_schema(json.dumps(case["json_schema"]), strict_mode=False)
    except Exception as error:
        return {"name": case["name"], "error": str(error)}
    compile_us = (time.process_time() - begin) * 1e6
    mask = numpy.zeros((1, (num_tokens + 31) // 32), dtype=numpy.int32)
    times, accepted = [], True
    for text in case["texts"]:
        matcher = xgrammar.GrammarMatcher(grammar)
        for token in cut(text.encode()) + [num_tokens - 1]:
            begin = time.process_time()
            matcher.fill_next_token_bitmask(mask)
            times.append((time.process_time() - begin) * 1e6)
            if not matcher.accept_token(token):
                accepted = False
                break
    return {"name": case["name"], "compile_us": compile_us, "accepted": accepted, "mask_us": times}


def smaller(runs):
    """The smallest times of several runs over the same cases."""
    results = [dict(result) for result in runs[0]]
    for i, result in enumerate(results):
        result["compile_us"] = min(run[i].get("compile_us", 0) for run in runs)
        if "mask_us" in result:
            result["mask_us"] = [min(times) for times in zip(*(run[i]["mask_us"] for run in runs))]
    return results


def run_minisgl(bench, tokens, cases):
    with tempfile.TemporaryDirectory() as folder:
        words, rows = Path(folder) / "vocabulary", Path(folder) / "cases"
        words.write_text("".join(token.hex() + "\n" for token in tokens))
        rows.write_text("".join(json.dumps(case) + "\n" for case in cases))
        answer = subprocess.run([bench, words, rows], stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in answer.stdout.splitlines()]


def describe(times):
    times = sorted(times)
    p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
    return f"mean {statistics.mean(times):7.1f}  p50 {times[len(times) // 2]:7.1f}  p99 {p99:8.1f}  max {times[-1]:8.1f} us"


def cases_of_maskbench(folder, count):
    """Schemas with valid texts among `count` files, always the same."""
    random.seed(7)
    cases = []
    for path in random.sample(sorted(Path(folder).glob("*.json")), count):
        data = json.loads(path.read_text())
        texts = [json.dumps(test["data"], ensure_ascii=False) for test in data.get("tests", []) if test["valid"]]
        if texts:
            cases.append({"name": path.stem, "json_schema": data["schema"], "texts": texts})
    return cases


def print_case(results):
    for who, result in results.items():
        if "error" in result:
            print(f"{result['name']:10} {who:10} {result['error'][:200]}")
        else:
            print(f"{result['name']:10} {who:10} compile {result['compile_us']:7.0f} us  {describe(result['mask_us'])}  "
                  f"{len(result['mask_us'])} masks, accepted {result['accepted']}")


def print_all(runs):
    num_cases = len(runs["minisgl"])
    common = [i for i in range(num_cases) if all(run[i].get("accepted") for run in runs.values())]
    print(f"{num_cases} cases, {len(common)} accepted by all; refused, failed or without a valid text: ",
          ", ".join(f"{who} {sum(not result.get('accepted') for result in run)}" for who, run in runs.items()))
    for who, run in runs.items():
        masks = [us for i in common for us in run[i]["mask_us"]]
        compiles = sorted(run[i]["compile_us"] for i in common)
        print(f"{who:10} {len(masks)} masks: {describe(masks)}; compile median {compiles[len(compiles) // 2]:.0f} "
              f"p99 {compiles[int(len(compiles) * 0.99)]:.0f} us")


def main():
    bench, vocabulary = Path(sys.argv[1]), Path(sys.argv[2])
    cases = cases_of_maskbench(sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 4 else made_cases()
    tokens = vocabulary_of(vocabulary) + [b""]
    repeats = int(sys.argv[5]) if len(sys.argv) > 5 else 1
    runs = {"minisgl": [], "llguidance": []}
    for _ in range(repeats):
        runs["minisgl"].append(run_minisgl(bench, tokens, cases))
        runs["llguidance"].append(run_llguidance(tokens, cases))
    runs = {who: smaller(of_one) for who, of_one in runs.items()}
    if "json_schema" in cases[0] and importlib.util.find_spec("xgrammar"):
        runs["XGrammar"] = run_xgrammar(tokens, cases)
    print(f"{len(tokens)} tokens")
    if len(cases) <= 10:
        for i in range(len(cases)):
            print_case({who: run[i] for who, run in runs.items()})
    print_all(runs)


if __name__ == "__main__":
    main()
