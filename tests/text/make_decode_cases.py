"""Writes decode_cases.jsonl: random token ids and their text as decoded by the sentencepiece library.

    python3 make_decode_cases.py     # run by hand; needs sentencepiece; the tests never run it

Half of the ids are byte tokens, spaces and control tokens, to which the rules of decoding apply.
"""
import json
import random
from pathlib import Path

import sentencepiece

TESTS = Path(__file__).resolve().parent.parent
MODELS = ["models/wren/tokenizer.model", "fuzz/corpus/tokenizer/small_bpe.model",
          "fuzz/corpus/tokenizer/small_unigram.model"]

draw = random.Random(7)
with open(TESTS / "text/decode_cases.jsonl", "w", encoding="utf-8") as file:
    for name in MODELS:
        library = sentencepiece.SentencePieceProcessor(model_file=str(TESTS / name))
        size = library.get_piece_size()
        pieces = [library.id_to_piece(i) for i in range(size)]
        favoured = [i for i, p in enumerate(pieces) if p.startswith(("<", "\u2581\u2581")) or p == "\u2581"]
        for _ in range(250):
            ids = [draw.choice(favoured) if draw.random() < 0.5 else draw.randrange(size)
                   for _ in range(draw.randrange(16))]
            row = {"model": name, "ids": ids, "decoded": library.decode(ids) if ids else ""}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
