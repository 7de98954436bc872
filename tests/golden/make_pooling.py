"""Makes tests/golden/pooling: a tiny model of vectors with random weights in the published layout, texts, and what
sentence-transformers makes of them in f32.

    pip install sentence-transformers sentencepiece protobuf gguf
    python3 tests/golden/make_pooling.py TOKENIZER_FOLDER

gemma3: attention both ways, a window in every layer but one, the mean of the states, two products, normalised; a prompt
for queries and one for documents. TOKENIZER_FOLDER has a tokenizer.json of at most 512 tokens. The others are encoders
(encoders.py).
"""
import json
import pathlib
import shutil
import sys

from encoders import make_encoders

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Dense, Normalize, Pooling, Transformer
from transformers import Gemma3TextConfig, Gemma3TextModel

OUT = pathlib.Path(__file__).resolve().parent / "pooling"
TEXTS = ["a", "the cat sat on the mat", "naïve café 🙂 日本", "x " * 60, "\n\n  indented\ttext", "Where does Omar live?"]
WINDOW = 16


def make_gemma3(tokenizer, folder):
    config = Gemma3TextConfig(
        vocab_size=512, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=1, head_dim=8, sliding_window=WINDOW, use_bidirectional_attention=True,
        query_pre_attn_scalar=8, max_position_embeddings=512,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"])
    torch.manual_seed(3)
    model = Gemma3TextModel(config).float().eval()
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, std=0.3 if "norm" in name else 0.1)
    source = folder.with_suffix(".source")
    model.save_pretrained(source)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, source)
    identity = torch.nn.Identity()
    modules = [Transformer(str(source), max_seq_length=64), Pooling(32, pooling_mode="mean"),
               Dense(32, 40, bias=False, activation_function=identity),
               Dense(40, 24, bias=False, activation_function=identity), Normalize()]
    prompts = {"query": "task: search result | query: ", "document": "title: none | text: "}
    whole = SentenceTransformer(modules=modules, device="cpu", prompts=prompts)
    whole.save(str(folder), create_model_card=False)
    shutil.rmtree(source)
    path = folder / "config.json"
    saved = json.loads(path.read_text())
    saved["sliding_window"] = WINDOW  # as published: of both sides together
    path.write_text(json.dumps(saved, indent=1))
    return whole


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    whole = make_gemma3(pathlib.Path(sys.argv[1]), OUT / "gemma3")
    with open(OUT / "gemma3" / "expected.jsonl", "w") as out:
        for prompt in ("", "query", "document"):
            for text, vector in zip(TEXTS, whole.encode(TEXTS, prompt_name=prompt or None)):
                row = {"text": text, "prompt": prompt, "embedding": [round(float(x), 7) for x in vector]}
                out.write(json.dumps(row) + "\n")
    make_encoders(OUT)


main()
