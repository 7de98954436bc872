"""What the trainings of models that draft for the demo model share: conversations, the model's modules, rows that attend to
the rows of drafts before them, and the loop. Run by train_wren_eagle3.py and train_wren_mtp.py.
"""
import pathlib
import random
import sys
import time

import sentencepiece
import torch
from torch.nn.functional import log_softmax
from transformers import LlamaForCausalLM

TREE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE.parent / "shared/models/wren"))
import corpus  # noqa: E402

MODEL = TREE / "tests/models/wren"
WIDTH, HEADS, KV_HEADS, HEAD_DIM, EPS, THETA, VOCAB = 256, 4, 2, 64, 1e-5, 10000.0, 2048
STEPS, LENGTH, BATCH = 3, 384, 8


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


def attend(q, k, v, keys, values):
    """Attention of the rows of one draft step [B, L, ...]; appends its keys and values. Row i of step s sees row j of step m
    at i - (s - m) alone, of step 0 all up to there."""
    count, length = q.shape[:2]
    positions = torch.arange(length)

    def heads(x, number):
        return x.view(count, length, number, HEAD_DIM).transpose(1, 2)

    q = rotate(heads(q, HEADS), positions)
    keys.append(rotate(heads(k, KV_HEADS), positions).repeat_interleave(HEADS // KV_HEADS, 1))
    values.append(heads(v, KV_HEADS).repeat_interleave(HEADS // KV_HEADS, 1))
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
    return out.transpose(1, 2).reshape(count, length, -1)


def loss_of_drafts(step_logits, ids, said, wanted, best, token_of):
    """The mean loss of STEPS steps, and the share of answers' places at which all drafts up to each step are right.
    step_logits(step): the logits of all rows of a step; `wanted`: the model's shares of these logits' tokens;
    token_of: their ids."""
    length = ids.shape[1] - 1
    total, rights = 0, []
    right = torch.ones(ids.shape[0], length, dtype=torch.bool)
    for step in range(STEPS):
        # Row i of step s stands where the text is known up to i + 1: its token is text, too.
        logits = step_logits(step)
        known = (torch.arange(length) >= step) & (said.roll(-2, 1)[:, :-1] > 0)
        known[:, -1] = False
        loss = -(wanted[:, 1:] * log_softmax(logits, -1)).sum(-1)
        total = total + 0.8 ** step * loss[known].mean()
        right = (right.roll(1, 1) if step else right) & (token_of(logits.argmax(-1)) == best[:, 1:])
        rights.append(right[known].float().mean().item())
    return total, rights


def batch_of(tokenizer, generator):
    pairs = [encode(tokenizer, corpus.conversation(generator)) for _ in range(BATCH)]
    longest = max(len(ids) for ids, _ in pairs)
    ids = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in pairs])
    return ids, torch.tensor([said + [0] * (longest - len(said)) for _, said in pairs])


def load_model():
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(MODEL / "tokenizer.model"))
    return tokenizer, LlamaForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()


def train(drafter, model, tokenizer, generator, minutes):
    """`drafter` has loss(model, ids, said). Products are in bf16, which takes half the time on processors that have them."""
    optimizer = torch.optim.AdamW(drafter.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.01)
    begun, step, means = time.time(), 0, None
    while (spent := (time.time() - begun) / 60 / minutes) < 1:
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * min(1, (step + 1) / 50) * max(0.02, 1 - spent)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss, rights = drafter.loss(model, *batch_of(tokenizer, generator))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(drafter.parameters(), 1.0)
        optimizer.step()
        now = torch.tensor([loss.item(), *rights])
        means = now if means is None else 0.98 * means + 0.02 * now
        if step % 100 == 0:
            print(step, [round(x, 3) for x in means.tolist()], f"{spent:.0%}", flush=True)
        step += 1
