"""Trains tests/models/wren-mtp, a layer for multi-token prediction behind the demo model's layers. Run by hand, never by the tests.

    pip install torch safetensors sentencepiece transformers
    python3 tests/models/train_wren_mtp.py [MINUTES]

The model's class is GLM 4.5's, whose dense layers are the demo model's; the layer has four experts and a shared one. It
learns as the head of train_wren_eagle3.py does; with 0 minutes the layer that is there is taken. proposals.jsonl has what it proposes, computed here row by row, after each
token of answers to conversations that were not trained on.
"""
import json
import random
import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.nn.functional import log_softmax, silu

from wren_drafts import (EPS, HEAD_DIM, HEADS, KV_HEADS, MODEL, STEPS, THETA, TREE, VOCAB, WIDTH, attend, corpus, encode, load_model,
                         loss_of_drafts, rms, train)

OUT = TREE / "tests/models/wren-mtp"
EXPERTS, CHOSEN, INNER, LAYER = 4, 2, 256, 6
ROWS, ANSWER = 60, 40  # of the proposals
LINKS = {"model-1.safetensors": "model.safetensors", "tokenizer.model": "tokenizer.model",
         "tokenizer_config.json": "tokenizer_config.json", "generation_config.json": "generation_config.json"}


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        kv = KV_HEADS * HEAD_DIM
        shapes = {"eh_proj": (WIDTH, 2 * WIDTH), "self_attn.q_proj": (HEADS * HEAD_DIM, WIDTH), "self_attn.k_proj": (kv, WIDTH),
                  "self_attn.v_proj": (kv, WIDTH), "self_attn.o_proj": (WIDTH, HEADS * HEAD_DIM), "mlp.gate": (EXPERTS, WIDTH)}
        for part in ["shared_experts", *(f"experts.{e}" for e in range(EXPERTS))]:
            shapes |= {f"mlp.{part}.gate_proj": (INNER, WIDTH), f"mlp.{part}.up_proj": (INNER, WIDTH),
                       f"mlp.{part}.down_proj": (WIDTH, INNER)}
        self.t = torch.nn.ParameterDict()
        for name, shape in shapes.items():
            self.t[name.replace(".", "/")] = torch.nn.Parameter(torch.randn(shape) / shape[1] ** 0.5)
        for name in ("enorm", "hnorm", "input_layernorm", "post_attention_layernorm", "shared_head.norm"):
            self.t[name.replace(".", "/")] = torch.nn.Parameter(torch.ones(WIDTH))

    def of(self, name):
        return self.t[name.replace(".", "/")]

    def expert(self, x, part):
        gated = silu(x @ self.of(f"mlp.{part}.gate_proj").T) * (x @ self.of(f"mlp.{part}.up_proj").T)
        return gated @ self.of(f"mlp.{part}.down_proj").T

    def feed_forward(self, x):
        scores = (x @ self.of("mlp.gate").T).sigmoid()
        best, chosen = scores.topk(CHOSEN, -1)
        shares = torch.zeros_like(scores).scatter(-1, chosen, best / (best.sum(-1, keepdim=True) + 1e-20))
        out = self.expert(x, "shared_experts")
        for e in range(EXPERTS):
            out = out + shares[..., e:e + 1] * self.expert(x, f"experts.{e}")
        return out

    def rows(self, embedded, states, keys, values):
        """The normed outputs of one draft step: what the head reads, and in place of states the next step."""
        x = torch.cat([rms(embedded, self.of("enorm")), rms(states, self.of("hnorm"))], -1) @ self.of("eh_proj").T
        normed = rms(x, self.of("input_layernorm"))
        q, k, v = (normed @ self.of(f"self_attn.{name}_proj").T for name in "qkv")
        x = x + attend(q, k, v, keys, values) @ self.of("self_attn.o_proj").T
        return rms(x + self.feed_forward(rms(x, self.of("post_attention_layernorm"))), self.of("shared_head.norm"))

    def loss(self, model, ids, said):
        with torch.no_grad():
            states = model.model(ids).last_hidden_state
            logits = model.lm_head(states)
            wanted, best = log_softmax(logits, -1).exp(), logits.argmax(-1)
            table = model.model.embed_tokens.weight
        states, keys, values = states[:, :-1], [], []

        def step_logits(step):
            nonlocal states
            states = self.rows(table[ids[:, 1:]], states.roll(1, 1) if step else states, keys, values)
            return states @ table.T

        return loss_of_drafts(step_logits, ids, said, wanted, best, lambda indices: indices)

    def propose(self, model, ids):
        """The drafts after `ids`: all rows anew for each."""
        states = model.model(torch.tensor([ids])).last_hidden_state[:, :-1]
        tokens, table = ids[1:], model.model.embed_tokens.weight
        for _ in range(STEPS):
            state = self.rows(table[torch.tensor([tokens])], states, [], [])[:, -1:]
            tokens = tokens + [(state[0, 0] @ table.T).argmax().item()]
            states = torch.cat([states, state], 1)
        return tokens[-STEPS:]


