"""Writes tokenizer_json_cases.jsonl: small tokenizer.json files and their results in the tokenizers library.

    pip install tokenizers==0.23.3 sentencepiece protobuf; python3 tests/text/make_tokenizer_json_cases.py

Line 1 contains the models (vocabulary and merges) by name, every other line one tokenizer: the name of its model, options
of the model, the other sections, and cases. A case has a text, its ids without and (if they differ) with those of the
post-processor, and the decoded text without and with special tokens. `decodes` are random ids.
"""
import json
import random
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

OUT = Path(__file__).with_name("tokenizer_json_cases.jsonl")
CORPUS = [
    "The quick brown fox jumps over the lazy dog. Hello world, hello there! It's what they're saying, isn't it?",
    "In 2023, 1234567 people    read\n\nthe news;\tand   then they'd sleep. def f(x):\n    return x + 1\n",
    "Ça déjà vu, naïve café. Привет мир, как дела? 你好世界。日本語のテキスト 한국어 문장 नमस्ते दुनिया مرحبا بالعالم ไทย",
    "👩‍👩‍👧‍👦 family 🎉🎉 <tag> </tag> https://example.com/a?b=c&d=e foo_bar fooBar FOO",
] * 3

TEXTS = [
    "", " ", "  ", "a", "Hello world", " Hello  world ", "hello\n\n\nworld\r\n", "It's they're I'M WE'LL x'ſ 'S",
    "1 12 123 1234 12345678 ٣٤٥ Ⅷ ½", "tab\tand\u00a0nbsp\u3000wide\u2028line\u0085next\u180esep\u200bzero",
    "    indent\n        more\n\n\n   ", "café café Å Å ﬁ ﬀ ① ℌ İstanbul ẞß", "Привет, мир! Как дела?",
    "你好，世界。我们去吃饭吧", "日本語のテキストとカタカナ", "한국어 문장입니다", "नमस्ते दुनिया क्षत्रिय", "مرحبا بالعالم ١٢٣",
    "ภาษาไทยไม่มีวรรค", "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🎉🎉🎉", "a\u0301\u0323b\u0323\u0301 e\u0301\u0301", "\ufeffbom \x00nul\x01\x7f",
    "foo_bar fooBar FooBAR camelCaseXYZ snake_case", "x+=1; y=[1,2,3]; if(a&&b){return -1;} // ok", "!!!???...---***",
    "https://example.com/a?b=c&d=e#frag", "<s>Hello</s>", "<s> Hello </s> world<mask>x <mask> y", "say <add>word<add>s words",
    "▁under ▁▁two ▁", "<0x41><0x0A> <unk>", "aaaaaaaaaaaaaaaa bbbbbbb", "the<word>the word wording", "\n", "\n \n", " \t ",
    "“quotes” ‘single’ — dash … ellipsis", "ZALGO h̷̡e̛l͟l̸o", "𝕳𝖊𝖑𝖑𝖔 𝟙𝟚𝟛", "Straße STRASSE ŒUVRE ǆ ǅ Ǆ", "\u0378 unassigned \U000323b0",
]

OTHER_TEXTS = [
    "aaaa" * 25, "aaaa" * 25 + "a", "don't do not isn't they've we're 's I'm ' a '", "[CLS] x [SEP]y [MASK]", "quick,brown.fox!jumps?over",
    "\r\n \r \u200b\u200b x", "A\u030a e\u0301\u0323 \u212b ﬁ① A", "x\u0000y \ufffd\ufffd \u00ad soft \u0085 \ue000", "漢字かな交じり文 𠀀𪚥 ㍿",
    "<unk> ▁▁ \u2581a", "ffffi zzqqxx ﷽ ", "\U0001f1e9\U0001f1ea\U0001f1eb \u0e33\u0e33 \u1100\u1161\u11a8",
]

GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
BYTE_DECODER = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s*[\r\n]|\s+(?!\S)"
          r"|\s+")
ODD = r"\h+|[\w&&[^\p{Han}]]+|[^\w\s]|\u4f60|[[:digit:][^\p{L}\s]]|\p{Letter}{2,3}+"


def train(model, pre_tokenizer, size, alphabet=(), special=()):
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=size, initial_alphabet=list(alphabet), special_tokens=list(special),
                                    show_progress=False))
    return json.loads(tokenizer.to_str())["model"]


