"""A tiny JinaBertModel with random weights in the layout of jina-embeddings-v2 (encoders.py calls it), and its vectors by the
formulas below in float32, because neither transformers nor sentence-transformers has the class:

    x = norm(word + type)
    for each layer:
        s(i, j) = q(i) k(j) / sqrt(width of a head) - slope of the head * |i - j|
        x = norm(x + dense(softmax(s) v));  x = norm(x + wo(gelu(g) u)), with [g, u] = gated_layers(x)
    the mean of all tokens' x, normalised

A class of the same name (jina-embeddings-v2-base-code; here jina_bert_normed) normalises all of q and of k, has
up_gated_layer = [u, g], and behind attention
        y = norm(x + dense(...));  x = norm(x + y)

The slope of head h of n, a power of two, is 2 ** (-8 (h + 1) / n); of other numbers the heads behind the power of two below
have those that twice as many would have at 0, 2, ... (arXiv 2108.12409).

    python3 -c "import pathlib, jina_bert, encoders; p = pathlib.Path('pooling'); jina_bert.make(p / 'jina_bert', p / 'bert', encoders.TEXTS)"
"""
import json
import math
import shutil

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

HIDDEN, INNER, LAYERS, HEADS, POSITIONS = 48, 40, 2, 6, 128
EPS = 1e-12


def slopes(heads):
    def of_power(n):
        return [2 ** (-8 * (i + 1) / n) for i in range(n)]
    power = 2 ** int(math.log2(heads))
    return torch.tensor((of_power(power) + of_power(2 * power)[::2])[:heads])


def norm(x, tensors, name):
    return torch.nn.functional.layer_norm(x, (HIDDEN,), tensors[f"{name}.weight"], tensors[f"{name}.bias"], EPS)


def product(x, tensors, name):
    return torch.nn.functional.linear(x, tensors[f"{name}.weight"], tensors.get(f"{name}.bias"))


def vector_of(ids, tensors, is_normed):
    x = norm(tensors["embeddings.word_embeddings.weight"][ids] + tensors["embeddings.token_type_embeddings.weight"][0], tensors,
             "embeddings.LayerNorm")
    place = torch.arange(len(ids))
    distances = -(slopes(HEADS)[:, None, None] * (place[:, None] - place[None, :]).abs())
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}."
        parts = [product(x, tensors, f"{layer}attention.self.{part}") for part in ("query", "key", "value")]
        if is_normed:
            parts[:2] = [norm(part, tensors, f"{layer}attention.self.layer_norm_{letter}") for part, letter in zip(parts, "qk")]
        query, key, value = (part.view(len(ids), HEADS, -1).transpose(0, 1) for part in parts)
        scores = query @ key.transpose(1, 2) / math.sqrt(HIDDEN // HEADS) + distances
        mixed = (scores.softmax(-1) @ value).transpose(0, 1).reshape(len(ids), HIDDEN)
        y = norm(x + product(mixed, tensors, f"{layer}attention.output.dense"), tensors, f"{layer}attention.output.LayerNorm")
        x = norm(x + y, tensors, f"{layer}layer_norm_1") if is_normed else y
        gate, up = product(x, tensors, f"{layer}mlp.{'up_gated_layer' if is_normed else 'gated_layers'}").split(INNER, dim=-1)
        if is_normed:
            gate, up = up, gate
        last, last_norm = ("mlp.down_layer", "layer_norm_2") if is_normed else ("mlp.wo", "mlp.layernorm")
        x = norm(x + product(torch.nn.functional.gelu(gate) * up, tensors, layer + last), tensors, layer + last_norm)
    return torch.nn.functional.normalize(x.mean(0), dim=0)


def make_tensors(vocab_size, is_normed):
    torch.manual_seed(12 if is_normed else 11)
    shapes = {"embeddings.word_embeddings.weight": (vocab_size, HIDDEN), "embeddings.token_type_embeddings.weight": (2, HIDDEN),
              "embeddings.LayerNorm": HIDDEN, "pooler.dense.weight": (HIDDEN, HIDDEN), "pooler.dense.bias": (HIDDEN,)}
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}."
        for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            shapes[f"{layer}{name}.weight"], shapes[f"{layer}{name}.bias"] = (HIDDEN, HIDDEN), (HIDDEN,)
        first, last = ("up_gated_layer", "down_layer") if is_normed else ("gated_layers", "wo")
        shapes[f"{layer}mlp.{first}.weight"] = (2 * INNER, HIDDEN)
        shapes[f"{layer}mlp.{last}.weight"], shapes[f"{layer}mlp.{last}.bias"] = (HIDDEN, INNER), (HIDDEN,)
        norms = ["attention.output.LayerNorm", "mlp.layernorm"]
        if is_normed:
            norms = [norms[0], "layer_norm_1", "layer_norm_2", "attention.self.layer_norm_q", "attention.self.layer_norm_k"]
        shapes.update({layer + name: HIDDEN for name in norms})
    tensors = {}
    for name, shape in shapes.items():
        if isinstance(shape, int):
            tensors[f"{name}.weight"], tensors[f"{name}.bias"] = 1 + 0.3 * torch.randn(shape), 0.3 * torch.randn(shape)
        else:
            tensors[name] = 0.3 * torch.randn(shape)
    return tensors


def make(folder, bert, texts, is_normed=False):
    """`bert`: the folder of the tiny BERT, whose tokenizer and modules this model has, too."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(bert, folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    vocab_size = tokenizer.get_vocab_size()
    tensors = make_tensors(vocab_size, is_normed)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["JinaBertForMaskedLM"], "model_type": "bert", "hidden_size": HIDDEN, "intermediate_size": INNER,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "max_position_embeddings": POSITIONS, "vocab_size": vocab_size,
        "type_vocab_size": 2, "position_embedding_type": "alibi", "feed_forward_type": "geglu", "hidden_act": "gelu",
        "emb_pooler": "mean", "layer_norm_eps": EPS, "pad_token_id": 0, "torch_dtype": "float32"}, indent=1))
    for name in ("tokenizer_config.json", "sentence_bert_config.json"):
        path = folder / name
        if path.exists():
            path.write_text(json.dumps({**json.loads(path.read_text()), **(
                {"model_max_length": POSITIONS} if name == "tokenizer_config.json" else {})}))
    pooling = folder / "1_Pooling/config.json"
    config = json.loads(pooling.read_text())
    for key in ("embedding_dimension", "word_embedding_dimension"):
        if key in config:
            config[key] = HIDDEN
    pooling.write_text(json.dumps(config))
    tokenizer.no_padding()
    tokenizer.enable_truncation(POSITIONS)
    with open(folder / "expected.jsonl", "w") as out:
        for text in texts:
            vector = vector_of(torch.tensor(tokenizer.encode(text).ids), tensors, is_normed)
            out.write(json.dumps({"text": text, "embedding": [round(float(x), 7) for x in vector]}) + "\n")