def write_model(layer):
    OUT.mkdir(exist_ok=True)
    prefix = f"model.layers.{LAYER}."
    tensors = {prefix + name.replace("/", ".") + ".weight": t.detach().bfloat16() for name, t in layer.t.items()}
    tensors[prefix + "mlp.gate.e_score_correction_bias"] = torch.zeros(EXPERTS)
    save_file(tensors, OUT / "model-2.safetensors", {"format": "pt"})
    for name, target in LINKS.items():
        (OUT / name).unlink(missing_ok=True)
        (OUT / name).symlink_to(f"../wren/{target}")
    with safe_open(MODEL / "model.safetensors", "pt") as file:
        shards = {name: "model-1.safetensors" for name in file.keys()} | {name: "model-2.safetensors" for name in tensors}
    (OUT / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}, indent=1) + "\n")
    config = json.loads((MODEL / "config.json").read_text())
    config |= {"architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "partial_rotary_factor": 1.0, "use_qk_norm": False,
               "first_k_dense_replace": LAYER, "n_routed_experts": EXPERTS, "num_experts_per_tok": CHOSEN, "n_shared_experts": 1,
               "moe_intermediate_size": INNER, "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.0,
               "num_nextn_predict_layers": 1}
    (OUT / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def read_layer(layer):
    stored = load_file(OUT / "model-2.safetensors")
    for name, t in layer.t.items():
        t.data = stored[f"model.layers.{LAYER}.{name.replace('/', '.')}.weight"].float()


def write_proposals(layer, model, tokenizer):
    for t in layer.t.values():
        t.data = t.data.bfloat16().float()
    generator, num_right, count = random.Random(97), [0] * STEPS, 0
    with open(OUT / "proposals.jsonl", "w") as out:
        for _ in range(ROWS):
            ids, said = encode(tokenizer, corpus.conversation(generator))
            prompt = ids[:said.index(1)]
            answer, drafts = list(prompt), []
            while len(answer) < len(prompt) + ANSWER:
                answer.append(model(torch.tensor([answer])).logits[0, -1].argmax().item())
                if answer[-1] == 2:
                    break
                drafts.append(layer.propose(model, answer))
            answer = answer[len(prompt):]
            for i, its in enumerate(drafts[:-STEPS]):
                right = [its[:k + 1] == answer[i + 1:i + 2 + k] for k in range(STEPS)]
                num_right, count = [a + b for a, b in zip(num_right, right)], count + 1
            out.write(json.dumps({"prompt": prompt, "answer": answer[:len(drafts)], "drafts": drafts}) + "\n")
    print("right, up to each draft:", [round(n / count, 3) for n in num_right], "of", count)


def main():
    torch.manual_seed(3)
    tokenizer, model = load_model()
    layer = Layer()
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 12
    if minutes > 0:
        train(layer, model, tokenizer, random.Random(43), minutes)
    with torch.no_grad():
        if minutes > 0:
            write_model(layer)
        else:
            read_layer(layer)
        write_proposals(layer, model, tokenizer)


main()
