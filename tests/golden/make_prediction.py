"""Makes tests/golden/prediction: tiny models with a layer for multi-token prediction in the published layout, answers, and
the tokens that the layer proposes after each token of them. Run by hand, never by the tests.

    pip install torch transformers safetensors
    python3 tests/golden/make_prediction.py

The target and the layer's inside are transformers' own modules in float32; the layer's inputs and its loop are written
here: row i reads [norm(embedding of token i + 1), norm(state behind token i)], has position i, and its normed output is
what the head reads and, in place of a state, the next proposal. Rows 0 to i are computed anew for each proposal.
"""
import json
import pathlib
import shutil

import torch
from safetensors.torch import load_file, save_file
from transformers import (DeepseekV3Config, DeepseekV3ForCausalLM, Glm4MoeConfig, Glm4MoeForCausalLM, Glm4MoeLiteConfig,
                          Glm4MoeLiteForCausalLM)
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3DecoderLayer, DeepseekV3RMSNorm
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeDecoderLayer, Glm4MoeRMSNorm
from transformers.models.glm4_moe_lite.modeling_glm4_moe_lite import Glm4MoeLiteDecoderLayer, Glm4MoeLiteRMSNorm

OUT = pathlib.Path(__file__).resolve().parent / "prediction"
VOCAB, WIDTH, LAYERS, ANSWER, PROPOSALS = 96, 32, 2, 12, 3
COMMON = dict(vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=48, num_hidden_layers=LAYERS, num_attention_heads=4,
              max_position_embeddings=256, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=24,
              first_k_dense_replace=1, n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.5,
              tie_word_embeddings=False, rms_norm_eps=1e-6)


def fill(module, seed):
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if "inv_freq" in name:
            continue
        noise = torch.randn(tensor.shape, generator=generator)
        if "norm" in name and name.endswith("weight"):
            tensor.data.copy_(1 + 0.3 * noise)
        elif name.endswith("bias"):
            tensor.data.copy_(0.1 * noise)
        elif name.endswith("embed_tokens.weight"):
            tensor.data.copy_(noise)
        else:
            tensor.data.copy_(noise * (1.6 / tensor.shape[-1] ** 0.5))


class Predictor(torch.nn.Module):
    def __init__(self, config, layer, norm):
        super().__init__()
        self.layer = layer(config, layer_idx=LAYERS)
        self.enorm, self.hnorm, self.head_norm = (norm(WIDTH, eps=config.rms_norm_eps) for _ in range(3))
        self.eh_proj = torch.nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def run(self, model, tokens, states):
        """The normed outputs of all rows: `tokens` are those after `states`."""
        embedded = model.model.embed_tokens(tokens)
        x = self.eh_proj(torch.cat([self.enorm(embedded), self.hnorm(states)], -1))[None]
        positions = torch.arange(x.shape[1])[None]
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf")).triu(1)[None, None]
        out = self.layer(x, attention_mask=mask, position_ids=positions,
                         position_embeddings=model.model.rotary_emb(x, positions))
        return self.head_norm((out[0] if isinstance(out, tuple) else out)[0])


def propose(model, predictor, ids):
    states = model.model(torch.tensor([ids])).last_hidden_state[0][:-1]
    tokens, proposals = torch.tensor(ids[1:]), []
    for _ in range(PROPOSALS):
        state = predictor.run(model, tokens, states)[-1]
        proposals.append(model.lm_head(state).argmax().item())
        tokens = torch.cat([tokens, torch.tensor(proposals[-1:])])
        states = torch.cat([states, state[None]])
    return proposals


def published_names(predictor):
    """The tensors of the layer as files have them: experts one by one."""
    prefix, tensors = f"model.layers.{LAYERS}.", {}
    for name, tensor in [*predictor.named_parameters(), *predictor.named_buffers()]:
        tensor = tensor.detach()
        name = name.removeprefix("layer.").replace("head_norm", "shared_head.norm")
        if name == "mlp.experts.gate_up_proj":
            for i, one in enumerate(tensor):
                gate, up = one.chunk(2)
                tensors[f"{prefix}mlp.experts.{i}.gate_proj.weight"] = gate
                tensors[f"{prefix}mlp.experts.{i}.up_proj.weight"] = up
        elif name == "mlp.experts.down_proj":
            for i, one in enumerate(tensor):
                tensors[f"{prefix}mlp.experts.{i}.down_proj.weight"] = one
        else:
            tensors[prefix + name] = tensor
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def make(name, model_class, config, layer, norm):
    folder = OUT / name
    config._attn_implementation = "eager"
    model = model_class(config).float().eval()
    fill(model, 5)
    predictor = Predictor(config, layer, norm).float().eval()
    fill(predictor, 7)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    path = folder / "model.safetensors"
    tensors = load_file(path) | published_names(predictor)
    save_file(tensors, path, {"format": "pt"})
    saved = json.loads((folder / "config.json").read_text()) | {"num_nextn_predict_layers": 1}
    saved.pop("mlp_layer_types", None)  # it counts the layer; first_k_dense_replace says the same
    (folder / "config.json").write_text(json.dumps(saved, indent=1))
    generator = torch.Generator().manual_seed(11)
    with open(folder / "proposals.jsonl", "w") as out:
        for length in (1, 3, 19):
            prompt = torch.randint(0, VOCAB, (length,), generator=generator).tolist()
            ids, drafts = list(prompt), []
            for _ in range(ANSWER):
                ids.append(model(torch.tensor([ids])).logits[0, -1].argmax().item())
                drafts.append(propose(model, predictor, ids))
            out.write(json.dumps({"prompt": prompt, "answer": ids[length:], "drafts": drafts}) + "\n")


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    with torch.no_grad():
        make("glm4_moe", Glm4MoeForCausalLM,
             Glm4MoeConfig(**COMMON, num_key_value_heads=2, head_dim=8, partial_rotary_factor=0.5, use_qk_norm=True),
             Glm4MoeDecoderLayer, Glm4MoeRMSNorm)
        make("deepseek_v3", DeepseekV3ForCausalLM,
             DeepseekV3Config(**COMMON, num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=4,
                              qk_nope_head_dim=8, v_head_dim=8), DeepseekV3DecoderLayer, DeepseekV3RMSNorm)
        make("glm4_moe_lite", Glm4MoeLiteForCausalLM,
             Glm4MoeLiteConfig(**COMMON, num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=4,
                               qk_nope_head_dim=12, v_head_dim=16, mlp_layer_types=["dense", "sparse", "sparse"]),
             Glm4MoeLiteDecoderLayer, Glm4MoeLiteRMSNorm)


main()