def make_models():
    byte_level = train(models.BPE(), pre_tokenizers.ByteLevel(add_prefix_space=False), 400,
                       pre_tokenizers.ByteLevel.alphabet())
    metaspace = train(models.BPE(), pre_tokenizers.Metaspace(), 300)
    # As in sentencepiece, control tokens and bytes come first.
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    tokens += [t for t in metaspace["vocab"] if t not in tokens]
    sentence = {"vocab": {t: i for i, t in enumerate(tokens)}, "merges": metaspace["merges"]}
    suffix = train(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", continuing_subword_prefix="##"),
                   pre_tokenizers.Whitespace(), 60, special=["<unk>"])
    # The trainer does not support affixes in merges, so these are written by hand.
    words = {"vocab": {}, "merges": [["l", "##o"], ["lo", "##w</w>"], ["n", "##e"], ["##e", "##r</w>"]]}
    for token in ["<unk>", "l", "##o", "o", "##w</w>", "w</w>", "##w", "lo", "low</w>", "n", "##e", "ne", "e", "##r</w>",
                  "##er</w>", "t</w>", "##n", "##t</w>"]:
        words["vocab"][token] = len(words["vocab"])
    del suffix
    return {
        "byte": {"vocab": byte_level["vocab"], "merges": byte_level["merges"]},
        # The older form of merges.
        "byte_strings": {"vocab": byte_level["vocab"], "merges": [" ".join(m) for m in byte_level["merges"]]},
        "sentence": sentence,
        "plain": {"vocab": {"<unk>": 0, **{t: i + 1 for i, t in enumerate(metaspace["vocab"])}}, "merges": metaspace["merges"]},
        "words": words,
        **make_other_models(),
    }


# Cases of rules of sentencepiece: spaces, characters of several forms, a rule that begins another.
RULES = "9\t20\nA\t20\nD\t20\n1\t\n200B\t20\nFB01\t66 69\n212B\tC5\n2460\t31\n65 301\tE9\n41\t61\n41 30A\tE5\n2026\t2E 2E 2E\n"


def make_other_models():
    """WordPiece and Unigram, and a table of normalisation."""
    import base64
    import io

    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    pieces = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    pieces.normalizer = normalizers.BertNormalizer(lowercase=False)
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=330, special_tokens=special, show_progress=False))
    lower = {t.lower() for t in pieces.get_vocab()} | set(pieces.get_vocab()) | {"don", "'", "t", "##'", "aaaa", "##aaaa"}
    vocab = {t: i for i, t in enumerate(special + sorted(lower - set(special) - {t.lower() for t in special}))}
    rules = OUT.with_suffix(".rules.tsv")
    rules.write_text(RULES)
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=written, vocab_size=330, model_type="unigram",
        normalization_rule_tsv=str(rules), hard_vocab_limit=False, minloglevel=2)
    rules.unlink()
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(written.getvalue())
    scores = [["<s>", 0.0], ["</s>", 0.0], ["<unk>", 0.0]] + [[p.piece, p.score] for p in list(proto.pieces)[3:]]
    global CHARSMAP
    CHARSMAP = base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()
    as_bytes = scores + [[f"<0x{b:02X}>", -9.0] for b in range(256)]
    return {"pieces": {"vocab": vocab}, "scores": {"vocab": scores}, "scores_bytes": {"vocab": as_bytes}}


