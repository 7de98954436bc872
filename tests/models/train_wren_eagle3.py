"""Trains tests/models/wren-eagle3, an EAGLE-3 head that drafts for the demo model. Run by hand, never by the tests.

    pip install torch safetensors sentencepiece transformers
    python3 tests/models/train_wren_eagle3.py [MINUTES]

Reads the conversations of ../shared/models/wren/corpus.py, the demo model's own corpus, beside the project. The head learns the
model's distribution at every place of an answer, for three drafts in a row: the row of the second draft reads the state of
the first one's row in place of the model's, and keys of rows that read the model's states, except its own and the last.
"""
import json
import pathlib
import random
import sys
import time

import sentencepiece
import torch
from safetensors.torch import save_file
from torch.nn.functional import log_softmax, silu
from transformers import LlamaForCausalLM

TREE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE.parent / "shared/models/wren"))
import corpus  # noqa: E402

MODEL, OUT = TREE / "tests/models/wren", TREE / "tests/models/wren-eagle3"
WIDTH, HEADS, KV_HEADS, HEAD_DIM, INNER, EPS, THETA = 256, 4, 2, 64, 512, 1e-5, 10000.0
DRAFT_VOCAB, STEPS, LENGTH, BATCH = 1024, 3, 384, 8
LAYERS = [1, 3, 5]  # whose input is read


def encode(tokenizer, messages):
    """Token ids of a conversation, and for each whether the model has to say it."""
    ids, said = [1], [0]
    for message in messages:
        head = tokenizer.encode(f"<|{message['role']}|>\n")
        body = tokenizer.encode(message["content"]) + [2]
        ids += head + body + tokenizer.encode("\n")
        said += [0] * len(head) + [int(message["role"] == "assistant")] * len(body) + [0]
    return ids[:LENGTH], said[:LENGTH]


def rms(x, weight):
    return weight * x * (x.pow(2).mean(-1, keepdim=True) + EPS).rsqrt()


def rotate(x, positions):
    half = HEAD_DIM // 2
    angles = positions[:, None] / THETA ** (torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


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
        """Outputs of one draft step; appends its keys and values. Row i of step s sees row j of step m at i - (s - m) alone,
        of step 0 all up to there."""
        normed = rms(states, self.of("hidden_norm"))
        x = torch.cat([rms(embedded, self.of("input_layernorm")), normed], -1)
        count, length = x.shape[:2]
        positions = torch.arange(length)

        def heads(name, number):
            return (x @ self.of(f"self_attn.{name}").T).view(count, length, number, HEAD_DIM).transpose(1, 2)

        q = rotate(heads("q_proj", HEADS), positions)
        keys.append(rotate(heads("k_proj", KV_HEADS), positions).repeat_interleave(HEADS // KV_HEADS, 1))
        values.append(heads("v_proj", KV_HEADS).repeat_interleave(HEADS // KV_HEADS, 1))
        step = len(keys) - 1
        visible = torch.ones(length, length, dtype=torch.bool).tril(-step)
        parts = [(q @ keys[0].transpose(2, 3)).masked_fill(~visible, float("-inf"))]
        for past in range(1, step + 1):
            moved = keys[past].roll(step - past, 2)
            parts.append((q * moved).sum(-1, keepdim=True))
        shares = (torch.cat(parts, -1) / HEAD_DIM ** 0.5).softmax(-1)
        out = shares[..., :length] @ values[0]
        for past in range(1, step + 1):
            out = out + shares[..., length + past - 1:length + past] * values[past].roll(step - past, 2)
        r = states + out.transpose(1, 2).reshape(count, length, -1) @ self.of("self_attn.o_proj").T
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
        length = ids.shape[1] - 1
        states = entering[:, :-1] @ self.t["fc"].T
        keys, values, total, rights = [], [], 0, []
        right = torch.ones(ids.shape[0], length, dtype=torch.bool)
        for step in range(STEPS):
            # Row i of step s stands where the text is known up to i + 1: its token is text, too.
            states = self.rows(table[ids[:, 1:]], states, keys, values)
            logits = rms(states, self.t["norm"]) @ self.t["lm_head"].T
            known = (torch.arange(length) >= step) & (said.roll(-2, 1)[:, :-1] > 0)
            known[:, -1] = False
            loss = -(wanted[:, 1:] * log_softmax(logits, -1)).sum(-1)
            total = total + 0.8 ** step * loss[known].mean()
            right = (right.roll(1, 1) if step else right) & (self.row_ids[logits.argmax(-1)] == best[:, 1:])
            rights.append(right[known].float().mean().item())
            states = states.roll(1, 1)
        return total, rights


def batch_of(tokenizer, generator):
    pairs = [encode(tokenizer, corpus.conversation(generator)) for _ in range(BATCH)]
    longest = max(len(ids) for ids, _ in pairs)
    ids = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in pairs])
    return ids, torch.tensor([said + [0] * (longest - len(said)) for _, said in pairs])


def main():
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 12
    torch.manual_seed(3)
    generator = random.Random(41)
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(MODEL / "tokenizer.model"))
    model = LlamaForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
    counts = torch.zeros(2048)
    for _ in range(3000):
        ids, said = encode(tokenizer, corpus.conversation(generator))
        counts += torch.bincount(torch.tensor(ids)[torch.tensor(said) > 0], minlength=2048)
    row_ids = counts.topk(DRAFT_VOCAB).indices.sort().values
    head = Head(row_ids)
    optimizer = torch.optim.AdamW(head.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.01)
    begun, step, means = time.time(), 0, None
    while (spent := (time.time() - begun) / 60 / minutes) < 1:
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * min(1, (step + 1) / 50) * max(0.02, 1 - spent)
        loss, rights = head.loss(model, *batch_of(tokenizer, generator))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        now = torch.tensor([loss.item(), *rights])
        means = now if means is None else 0.98 * means + 0.02 * now
        if step % 100 == 0:
            print(step, [round(x, 3) for x in means.tolist()], f"{spent:.0%}", flush=True)
        step += 1
    OUT.mkdir(exist_ok=True)
    tensors = {name.replace("/", ".") + ".weight": t.detach().bfloat16() for name, t in head.t.items()}
    tensors["d2t"] = row_ids - torch.arange(DRAFT_VOCAB)
    save_file(tensors, OUT / "model.safetensors", {"format": "pt"})
    (OUT / "config.json").write_text(json.dumps(
        {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_act": "silu", "hidden_size": WIDTH,
         "intermediate_size": INNER, "num_hidden_layers": 1, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
         "head_dim": HEAD_DIM, "max_position_embeddings": 2048, "rms_norm_eps": EPS, "rope_theta": THETA,
         "vocab_size": 2048, "draft_vocab_size": DRAFT_VOCAB, "torch_dtype": "bfloat16",
         "eagle_config": {"use_aux_hidden_state": True,
                          "eagle_aux_hidden_state_layer_ids": [layer - 1 for layer in LAYERS]}}, indent=1) + "\n")


main()
