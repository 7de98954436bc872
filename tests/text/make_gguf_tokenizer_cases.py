"""Writes what the reference libraries make of 5,000 lines for each kind of tokenizer that GGUF files have.

    python3 tests/text/make_gguf_tokenizer_cases.py                  # writes gguf_tokenizer_cases.jsonl
    python3 tests/text/make_gguf_tokenizer_cases.py --compare FILE   # shows the first line that differs in FILE

Needs the packages tokenizers and sentencepiece. The lines are made here as generated_lines.h makes them. Of each kind
there is a hash of the ids for every 50 lines; a test that finds another one writes its ids to FILE.
"""
import json
import sys
from pathlib import Path

import sentencepiece
from tokenizers import Tokenizer

HERE = Path(__file__).resolve().parent
OUT = HERE / "gguf_tokenizer_cases.jsonl"
BLOCK = 50
WORD64 = (1 << 64) - 1
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
TEKKEN = (rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*|\p{{N}}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*"
         rf"{CONTRACTIONS}?" r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
CASED = ("A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF\u0370-\u0373\u0376"
         "\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F\u0531-"
         "\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A"
         "\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4"
         "\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC"
         "\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F"
         "\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B"
         "\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A"
         "\U00010400-\U0001044F\U000104B0-\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2"
         "\U000118A0-\U000118DF\U0001E900-\U0001E943")
IDEOGRAPHS, IDEOGRAPHS_V3 = "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+", "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+"
SIGNS = "!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002"
SIGNED_WORDS = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
                r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def byte_level(use_regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def splits(*patterns):
    return [*map(split, patterns), byte_level(False)]


DIGITS = {"type": "Digits", "individual_digits": True}
THREES = r"\d{1,3}(?=(?:\d{3})*\b)"
HAN_UPPER, HAN_LOWER = (rf"[{kind}&&[^\p{{Han}}]]" for kind in (UPPER, LOWER))
KIMI = (rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{HAN_UPPER}*{HAN_LOWER}+{CONTRACTIONS}?"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{HAN_UPPER}+{HAN_LOWER}*{CONTRACTIONS}?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
JAIS2 = LLAMA3.replace(r"\s+(?!\S)|\s+", "|".join(
    [rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4)] + [r"\s{1,2}(?!\S)", r"\s{1}"]))
SHORT = r"'(?i:[sdmt]|ll|ve|re)"
LFM25 = SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s"
BAILING = SHORT + r"|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
SEED = (CONTRACTIONS
        + "|[^\r\n" r"\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}" "\r\n" r"]+|\s*[" "\r\n" r"]+|\s+(?!\S)|\s+")
EXAONE = (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?"
          r"|\s*[\r\n]|\s+(?!\S)|\s+")
BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uFF0C\u3001\u0964\u06D4\u060C)]+"
SPARK = SIGNED_WORDS.replace(r"[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+", r"[\p{P}\p{S}]+|[\r\n]")
YOUTU_SCRIPTS = ("[\uAC00-\uD7A3\u3131-\u318E]+|[\uFF01\u2026\u201C\u201D\u2018\u2019\u2014\uFF1A\uFF1B\uFF0C\u3001-\u303F"
                 "\uFE30-\uFE4F]+|[\u3105-\u312F]+|[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+")
AFMOE_SCRIPTS = ("[\u4E00-\u9FFF\u3400-\u4DBF\uF900-\uFAFF\u3040-\u309F\u30A0-\u30FF\uFF65-\uFF9F\u2F00-\u2FDF\u0E40-\u0E7F"
                 "\u0E80-\u0EFF\u1780-\u17FF\u1000-\u109F\uAA60-\uAA7F\uA9E0-\uA9FF\uAC00-\uD7AF\u1100-\u11FF]+")
