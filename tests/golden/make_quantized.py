"""Makes small quantized models, what their matrices mean, and their reference logits. Run by hand, never by the tests:

    python3 tests/golden/make_quantized.py PACKAGES [NAME ...]

Needs torch, transformers, safetensors, numpy and compressed-tensors. PACKAGES is a folder with the unpacked packages
that define the other formats (README.md lists them); they are imported from there and not built. Without names it makes
all models. Running it twice gives the same files.

Every model has random weights that are quantized matrix by matrix. The logits are those of transformers' model in
float64 on the values that the stored tensors mean by the format's definition, computed in float32 in its order; they
are compared with what the package that defines the format makes of the same tensors, which are kept too. Checked here
as well: every scale, zero point, order and global scale changes the logits by far more than the tests' tolerance if a
reader takes it from the wrong group, row, part or expert, and so does every matrix.
"""
import json
import logging
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import torch
import transformers
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import QuantizationConfig
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

import make_architectures as base
from architectures import LEFT_OUT, Variant, config
from quantized_formats import Awq, CompressedTensors, Fp8Block, Gptq, ModelOptFp8, ModelOptNvfp4, Mxfp4GptOss, Packages

HERE = Path(__file__).resolve().parent
FLOAT32_MAX = 2e-5
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# Parts that are stacked when a model is loaded differ in size by more than any rounding.
PART_SIZE = dict(zip(PROJECTIONS, (0.5, 2.0, 3.0, 0.4, 0.7, 2.5, 0.5)))
VALUES_OF_LAYER = 1


@dataclass
class Model:
    name: str
    config: dict
    formats: list  # (pattern of modules, format): the first that matches
    quantization: dict  # of config.json, as the publishers write it
    dtype: torch.dtype = torch.bfloat16
    files: dict = field(default_factory=dict)  # other JSON files
    compressed_tensors: bool = False  # then `quantization` goes through the package
    embedding: float = 1.0

    def format_of(self, module):
        return next((format for pattern, format in self.formats if re.fullmatch(pattern, module)), None)

    def variant(self):
        return Variant(f"quant_{self.name}", self.config, dtype=self.dtype, embedding=self.embedding,
                       tied=self.config.get("tie_word_embeddings", False), distinct_min=6,
                       experts_in_first="gpt_oss" in self.config["model_type"])


LINEAR = r"model\.layers\.\d+\..*(q|k|v|o|gate|up|down)_proj"


