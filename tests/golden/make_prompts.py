"""Makes tests/golden/pooling_prompts.jsonl: vectors of sentence-transformers in f32 where the tokens of a prompt do not
count (include_prompt false), by models of tests/golden/pooling with another pooling.

    pip install sentence-transformers
    python3 tests/golden/make_prompts.py
"""
import json
import pathlib

from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Pooling

OUT = pathlib.Path(__file__).resolve().parent / "pooling"
TEXTS = ["", "a", "the cat sat on the mat", "naïve café 🙂 日本", "x " * 60, " \tindented text"]
PROMPTS = {"query": "query: ", "long": "Represent the sentence for retrieval, please:", "same": "the cat"}
MODES = {"bert": ["mean", "weightedmean", "max"], "roberta": ["mean", "cls", "mean_sqrt_len_tokens", "lasttoken"]}


def main():
    with open(OUT.parent / "pooling_prompts.jsonl", "w") as out:
        for name, modes in MODES.items():
            for mode in modes:
                model = SentenceTransformer(str(OUT / name), device="cpu", prompts=PROMPTS)
                if name == "roberta":  # its files do not name the token, as published ones do
                    model.tokenizer.eos_token = "</s>"
                model[1] = Pooling(32, pooling_mode=mode, include_prompt=False)
                for prompt in ["", *PROMPTS]:
                    for text in TEXTS:
                        vector = model.encode([text], prompt_name=prompt or None)[0]
                        row = {"model": name, "mode": mode, "prompt": prompt, "text": text,
                               "embedding": [round(float(x), 7) for x in vector]}
                        out.write(json.dumps(row) + "\n")


main()