# Kind -> (steps of the pre-tokenizer, the normalizer, ignore_merges), as in the tokenizer.json of the family.
BYTE_LEVEL = {
    "llama-bpe": (splits(LLAMA3), None, True),
    "smaug-bpe": (splits(LLAMA3), None, False),
    "glm4": (splits(LLAMA3), None, True),
    "qwen2": (splits(QWEN2), "NFC", False),
    "stablelm2": (splits(QWEN2), None, False),
    "qwen35": (splits(QWEN35), "NFC", False),
    "gpt-4o": (splits(O200K), None, True),
    "minimax-m2": (splits(O200K), None, False),
    "tekken": (splits(TEKKEN), None, True),
    "deepseek-v3": (splits(r"\p{N}{1,3}", IDEOGRAPHS_V3, SIGNED_WORDS), None, False),
    "deepseek-llm": ([split("[\r\n]"), split(rf"\s?[{CASED}]+"), split(r"\s?[" + SIGNS + "]+"), split(r"\s+$"),
                      split(IDEOGRAPHS), DIGITS, byte_level(False)], None, False),
    "deepseek-coder": ([split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(IDEOGRAPHS), DIGITS,
                        byte_level(False)], None, False),
    "gpt-2": ([byte_level(True)], None, False),
    "starcoder": ([DIGITS, byte_level(True)], None, False),
    "jais-2": (splits(JAIS2), None, False),
    "lfm2.5": (splits(LFM25), None, True),
    "bailingmoe": (splits(BAILING), None, False),
    "seed-coder": (splits(SEED), None, False),
    "ufakzeka": (splits(QWEN2.removeprefix(CONTRACTIONS + "|")), None, False),
    "laguna": (splits(r"[^\n]+|[\n]+", QWEN2), None, False),
    "minicpm5": (splits(r"\p{N}{1,3}", LLAMA3.replace("{1,3}", "+")), None, True),
    "exaone-moe": (splits(EXAONE), None, False),
    "tiny_aya": (splits(THREES, O200K), None, False),
    "youtu": (splits(YOUTU_SCRIPTS, O200K.replace("{1,3}", "")), None, True),
    "kimi-k2": (splits(KIMI), None, False),
    "spark2_5": (splits(r"\p{N}{1,3}", IDEOGRAPHS_V3, SPARK, r"\p{N}"), None, False),
    "afmoe": (splits(THREES.replace(r"\d", r"\p{N}").replace(r"\b", r"(?!\p{N})"), AFMOE_SCRIPTS, SIGNED_WORDS),
              None, False),
    "chameleon": ([split("<sentinel:[0-9]+>"), split("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"), split("([\\t\\n]|    |  )"),
                   DIGITS, split(r"[\p{P}!-/:-@\[-`{-~]"), byte_level(True)], None, False),
    "superbpe": (splits(r"\p{N}+", r"(?=(\d{3})+(?!\d))"), None, False),
    "bloom": (splits(BLOOM), None, False),
    "viking": ([split(BLOOM), DIGITS, byte_level(False)], None, False),
    # The rules of llama.cpp.
    "falcon": (splits(r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"), None, False),
    "default": (splits(r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"), None, False),
}


class Random:
    """SplitMix64."""

    def __init__(self):
        self.state = 1

    def below(self, limit):
        self.state = self.state + 0x9E3779B97F4A7C15 & WORD64
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & WORD64
        z = (z ^ z >> 27) * 0x94D049BB133111EB & WORD64
        return (z ^ z >> 31) % limit


def fnv(values):
    """FNV-1a of (value, number of bytes)."""
    result = 0xCBF29CE484222325
    for value, size in values:
        for byte in value.to_bytes(size, "little"):
            result = (result ^ byte) * 0x100000001B3 & WORD64
    return f"{result:016x}"


def generated_lines():
    lists = json.loads((HERE / "generated_lines.json").read_text())
    rows = map(json.loads, (HERE / "tokenizers/lines.jsonl").read_text().rstrip("\n").split("\n"))
    texts = [row["text"] for row in rows if "text" in row]
    random, lines = Random(), []
    for _ in range(5000):
        line = ""
        for _ in range(1 + random.below(5)):
            kind = random.below(8)
            if kind == 0:
                first, last = lists["blocks"][random.below(len(lists["blocks"]))]
                line += "".join(chr(first + random.below(last - first + 1)) for _ in range(1 + random.below(3)))
            elif kind <= 2:
                line += lists["pieces"][random.below(len(lists["pieces"]))]
            else:
                text = texts[random.below(len(texts))]
                if text:
                    begin = random.below(len(text))
                    line += text[begin:begin + 1 + random.below(24)]
        lines.append(line)
    return lines


def plain_model(name):
    """The tokenizer.json of a folder, without special tokens and what is put around texts."""
    file = json.loads((HERE / "tokenizers" / name / "tokenizer.json").read_text())
    return dict(file, added_tokens=[], post_processor=None)


def encoders():
    """Kind -> a function from a line to its ids."""
    for kind, (steps, normalizer, ignore_merges) in BYTE_LEVEL.items():
        file = plain_model("qwen2")
        file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
        file["normalizer"] = normalizer and {"type": normalizer}
        file["model"]["ignore_merges"] = ignore_merges
        tokenizer = Tokenizer.from_str(json.dumps(file))
        yield kind, lambda line, t=tokenizer: t.encode(line, add_special_tokens=False).ids
    tokenizer = Tokenizer.from_str(json.dumps(plain_model("gemma")))
    yield "gemma4", lambda line: tokenizer.encode(line, add_special_tokens=False).ids
    model = sentencepiece.SentencePieceProcessor(model_file=str(HERE.parent / "models/wren/tokenizer.model"))
    yield "llama", model.encode


def ids_as_values(all_ids):
    for ids in all_ids:
        yield from ((token, 4) for token in ids)
        yield 0xFFFFFFFF, 4


def write():
    lines = generated_lines()
    text_hash = fnv((byte, 1) for line in lines for byte in line.encode() + b"\n")
    rows = [{"lines": text_hash}]
    for kind, encode in encoders():
        blocks = [lines[i:i + BLOCK] for i in range(0, len(lines), BLOCK)]
        rows.append({"kind": kind, "hashes": [fnv(ids_as_values(map(encode, block))) for block in blocks]})
    OUT.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))


def compare(path):
    row = json.loads(Path(path).read_text())
    encode = dict(encoders())[row["kind"]]
    first = row["block"] * BLOCK
    for line, ids in zip(generated_lines()[first:first + BLOCK], row["ids"]):
        if encode(line) != ids:
            print(f"line: {line!r}\nfound:  {ids}\nwanted: {encode(line)}")
            return
    print("no line differs")


if len(sys.argv) == 3 and sys.argv[1] == "--compare":
    compare(sys.argv[2])
elif len(sys.argv) == 1:
    write()
else:
    sys.exit(__doc__)
