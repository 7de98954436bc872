"""Makes tests/golden/gguf_adapters: adapters of tests/golden/adapters as the converter of llama.cpp writes them
(convert_lora_to_gguf.py), in its names and its order of rows. Run by hand, never by the tests. The tensors are the
converter's own, except those of experts and of the head of a tied model, which it does not convert.

    pip install gguf numpy safetensors
    python3 tests/golden/make_gguf_adapters.py
"""
import json
import pathlib

import gguf
import numpy as np
from safetensors.numpy import load_file

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "gguf_adapters"
# The adapter, the architecture of its base in GGUF files, and the type of the file's elements.
ADAPTERS = [("llama_yarn/plain", "llama", "F16"), ("mixtral/parameters", "llama", "F32"), ("gemma2/embedding", "gemma2", "F32"),
            ("gemma2/head", "gemma2", "BF16"), ("qwen3_moe/experts", "qwen3moe", "F32"), ("llama_yarn/wide", "llama", "Q8_0")]
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def side_by_side(b, head_dim):
    """The rows of a query's or key's B with the two features of each rotated pair side by side."""
    return b.reshape(-1, 2, head_dim // 2, b.shape[-1]).swapaxes(1, 2).reshape(b.shape)


def experts_of(pairs, layer, tensors, prefix, num_experts, r):
    """Parameters of all experts: A is [experts * r, in], B is [out, r * experts], the expert last."""
    for outer in (True, False):
        at = f"{prefix}.experts" + ("" if outer else ".base_layer")
        a, b = tensors[f"{at}.lora_A.weight"], tensors[f"{at}.lora_B.weight"]
        a, b = a.reshape(num_experts, r, -1), b.reshape(b.shape[0], r, num_experts).transpose(2, 0, 1)
        if a.shape[2] < b.shape[1] and a.shape[2] * 2 != b.shape[1]:
            pairs[f"blk.{layer}.ffn_down_exps"] = (a, b)
            continue
        half = b.shape[1] // 2
        pairs[f"blk.{layer}.ffn_gate_exps"], pairs[f"blk.{layer}.ffn_up_exps"] = (a, b[:, :half]), (a, b[:, half:])


def pairs_of(name, architecture, config, base):
    tensors = {key.removeprefix("base_model.model.model.").removeprefix("base_model.model."): value for key, value in
               load_file(HERE / "adapters" / name / "adapter_model.safetensors").items()}
    head_dim = base.get("head_dim") or base["hidden_size"] // base["num_attention_heads"]
    pairs = {}
    for key, a in sorted(tensors.items()):
        if key == "embed_tokens.lora_embedding_A":
            pairs["token_embd"] = (a.T, tensors["embed_tokens.lora_embedding_B"])
        if not key.endswith(".lora_A.weight") or ".experts" in key:
            continue
        b = tensors[key.replace("lora_A", "lora_B")]
        module = key.removesuffix(".lora_A.weight")
        if module == "lm_head":
            pairs["output"] = (a, b)
            continue
        _, layer, rest = module.split(".", 2)
        if architecture == "llama" and rest in ("self_attn.q_proj", "self_attn.k_proj"):
            b = side_by_side(b, head_dim)
        pairs[f"blk.{layer}.{NAMES[rest]}"] = (a, b)
    for layer in range(base["num_hidden_layers"]):
        count = base.get("num_local_experts") or base.get("num_experts")
        prefix = next((key.split(".experts")[0] for key in tensors if f"layers.{layer}." in key and ".experts" in key), None)
        if prefix is not None:
            if any(".experts.lora_A" in key for key in tensors):
                experts_of(pairs, layer, tensors, prefix, count, config["r"])
                continue
            for part, stored in (("gate_proj", "ffn_gate_exps"), ("up_proj", "ffn_up_exps"), ("down_proj", "ffn_down_exps")):
                both = [np.stack([tensors[f"{prefix}.experts.{i}.{part}.lora_{side}.weight"] for i in range(count)]) for side in "AB"]
                pairs[f"blk.{layer}.{stored}"] = tuple(both)
    return pairs


def make(name, architecture, kind):
    config = json.loads((HERE / "adapters" / name / "adapter_config.json").read_text())
    base = json.loads((HERE / "models" / name.split("/")[0] / "config.json").read_text())
    writer = gguf.GGUFWriter(OUT / (name.replace("/", "-") + ".gguf"), architecture)
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", config["lora_alpha"])
    for module, pair in pairs_of(name, architecture, config, base).items():
        for values, side in zip(pair, "ab"):
            values = np.ascontiguousarray(values, dtype=np.float32)
            own = kind if values.shape[-1] % 32 == 0 or kind != "Q8_0" else "F32"
            stored = gguf.GGMLQuantizationType[own]
            data = gguf.quantize(values, stored)
            writer.add_tensor(f"{module}.weight.lora_{side}", data, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    for one in ADAPTERS:
        make(*one)
