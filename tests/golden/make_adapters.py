"""Makes tests/golden/adapters: adapters (LoRA) of tiny models of tests/golden/models, and greedy answers with each of them by
transformers and peft in float32. Run by hand, never by the tests.

    pip install torch transformers peft safetensors
    python3 tests/golden/make_adapters.py [BASE/NAME ...]

Each adapter is in BASE/NAME, its answers in BASE/NAME/answers.json. Random numbers stand in for trained ones. An answer ends
before the first token whose two best logits nearly tie.
"""
import json
import pathlib
import shutil
import sys
import warnings

import peft
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "adapters"
ANSWER, GAP = 24, 2e-3
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
FUSED = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
# BASE/NAME: keys of LoraConfig.
ADAPTERS = {
    "phi3/fused": dict(r=4, lora_alpha=8, target_modules=FUSED, use_rslora=True),
    "phi3/dora": dict(r=2, lora_alpha=4, target_modules=["qkv_proj", "gate_up_proj"], use_dora=True),
    "phi3/patterns": dict(r=2, lora_alpha=4, target_modules=FUSED, rank_pattern={"^model.layers.0.mlp.down_proj": 3},
                          alpha_pattern={r".*\.1\..*qkv_proj": 9}, layers_to_transform=[0, 1]),
    "qwen3_moe/parameters": dict(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"], target_parameters=EXPERTS),
    "qwen3_moe/router": dict(r=2, lora_alpha=6, target_modules=["o_proj"],
                             target_parameters=["mlp.gate.weight", "mlp.experts.down_proj"]),
    "mixtral/parameters": dict(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"], target_parameters=EXPERTS),
    "gpt_oss/parameters": dict(r=2, lora_alpha=4, target_modules=["q_proj", "o_proj"], target_parameters=EXPERTS),
    "llama_biases/biases": dict(r=2, lora_alpha=4, target_modules=ALL, bias="lora_only"),
    "llama_biases/dora": dict(r=2, lora_alpha=4, target_modules=ALL, bias="lora_only", use_dora=True),
    "llama_biases/lora_bias": dict(r=2, lora_alpha=4, target_modules=ALL, lora_bias=True),
    "qwen3/tables": dict(r=2, lora_alpha=4, target_modules=["embed_tokens", "lm_head", "q_proj"]),
    "qwen3/saved": dict(r=2, lora_alpha=4, target_modules=["q_proj"], modules_to_save=["lm_head", "embed_tokens"]),
    "gemma2/embedding": dict(r=2, lora_alpha=4, target_modules=["embed_tokens", "v_proj"]),
    "gemma2/head": dict(r=2, lora_alpha=4, target_modules=["lm_head", "v_proj"]),
    "gemma2/tokens": dict(r=2, lora_alpha=4, target_modules=["v_proj"], trainable_token_indices=[5, 17, 3, 99]),
    "gemma2/saved": dict(r=2, lora_alpha=4, target_modules=["v_proj"], modules_to_save=["embed_tokens"]),
    "glm4/fused": dict(r=2, lora_alpha=4, target_modules=["q_proj", "k_proj", "gate_up_proj", "o_proj"]),
    "deepseek_v2/latent": dict(r=2, lora_alpha=4, target_modules=["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj"]),
    "qwen3_next/states": dict(r=2, lora_alpha=4, target_modules=["q_proj", "in_proj_qkvz", "in_proj_ba", "out_proj", "o_proj"]),
    "lfm2/states": dict(r=2, lora_alpha=4, target_modules=["q_proj", "in_proj", "out_proj", "w1", "w2"]),
    "llama_yarn/plain": dict(r=4, lora_alpha=6, target_modules=ALL),
    "llama_yarn/wide": dict(r=32, lora_alpha=8, target_modules=["q_proj", "k_proj", "down_proj"]),
    "deepseek_v2/latent_up": dict(r=2, lora_alpha=4, target_modules=["q_b_proj", "kv_b_proj", "o_proj"]),
}


def fill(model, seed):
    """Numbers for all that is trained: those of a fresh adapter would change nothing."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in model.named_parameters():
        noise = torch.randn(tensor.shape, generator=generator)
        if "lora_magnitude" in name:
            tensor.data.mul_(1 + 0.2 * noise)
        elif "lora_embedding_A" in name:
            tensor.data.copy_(0.5 * noise)
        elif "lora_A" in name or "lora_B" in name or "lora_embedding_B" in name:
            tensor.data.copy_(noise * (0.8 / tensor.shape[-1] ** 0.5 if "lora_A" in name else 0.3))
        elif ("modules_to_save" in name or "trainable_tokens_delta" in name) and tensor.dim() == 2:
            tensor.data.add_(0.3 * noise * tensor.data.std())
        elif name.endswith(".bias") and tensor.requires_grad:
            tensor.data.add_(0.1 * noise)


def answer(model, prompt):
    ids = list(prompt)
    for _ in range(ANSWER):
        logits = model(torch.tensor([ids])).logits[0, -1].double()
        best = logits.topk(2).values
        if best[0] - best[1] < GAP:
            break
        ids.append(int(logits.argmax()))
    return ids[len(prompt):]


def split_experts(folder, to, num_experts):
    """The same adapter with matrices for each expert, as older versions of peft name them."""
    shutil.copytree(folder, to)
    tensors, config = load_file(folder / "adapter_model.safetensors"), json.loads((folder / "adapter_config.json").read_text())
    out, r = {}, config["r"]
    for name, tensor in tensors.items():
        if ".experts." not in name:
            out[name] = tensor
            continue
        prefix, part = name.split(".experts.")[0] + ".experts", name.split(".lora_")[1][0]
        outer = ".base_layer." not in name
        other = name.replace(".experts.", ".experts.base_layer.") if outer else name.replace(".base_layer.", ".")
        is_down = tensors[name.replace(f"lora_{part}", "lora_A")].shape[1] < tensors[other.replace(f"lora_{part}", "lora_A")].shape[1]
        for expert in range(num_experts):
            own = tensor[expert * r:(expert + 1) * r] if part == "A" else tensor.reshape(tensor.shape[0], r, num_experts)[:, :, expert]
            names = ["down_proj"] if is_down else ["gate_proj", "up_proj"]
            for i, projection in enumerate(names):
                piece = own if part == "A" else own.chunk(len(names))[i]
                out[f"{prefix}.{expert}.{projection}.lora_{part}.weight"] = piece.contiguous().clone()
    config["target_parameters"] = None
    config["target_modules"] += ["gate_proj", "up_proj", "down_proj"]
    (to / "adapter_config.json").write_text(json.dumps(config, indent=1))
    save_file(out, to / "adapter_model.safetensors")


def make(name, seed):
    base, folder = name.split("/")[0], OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    # Another copy of the base: peft leaves the changed biases of a model whose adapter is switched off.
    plain, model = (AutoModelForCausalLM.from_pretrained(HERE / "models" / base, dtype=torch.float32, attn_implementation="eager",
                                                         experts_implementation="eager").eval() for _ in range(2))
    config = peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights=True, **ADAPTERS[name])
    model = peft.get_peft_model(model, config).eval()
    fill(model, seed)
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    text = json.loads((folder / "adapter_config.json").read_text())
    text["base_model_name_or_path"] = f"models/{base}"
    (folder / "adapter_config.json").write_text(json.dumps(text, indent=1))
    # The copies of the base that peft writes beside changed embeddings are large and change nothing.
    file = folder / "adapter_model.safetensors"
    tensors = load_file(file)
    save_file({key: value for key, value in tensors.items() if not key.endswith("base_layer.weight")}, file)
    generator = torch.Generator().manual_seed(seed)
    cases = []
    with torch.no_grad():
        for i, length in enumerate((1, 6, 19)):
            prompt = torch.randint(3, model.config.get_text_config().vocab_size, (length,), generator=generator).tolist()
            cases.append({"id": f"{base}_{i}", "prompt_token_ids": prompt, "token_ids": answer(model, prompt),
                          "base": answer(plain, prompt)})
    with open(folder / "answers.json", "w") as out:
        json.dump({"base": f"models/{base}", "cases": cases}, out)
    changed = sum(case["token_ids"] != case["base"] for case in cases)
    print(name, [len(case["token_ids"]) for case in cases], f"{changed} of {len(cases)} differ from the base")
    if name == "qwen3_moe/parameters":
        shutil.rmtree(OUT / "qwen3_moe/experts", ignore_errors=True)
        split_experts(folder, OUT / "qwen3_moe/experts", model.config.num_experts)


def main():
    warnings.filterwarnings("ignore")
    wanted = sys.argv[1:] or list(ADAPTERS)
    for seed, name in enumerate(ADAPTERS):
        if name in wanted:
            make(name, seed + 1)


main()
