"""Trains tests/models/wren-eagle3, an EAGLE-3 head that drafts for the demo model. Run by hand, never by the tests.

    pip install torch safetensors sentencepiece transformers
    python3 tests/models/train_wren_eagle3.py [MINUTES]

Reads the conversations of ../shared/models/wren/corpus.py, the demo model's own corpus, beside the project. The head learns the
model's distribution at every place of an answer, for three drafts in a row: the row of the second draft reads the state of
the first one's row in place of the model's, and keys of rows that read the model's states, except its own and the last.
"""
import json
import random
import sys

import torch
from safetensors.torch import save_file
from torch.nn.functional import log_softmax, silu

from wren_drafts import (EPS, HEAD_DIM, HEADS, KV_HEADS, THETA, TREE, VOCAB, WIDTH, attend, corpus, encode, load_model,
                         loss_of_drafts, rms, train)

OUT = TREE / "tests/models/wren-eagle3"
INNER, DRAFT_VOCAB = 512, 1024
LAYERS = [1, 3, 5]  # whose input is read


class Head(torch.nn.Module):
    def __init__(self, row_ids):
        super().__init__()
        kv = KV_HEADS * HEAD_DIM
        shapes = {"fc": (WIDTH, 3 * WIDTH), "midlayer.self_attn.q_proj": (HEADS * HEAD_DIM, 2 * WIDTH),
                  "midlayer.self_attn.k_proj": (kv, 2 * WIDTH), "midlayer.self_attn.v_proj": (kv, 2 * WIDTH),
                  "midlayer.self_attn.o_proj": (WIDTH, HEADS * HEAD_DIM), "midlayer.mlp.gate_proj": (INNER, WIDTH),
                  "midlayer.mlp.up_proj": (INNER, WIDTH), "midlayer.mlp.down_proj": (WIDTH, INNER),
                  "lm_head": (DRAFT_VOCAB, WIDTH)}
        self.t = torch.nn.ParameterDict()
        for name, shape in shapes.items():
            self.t[name.replace(".", "/")] = torch.nn.Parameter(torch.randn(shape) / shape[1] ** 0.5)
        for name in ("norm", "midlayer.hidden_norm", "midlayer.input_layernorm", "midlayer.post_attention_layernorm"):
            self.t[name.replace(".", "/")] = torch.nn.Parameter(torch.ones(WIDTH))
        self.row_ids = row_ids

    def of(self, name):
        return self.t[("midlayer." + name).replace(".", "/")]

    def rows(self, embedded, states, keys, values):
        """Outputs of one draft step; appends its keys and values."""
        normed = rms(states, self.of("hidden_norm"))
        x = torch.cat([rms(embedded, self.of("input_layernorm")), normed], -1)
        q, k, v = (x @ self.of(f"self_attn.{name}_proj").T for name in "qkv")
        r = states + attend(q, k, v, keys, values) @ self.of("self_attn.o_proj").T
        inner = rms(r, self.of("post_attention_layernorm"))
        gated = silu(inner @ self.of("mlp.gate_proj").T) * (inner @ self.of("mlp.up_proj").T)
        return r + gated @ self.of("mlp.down_proj").T

    def loss(self, model, ids, said):
        """Also the share of answers' places at which all drafts up to each step are right."""
        with torch.no_grad():
            out = model(ids, output_hidden_states=True)
            entering = torch.cat([out.hidden_states[layer] for layer in LAYERS], -1)
            wanted, best = log_softmax(out.logits[..., self.row_ids], -1).exp(), out.logits.argmax(-1)
            table = model.model.embed_tokens.weight
        states, keys, values = entering[:, :-1] @ self.t["fc"].T, [], []

        def step_logits(step):
            nonlocal states
            states = self.rows(table[ids[:, 1:]], states.roll(1, 1) if step else states, keys, values)
            return rms(states, self.t["norm"]) @ self.t["lm_head"].T

        return loss_of_drafts(step_logits, ids, said, wanted, best, lambda indices: self.row_ids[indices])


def main():
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 12
    torch.manual_seed(3)
    generator = random.Random(41)
    tokenizer, model = load_model()
    counts = torch.zeros(VOCAB)
    for _ in range(3000):
        ids, said = encode(tokenizer, corpus.conversation(generator))
        counts += torch.bincount(torch.tensor(ids)[torch.tensor(said) > 0], minlength=VOCAB)
    row_ids = counts.topk(DRAFT_VOCAB).indices.sort().values
    head = Head(row_ids)
    train(head, model, tokenizer, generator, minutes)
    OUT.mkdir(exist_ok=True)
    tensors = {name.replace("/", ".") + ".weight": t.detach().bfloat16() for name, t in head.t.items()}
    tensors["d2t"] = row_ids - torch.arange(DRAFT_VOCAB)
    save_file(tensors, OUT / "model.safetensors", {"format": "pt"})
    (OUT / "config.json").write_text(json.dumps(
        {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_act": "silu", "hidden_size": WIDTH,
         "intermediate_size": INNER, "num_hidden_layers": 1, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
         "head_dim": HEAD_DIM, "max_position_embeddings": 2048, "rms_norm_eps": EPS, "rope_theta": THETA,
         "vocab_size": VOCAB, "draft_vocab_size": DRAFT_VOCAB, "torch_dtype": "bfloat16",
         "eagle_config": {"use_aux_hidden_state": True,
                          "eagle_aux_hidden_state_layer_ids": [layer - 1 for layer in LAYERS]}}, indent=1) + "\n")


main()