def added(content, token_id, **flags):
    return {"id": token_id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": False, **flags}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(key, *steps):
    return {"type": "Sequence", key: list(steps)}


SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PREPEND = {"type": "Prepend", "prepend": "▁"}
SENTENCE_OPTIONS = {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}
CONTROLS = [added("<unk>", 0, special=True), added("<s>", 1, special=True), added("</s>", 2, special=True)]
UNSPACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
SENTENCE_DECODER = sequence("decoders", UNSPACE, {"type": "ByteFallback"}, {"type": "Fuse"}, STRIP)


def template(prefix, suffix):
    special = {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in prefix + suffix}
    single = ([{"SpecialToken": {"id": t, "type_id": 0}} for t, _ in prefix] + [{"Sequence": {"id": "A", "type_id": 0}}] +
              [{"SpecialToken": {"id": t, "type_id": 0}} for t, _ in suffix])
    return {"type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": special}


def tokenizers():
    """Name, model, options of the model, sections."""
    def byte(name, pre, model="byte", options=None, **sections):
        return name, model, options or {}, {"pre_tokenizer": pre, "decoder": BYTE_DECODER, **sections}

    def plain(name, model="plain", options=None, **sections):
        return name, model, options or {"unk_token": "<unk>"}, sections

    def sentence(name, **sections):
        return name, "sentence", SENTENCE_OPTIONS, {"added_tokens": CONTROLS, "decoder": SENTENCE_DECODER, **sections}

    size = 400
    marks = [added("<s>", size, special=True), added("</s>", size + 1, special=True, rstrip=True, lstrip=True),
             added("<mask>", size + 2, special=True, lstrip=True), added("<add>", size + 3, normalized=True),
             added("word", size + 4, single_word=True, normalized=True), added("  ", size + 5, normalized=True),
             added("Ha", size + 6, normalized=True), added("Hello", size + 7, normalized=True)]
    yield byte("gpt2", GPT2)
    yield byte("gpt2_merge_strings", GPT2, "byte_strings")
    yield byte("gpt2_prefix_space", {**GPT2, "add_prefix_space": True}, added_tokens=marks)
    yield byte("added", GPT2, added_tokens=marks)
    yield byte("added_lowercase", GPT2, added_tokens=marks, normalizer={"type": "Lowercase"})
    yield byte("added_template", GPT2, added_tokens=marks,
               post_processor=sequence("processors", BYTE_DECODER, template([("<s>", size)], [("</s>", size + 1)])))
    yield byte("roberta", GPT2, added_tokens=marks,
               post_processor={"type": "RobertaProcessing", "sep": ["</s>", size + 1], "cls": ["<s>", size],
                               "trim_offsets": True, "add_prefix_space": False})
    for name, pattern in [("llama3", LLAMA3), ("qwen2", QWEN2), ("o200k", O200K), ("tekken", TEKKEN), ("cl100k", CL100K),
                          ("odd", ODD)]:
        yield byte(name, sequence("pretokenizers", split(pattern), BYTES), options={"ignore_merges": name == "llama3"},
                   normalizer={"type": "NFC"} if name == "qwen2" else None)
    yield byte("deepseek", sequence("pretokenizers", split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"),
                                    split("[一-龥ࠀ-一가-퟿]+"), {"type": "Digits", "individual_digits": True}, BYTES))
    for behavior in ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]:
        for invert in [False, True]:
            yield byte(f"split_{behavior}_{invert}",
                       sequence("pretokenizers", split(r"[aeiou]|\s", behavior, invert), BYTES))
    yield byte("split_string", sequence("pretokenizers", split("l", "MergedWithNext", False, "String"), BYTES))
    yield byte("split_empty_matches", sequence("pretokenizers", split("x*", "Isolated"), BYTES))
    yield byte("digits", sequence("pretokenizers", {"type": "Digits", "individual_digits": False}, BYTES))
    yield byte("punctuation", sequence("pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"}, BYTES))
    yield byte("whitespace", sequence("pretokenizers", {"type": "Whitespace"}, BYTES))
    yield byte("whitespace_split", sequence("pretokenizers", {"type": "WhitespaceSplit"}, BYTES))
    yield byte("bert", sequence("pretokenizers", {"type": "BertPreTokenizer"}, BYTES))
    yield byte("delimiter", sequence("pretokenizers", {"type": "CharDelimiterSplit", "delimiter": "o"}, BYTES))
    yield byte("fixed_length", sequence("pretokenizers", {"type": "FixedLength", "length": 3}, BYTES))
    for form in ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"]:
        yield byte(form, GPT2, normalizer={"type": form})
    yield byte("strip", GPT2, normalizer=sequence("normalizers", {"type": "NFD"}, {"type": "StripAccents"}, {
        "type": "Strip", "strip_left": True, "strip_right": False}))
    yield byte("strip_right", GPT2, normalizer={"type": "Strip", "strip_left": False, "strip_right": True})
    yield byte("replace_regex", GPT2, normalizer={"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "})
    yield byte("byte_normalizer", None, normalizer={"type": "ByteLevel"})
    yield sentence("llama", normalizer=sequence("normalizers", PREPEND, SPACES),
                   post_processor=template([("<s>", 1)], []))
    yield sentence("gemma", normalizer=SPACES, pre_tokenizer=split(" ", "MergedWithPrevious", False, "String"),
                   decoder=sequence("decoders", UNSPACE, {"type": "ByteFallback"}, {"type": "Fuse"}))
    for scheme in ["first", "always", "never"]:
        for cut in [False, True]:
            metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}
            yield sentence(f"metaspace_{scheme}_{cut}", pre_tokenizer=metaspace, decoder=metaspace)
    yield sentence("metaspace_after_split",
                   pre_tokenizer=sequence("pretokenizers", {"type": "WhitespaceSplit"}, {
                       "type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}))
    old = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}
    yield sentence("metaspace_old", pre_tokenizer=old, decoder=old)
    old = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": False, "prepend_scheme": "never"}
    yield sentence("metaspace_old_without", pre_tokenizer=old, decoder=old)
    yield plain("unknown", options={"unk_token": "<unk>", "fuse_unk": False}, normalizer=SPACES)
    yield plain("unknown_fused", options={"unk_token": "<unk>", "fuse_unk": True}, normalizer=SPACES)
    yield plain("unknown_dropped", options={}, normalizer=SPACES, decoder={"type": "Fuse"})
    yield plain("few_bytes", "sentence", {"unk_token": "<unk>", "byte_fallback": False}, normalizer=SPACES,
                decoder=sequence("decoders", UNSPACE, {"type": "Strip", "content": "e", "start": 0, "stop": 1}))
    yield plain("strip_fused", "sentence", {"unk_token": "<unk>", "byte_fallback": True}, normalizer=SPACES,
                decoder=sequence("decoders", {"type": "ByteFallback"}, {"type": "Fuse"},
                                 {"type": "Replace", "pattern": {"String": "o▁"}, "content": "<>"},
                                 {"type": "Strip", "content": " ", "start": 2, "stop": 2}))
    yield plain("replace_regex_decoder", "sentence", {"unk_token": "<unk>", "byte_fallback": True}, normalizer=SPACES,
                decoder=sequence("decoders", {"type": "Replace", "pattern": {"Regex": "[▁e]"}, "content": "_"}))
    yield ("words", "words", {"unk_token": "<unk>", "continuing_subword_prefix": "##", "end_of_word_suffix": "</w>"},
           {"pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": {"type": "BPEDecoder", "suffix": "</w>"}})


def other_tokenizers():
    """WordPiece and Unigram."""
    marks = [added(t, i, special=True) for i, t in enumerate(["[UNK]", "[CLS]", "[SEP]", "[MASK]"])]
    word_piece = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100}
    around = template([("[CLS]", 1)], [("[SEP]", 2)])
    for lower in [True, False]:
        for strips in [None, not lower]:
            yield (f"word_piece_{lower}_{strips}", "pieces", word_piece, {
                "added_tokens": marks, "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": around,
                "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": lower},
                "normalizer": {"type": "BertNormalizer", "clean_text": lower or strips is None, "lowercase": lower,
                               "handle_chinese_chars": lower, "strip_accents": strips}})
    yield ("word_piece_short", "pieces", {**word_piece, "max_input_chars_per_word": 4}, {
        "added_tokens": marks, "pre_tokenizer": {"type": "Whitespace"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]}})
    controls = [added("<s>", 0, special=True), added("</s>", 1, special=True), added("<unk>", 2, special=True)]
    table = {"type": "Precompiled", "precompiled_charsmap": CHARSMAP}
    single_spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    for name, pre in [("words", sequence("pretokenizers", {"type": "WhitespaceSplit"}, {
                          "type": "Metaspace", "replacement": "▁"})),
                      ("whole", {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False})]:
        for model in ["scores", "scores_bytes"]:
            yield (f"unigram_{name}_{model}", model,
                   {"type": "Unigram", "unk_id": 2, "byte_fallback": model == "scores_bytes"},
                   {"added_tokens": controls, "normalizer": sequence("normalizers", table, single_spaces),
                    "pre_tokenizer": pre, "decoder": {"type": "Metaspace", "replacement": "▁"},
                    "post_processor": template([("<s>", 0)], [("</s>", 1)])})