def small(architecture, model_type, dtype="bfloat16", **keys):
    return config(architecture, model_type, **({
        "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "vocab_size": 100, "torch_dtype": dtype, "attention_bias": False, "mlp_bias": False} | keys)) | {
            "hidden_size": keys.get("hidden_size", 64)}


def llama(**keys):
    return small("LlamaForCausalLM", "llama", rope_scaling=None, pretraining_tp=1, **keys)


def qwen2(**keys):
    return small("Qwen2ForCausalLM", "qwen2", attention_bias=LEFT_OUT, mlp_bias=LEFT_OUT, head_dim=LEFT_OUT,
                 use_sliding_window=False, sliding_window=64, max_window_layers=1, rms_norm_eps=1e-6,
                 rope_theta=1000000.0, **keys)


def qwen3(**keys):
    return small("Qwen3ForCausalLM", "qwen3", mlp_bias=LEFT_OUT, use_sliding_window=False, sliding_window=None,
                 max_window_layers=2, rms_norm_eps=1e-6, rope_theta=1000000.0, rope_scaling=None, **keys)


def qwen3_moe(**keys):
    return small("Qwen3MoeForCausalLM", "qwen3_moe", mlp_bias=LEFT_OUT, **({
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "decoder_sparse_step": 1,
        "mlp_only_layers": [], "norm_topk_prob": True, "output_router_logits": False, "router_aux_loss_coef": 0.001,
        "use_sliding_window": False, "sliding_window": None, "max_window_layers": 2, "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0, "rope_scaling": None} | keys))


def compressed(name, model_config, format, groups, ignore=("lm_head",), dtype=torch.bfloat16):
    """`groups`: (targets, format), of one format as a whole or, if they differ, of mixed precision."""
    formats, config_groups = [], {}
    for i, (targets, how) in enumerate(groups):
        config_groups[f"group_{i}"] = how.scheme().model_copy(update={"targets": targets})
        pattern = "|".join(target.removeprefix("re:") if target.startswith("re:") else LINEAR for target in targets)
        formats.append((pattern, how))
    ignored = "|".join(entry.removeprefix("re:") for entry in ignore)
    formats.insert(0, (ignored, None))
    quantization = {"config_groups": config_groups, "format": format, "quantization_status": "compressed",
                    "ignore": list(ignore)}
    return Model(name, model_config, formats, quantization, dtype=dtype, compressed_tensors=True)


def packed(bits, strategy="group", symmetric=True, **keys):
    return {"num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": strategy} | keys


MODELS = [
    compressed("ct_int4", llama(), "pack-quantized",
               [(["Linear"], CompressedTensors(packed(4, group_size=32), "pack-quantized"))]),
    Model("gptq", qwen2(dtype="float16"), [(LINEAR, Gptq(symmetric=False))],
          {"bits": 4, "damp_percent": 0.01, "desc_act": False, "group_size": 32, "model_file_base_name": None,
           "model_name_or_path": None, "quant_method": "gptq", "static_groups": False, "sym": False,
           "true_sequential": True}, dtype=torch.float16),
    Model("awq", qwen2(dtype="float16"), [(LINEAR, Awq())],
          {"bits": 4, "group_size": 32, "modules_to_not_convert": None, "quant_method": "awq", "version": "gemm",
           "zero_point": True}, dtype=torch.float16),
    Model("fp8_block", qwen3(hidden_size=136, head_dim=34, num_key_value_heads=1, intermediate_size=24,
                             tie_word_embeddings=True, vocab_size=90),
          [(r"model\.layers\.0\.mlp\.down_proj", None), (LINEAR, Fp8Block(torch.bfloat16))],
          {"activation_scheme": "dynamic", "fmt": "e4m3",
           "modules_to_not_convert": [
               "lm_head", "model.layers.0.input_layernorm", "model.layers.0.mlp.down_proj",
               "model.layers.0.post_attention_layernorm", "model.layers.1.input_layernorm",
               "model.layers.1.post_attention_layernorm"],
           "quant_method": "fp8", "weight_block_size": [128, 128]}, embedding=0.3),
    Model("mxfp4_gpt_oss",
          small("GptOssForCausalLM", "gpt_oss", mlp_bias=LEFT_OUT, attention_bias=True, num_local_experts=4,
                num_experts_per_tok=2, experts_per_token=2, intermediate_size=32, sliding_window=11, swiglu_limit=7.0,
                initial_context_length=64, layer_types=["sliding_attention", "full_attention"], pad_token_id=0,
                output_router_logits=False, router_aux_loss_coef=0.9, rope_theta=150000,
                rope_scaling={"beta_fast": 32.0, "beta_slow": 1.0, "factor": 8.0, "original_max_position_embeddings": 64,
                              "rope_type": "yarn", "truncate": False}),
          [(r"model\.layers\.\d\.mlp\.experts\.(gate_up|down)_proj", Mxfp4GptOss())],
          {"modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
                                      "lm_head"], "quant_method": "mxfp4"}),
]


def is_stacked(module):
    return module.endswith("gate_up_proj") or module.endswith("experts.down_proj")


def make_dense(model, folder):
    """The names and random weights of the model that is not quantized, as the hub has them."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(model.config))
    dense = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    generator = torch.Generator().manual_seed(base.seed_of(model.name))
    for name, parameter in dense.named_parameters():
        parameter.data.copy_(base.random_parameter(name, parameter.shape, model.variant(), generator))
    dense.save_pretrained(folder)
    return load_file(folder / "model.safetensors"), generator


def make_uneven(weight, module, format, generator):
    """Blocks of very different sizes, and ranges that zero lies anywhere in."""
    if is_stacked(module):
        return torch.stack([make_uneven(expert, "", format, generator) for expert in weight])
    rows, columns = format.grid(tuple(weight.shape))
    count = (-(-weight.shape[0] // rows), -(-weight.shape[1] // columns))
    uneven = lambda grid: grid.repeat_interleave(rows, 0)[:weight.shape[0]].repeat_interleave(columns, 1)[:, :weight.shape[1]]
    random = lambda: torch.rand(count, generator=generator, dtype=torch.float64) * 2 - 1
    size, shift = 2.0 ** (1.5 * random()), 0.8 * random() * weight.std()
    expert = re.search(r"experts\.(\d+)\.", module)
    size *= PART_SIZE.get(module.rsplit(".", 1)[-1], 1.0) * (2.0 ** (int(expert[1]) % 3 - 1) if expert else 1.0)
    return (weight + uneven(shift)) * uneven(size)


def quantize(model, dense, generator):
    """The tensors of the file, and those of quantized modules by module."""
    stored, quantized = {}, {}
    for name, weight in sorted(dense.items()):
        module = name.removesuffix(".weight")
        format = model.format_of(module) if not name.endswith("bias") else None
        if format is None:
            stored[name] = weight.to(model.dtype)
            continue
        weight = weight.double()
        weight = weight.transpose(1, 2) if is_stacked(module) else weight
        tensors = format.store(make_uneven(weight, module, format, generator), generator)
        quantized[module] = {key: value.contiguous() for key, value in tensors.items()}
        separator = "_" if is_stacked(module) else "."
        stored |= {f"{module}{separator}{key}": value for key, value in quantized[module].items()}
    return stored, quantized


def write_config(model, folder):
    path = folder / "config.json"
    path.write_text(json.dumps(model.config))
    if model.compressed_tensors:
        ModelCompressor(quantization_config=QuantizationConfig(**model.quantization)).update_config(folder)
        text = path.read_text()
    else:
        text = json.dumps(model.config | {"quantization_config": model.quantization}, indent=2)
    path.write_text(text.rstrip() + "\n")
    for name, content in model.files.items():
        (folder / name).write_text(json.dumps(content, indent=4) + "\n")


def save(tensors, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)


def dense_name(module):
    return module if is_stacked(module) else module + ".weight"


def dense_layout(module, values):
    return values.transpose(1, 2).contiguous() if is_stacked(module) else values


def all_values(model, quantized):
    return {module: model.format_of(module).values(tensors) for module, tensors in quantized.items()}


def compare_with_package(model, quantized):
    """What the package makes of the tensors, and how far its type is from the definition in float32."""
    values, kept, worst, types = all_values(model, quantized), {}, 0.0, set()
    for module, tensors in quantized.items():
        found = model.format_of(module).package({key: value.clone() for key, value in tensors.items()})
        wanted = values[module]
        assert wanted.dtype == torch.float32 and wanted.shape == found.shape and wanted.isfinite().all(), module
        assert torch.equal(wanted.to(found.dtype), found), f"{module}: the package computes something else"
        worst = max(worst, ((found.float() - wanted).abs() / wanted.abs().clamp(min=1e-30)).max().item())
        types.add(str(found.dtype).removeprefix("torch."))
        if f".layers.{VALUES_OF_LAYER}." in module:
            kept[module + ".weight"] = found.float().contiguous()
    return kept, worst, types


class Reference:
    """transformers' model in one type, whose matrices can be replaced."""

    def __init__(self, model, folder, dtype):
        self.network = base.load(folder, dtype, model.variant())
        self.parameters = dict(self.network.named_parameters())

    def place(self, module):
        """The parameter of a module, or the part of one that holds it."""
        expert = re.fullmatch(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj", module)
        if not expert:
            return self.parameters[dense_name(module)].data
        if expert[3] == "down":
            return self.parameters[f"{expert[1]}.down_proj"].data[int(expert[2])]
        both = self.parameters[f"{expert[1]}.gate_up_proj"].data[int(expert[2])]
        half = both.shape[0] // 2
        return both[:half] if expert[3] == "gate" else both[half:]

    def set(self, module, values):
        self.place(module).copy_(dense_layout(module, values))

    def logits(self, prompts):
        return [base.logits_of(self.network, ids) for ids in prompts]


def mistakes(model, quantized):
    """Readings that must not pass: every kind of tensor shifted by one place along each dimension, or taken from the next
    module where it is a single number. Tensors that hold one value throughout cannot show it."""
    kinds = sorted({(key, value.ndim) for tensors in quantized.values() for key, value in tensors.items()
                    if key not in ("weight_shape", "input_scale")})
    for key, dimensions in kinds:
        holders = [module for module, tensors in quantized.items() if key in tensors]
        single = all(quantized[module][key].numel() == 1 for module in holders)
        if single:
            others = dict(zip(holders, holders[1:] + holders[:1]))
            yield f"{key} of another module", {m: quantized[m] | {key: quantized[others[m]][key]} for m in holders}
            continue
        if all((quantized[m][key] == quantized[m][key].flatten()[0]).all() for m in holders):
            print(f"  {key} is the same everywhere")
            continue
        for d in range(dimensions):
            if any(quantized[m][key].shape[d] > 1 for m in holders):
                yield f"{key} shifted along {d}", {m: quantized[m] | {key: quantized[m][key].roll(1, d)} for m in holders}


def check_effects(model, reference, quantized, values, prompts, logits):
    least = (float("inf"), "nothing")

    def check(what, changed):
        nonlocal least
        for module, new in changed.items():
            reference.set(module, new)
        effect = base.relative(reference.logits(prompts), logits)
        for module in changed:
            reference.set(module, values[module])
        assert not effect < base.EFFECT_MIN, f"{model.name}: {what} changes only {effect:.1e}"
        least = min(least, (effect, what))

    for what, tensors in mistakes(model, quantized):
        check(what, {module: model.format_of(module).values(changed) for module, changed in tensors.items()})
    for module in quantized:
        check(f"{module} in another order", {module: values[module].flip(-2)})
    return least


def make(model):
    folder, variant = HERE / "models" / f"quant_{model.name}", model.variant()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        dense, generator = make_dense(model, Path(temporary) / "dense")
        stored, quantized = quantize(model, dense, generator)
        save(stored, folder / "model.safetensors")
        write_config(model, folder)
        kept, worst, types = compare_with_package(model, quantized)
        save(kept, HERE / "values" / f"quant_{model.name}" / "model.safetensors")
        values = all_values(model, quantized)
        plain = Path(temporary) / "values"
        plain.mkdir()
        (plain / "config.json").write_text(json.dumps(model.config | {"torch_dtype": "float32"}))
        save({name: value.float() for name, value in stored.items() if name in dense} |
             {dense_name(m): dense_layout(m, value).contiguous() for m, value in values.items()}, plain / "model.safetensors")
        with base.Widen() as widen:
            reference = Reference(model, plain, torch.float64)
            base.check_no_float32(reference.network)
            assert all(torch.equal(reference.place(m).float(), dense_layout(m, v)) for m, v in values.items())
            widen.strict = True
            rng, prompts, logits = base.choose_prompts(reference.network, variant, base.seed_of(variant.name))
            base.write_logits(variant, folder, rng, prompts, logits)
            distinct = base.write_greedy(variant, folder, reference.network)
        narrow = Reference(model, plain, torch.float32)
    difference = base.relative(narrow.logits(prompts), logits)
    assert difference < FLOAT32_MAX, f"{model.name}: float32 differs by {difference:.1e}"
    least = check_effects(model, narrow, quantized, values, prompts, logits)
    size = (folder / "model.safetensors").stat().st_size
    print(f"{model.name}: {size} bytes; {', '.join(sorted(types))} of the package differs by {worst:.1e}; float32 by "
          f"{difference:.1e}; least effect {least[0]:.3f} of {least[1]}; distinct tokens {distinct}", flush=True)


def main():
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    Packages.folder = Path(sys.argv[1])
    print("torch", torch.__version__, "transformers", transformers.__version__)
    for model in MODELS:
        if model.name in sys.argv[2:] or len(sys.argv) == 2:
            with torch.no_grad():
                make(model)


if __name__ == "__main__":
    main()
