"""Makes tests/golden/assistant: a tiny Gemma 4 text model, two assistants that draft for it (with ordered embeddings and
without), random texts, and the tokens that each assistant proposes after each of their last tokens. Run by hand, never by the tests.

    pip install torch transformers safetensors
    python3 tests/golden/make_assistant.py

Model and assistants are transformers' own, in float32. The assistant reads the keys and values that the model has of all
tokens before the last one, which is not computed yet; the loop is written here, because transformers' own lets it see those
of a rejected draft, too.
"""
import json
import pathlib
import shutil

import torch
from transformers import Gemma4AssistantConfig, Gemma4AssistantForCausalLM, Gemma4ForCausalLM, Gemma4TextConfig

OUT = pathlib.Path(__file__).resolve().parent / "assistant"
VOCAB, WIDTH, ANSWER, PROPOSALS = 96, 32, 12, 3
COMMON = dict(vocab_size=VOCAB, intermediate_size=40, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
              max_position_embeddings=256, sliding_window=64, attn_implementation="eager",
              rope_parameters={
                  "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
                  "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}})


def fill(module, seed):
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if "inv_freq" in name or "embed_scale" in name or tensor.dtype != torch.float32:
            continue
        noise = torch.randn(tensor.shape, generator=generator)
        if "norm" in name or "scalar" in name:
            tensor.data.copy_(1 + 0.2 * noise)
        elif "embed_tokens" in name:
            tensor.data.copy_(noise * 0.3)
        elif tensor.dim() > 1:
            tensor.data.copy_(noise * (1.6 / tensor.shape[-1] ** 0.5))


def propose(model, assistant, ids):
    known = model.model(torch.tensor([ids[:-1]]), return_shared_kv_states=True)
    keys = {kind: known.shared_kv_states[kind] for kind in ("full_attention", "sliding_attention")}
    state, token, proposals, is_sure = known.last_hidden_state[:, -1:], ids[-1], [], True
    positions = torch.tensor([[len(ids) - 1]])
    for _ in range(PROPOSALS):
        embedded = model.model.embed_tokens(torch.tensor([[token]]))
        out = assistant(inputs_embeds=torch.cat([embedded, state], -1), position_ids=positions, shared_kv_states=keys)
        top = out.logits[0, -1].topk(2)
        token, state = top.indices[0].item(), out.last_hidden_state
        is_sure &= (top.values[0] - top.values[1]).item() > 1e-3
        proposals.append(token if is_sure else None)
    return proposals


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    kinds = ["sliding_attention", "full_attention"] * 3
    model = Gemma4ForCausalLM(Gemma4TextConfig(**COMMON, hidden_size=WIDTH, num_hidden_layers=6, layer_types=kinds,
                                               global_head_dim=16, num_kv_shared_layers=2, hidden_size_per_layer_input=6,
                                               vocab_size_per_layer_input=VOCAB)).float().eval()
    fill(model, 5)
    model.save_pretrained(OUT / "target")
    (OUT / "target" / "generation_config.json").unlink(missing_ok=True)
    for name, is_ordered in (("plain", False), ("ordered", True)):
        text = Gemma4TextConfig(**COMMON, hidden_size=16, num_hidden_layers=3, global_head_dim=16,
                                layer_types=["sliding_attention", "sliding_attention", "full_attention"],
                                num_kv_shared_layers=3, hidden_size_per_layer_input=0, vocab_size_per_layer_input=0)
        assistant = Gemma4AssistantForCausalLM(Gemma4AssistantConfig(
            text_config=text, backbone_hidden_size=WIDTH, use_ordered_embeddings=is_ordered, num_centroids=8,
            centroid_intermediate_top_k=3)).float().eval()
        fill(assistant, 7)
        if is_ordered:
            ordering = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(3))
            assistant.masked_embedding.token_ordering.copy_(ordering)
        assistant.save_pretrained(OUT / name)
        (OUT / name / "generation_config.json").unlink(missing_ok=True)
        generator = torch.Generator().manual_seed(11)
        with open(OUT / name / "proposals.jsonl", "w") as out:
            for length in (1, 3, 19):
                prompt = torch.randint(3, VOCAB, (length,), generator=generator).tolist()
                ids, drafts = list(prompt), []
                for _ in range(ANSWER):
                    ids.append(torch.randint(3, VOCAB, (1,), generator=generator).item())
                    drafts.append(propose(model, assistant, ids))
                out.write(json.dumps({"prompt": prompt, "answer": ids[length:], "drafts": drafts}) + "\n")


with torch.no_grad():
    main()