def decode(tokenizer, ids, **options):
    """None if the library panics because Strip removes more characters than a token has."""
    try:
        return tokenizer.decode(ids, **options)
    except BaseException as error:  # noqa: B902, its panics are no Exception
        if "Panic" not in type(error).__name__:
            raise
        return None


def main():
    all_models = make_models()
    draw = random.Random(6)
    rows = [{"models": all_models}]
    for name, model, options, sections in [*tokenizers(), *other_tokenizers()]:
        file = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                "pre_tokenizer": None, "post_processor": None, "decoder": None, **sections,
                "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                          "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                          **options, **all_models[model]}}
        if "type" in options:
            file["model"] = {**options, **all_models[model]}
        tokenizer = Tokenizer.from_str(json.dumps(file))
        texts = (TEXTS if "type" not in options else TEXTS + OTHER_TEXTS) if model != "words" else ["low lower newer nt t lot", "xyz lowx low", ""]
        cases = []
        for text in texts:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            case = {"text": text, "ids": ids, "decoded": decode(tokenizer, ids)}
            kept = decode(tokenizer, ids, skip_special_tokens=False)
            whole = tokenizer.encode(text).ids
            if kept != case["decoded"]:
                case["kept"] = kept
            if whole != ids:
                case["whole"] = whole
            cases.append(case)
        decodes = []
        for _ in range(12):
            ids = [draw.randrange(tokenizer.get_vocab_size()) for _ in range(draw.randrange(1, 24))]
            decodes.append({"ids": ids, "decoded": decode(tokenizer, ids)})
        rows.append({"name": name, "model": model, "options": options, "sections": sections, "cases": cases,
                     "decodes": decodes})
    OUT.write_text("".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows))


if __name__ == "__main__":
    main()
