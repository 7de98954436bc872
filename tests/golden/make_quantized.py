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
from quantized_formats import (Awq, CompressedTensors, Fp8Block, Fp8Tensor, Gptq, ModelOptFp8, ModelOptNvfp4,
                               Mxfp4GptOss, Packages, spread)

HERE = Path(__file__).resolve().parent
FLOAT32_MAX = 2e-5
MODELS_MAX = 8
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# Parts that are stacked when a model is loaded differ in size by more than any rounding.
PART_SIZE = dict(zip(PROJECTIONS, (0.5, 2.0, 3.0, 0.4, 0.7, 2.5, 0.5)))
# Of these modules the package's values are kept.
KEPT = (r"model\.layers\.1\.(self_attn\.([kv]_proj|kv_b_proj)|mlp\.(experts\.[03]\.)?(gate|down)_proj|"
        r"mlp\.experts\.(gate_up|down)_proj)")


@dataclass
class Model:
    name: str
    config: dict
    formats: list  # (pattern of modules, format): the first that matches
    quantization: dict  # of config.json, as the publishers write it; None if it stands in another file
    dtype: torch.dtype = torch.bfloat16
    files: dict = field(default_factory=dict)  # other JSON files
    compressed_tensors: bool = False  # then `quantization` goes through the package
    key_value_scales: bool = False  # of a quantized cache, which a reader of weights does not need
    embedding: float = 1.0

    def format_of(self, module):
        return next((format for pattern, format in self.formats if re.fullmatch(pattern, module)), None)

    def variant(self):
        return Variant(f"quant_{self.name}", self.config, dtype=self.dtype, embedding=self.embedding,
                       tied=self.config.get("tie_word_embeddings", False), distinct_min=6,
                       experts_in_first="gpt_oss" in self.config["model_type"])


LATENT = r"model\.layers\.\d+\..*(q_a|q_b|kv_b|o|gate|up|down)_proj|.*kv_a_proj_with_mqa"
LINEAR = r"model\.layers\.\d+\..*(q|k|v|o|gate|up|down)_proj"


def small(architecture, model_type, dtype="bfloat16", **keys):
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
             "head_dim": 16, "vocab_size": 100, "torch_dtype": dtype, "attention_bias": False, "mlp_bias": False} | keys
    return config(architecture, model_type, **sizes) | {"hidden_size": sizes["hidden_size"]}


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


def deepseek_v3(**keys):
    return small("DeepseekV3ForCausalLM", "deepseek_v3", **({
        "head_dim": LEFT_OUT, "mlp_bias": LEFT_OUT, "kv_lora_rank": 132, "q_lora_rank": 136, "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16, "v_head_dim": 24, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2,
        "topk_group": 1, "n_shared_experts": 1, "moe_intermediate_size": 16, "first_k_dense_replace": 1,
        "routed_scaling_factor": 1.5, "norm_topk_prob": True, "num_nextn_predict_layers": 0,
        "rope_scaling": None} | keys))


def compressed(name, model_config, format, groups, ignore=("lm_head",), **keys):
    """`groups`: (targets, format). Names come before expressions, and these before the class Linear, in any order."""
    formats = [(re.escape(entry) if not entry.startswith("re:") else entry[3:], None) for entry in ignore]
    rank = lambda pair: 2 if pair[0] == "Linear" else int(pair[0].startswith("re:"))
    for target, how in sorted([(target, how) for targets, how in groups for target in targets], key=rank):
        formats.append((LINEAR if target == "Linear" else target.removeprefix("re:"), how))
    config_groups = {f"group_{i}": how.scheme() | {"targets": targets} for i, (targets, how) in enumerate(groups)}
    quantization = {"config_groups": config_groups, "format": format, "quantization_status": "compressed",
                    "ignore": list(ignore)}
    return Model(name, model_config, formats, quantization, compressed_tensors=True, **keys)


def packed(bits, strategy="group", symmetric=True, **keys):
    return {"num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": strategy} | keys


def floats(bits, strategy, **keys):
    return {"num_bits": bits, "type": "float", "symmetric": True, "strategy": strategy, "dynamic": False} | keys


FP8_TOKEN = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "token", "dynamic": True}
INT8_TOKEN = FP8_TOKEN | {"type": "int"}
E4M3_SCALE = {"group_size": 16, "scale_dtype": "torch.float8_e4m3fn"}
E8M0_SCALE = {"group_size": 32, "scale_dtype": "torch.uint8"}
# Blocks of 128 have edges of 4 and 8.
RAGGED = {"hidden_size": 132, "head_dim": 44, "num_attention_heads": 3, "num_key_value_heads": 1,
          "intermediate_size": 16, "vocab_size": 66}
RAGGED_MOE = {"hidden_size": 136, "head_dim": 32, "num_attention_heads": 2, "num_key_value_heads": 1,
              "moe_intermediate_size": 16, "tie_word_embeddings": True, "vocab_size": 90}
NORMS = [f"model.layers.{i}.{name}_layernorm" for i in (0, 1) for name in ("input", "post_attention")]
PRODUCER = {"name": "modelopt", "version": "0.47.0"}


def older_spelling(model):
    """As the first versions wrote it: a ratio, no formats of groups, and weights that are called frozen."""
    arguments = {"block_structure": None, "group_size": None, "observer": "minmax", "observer_kwargs": {}}
    groups = {name: {"input_activations": arguments | scheme["input_activations"], "output_activations": None,
                     "targets": scheme["targets"], "weights": arguments | scheme["weights"]}
              for name, scheme in model.quantization["config_groups"].items()}
    model.quantization = {
        "config_groups": groups, "format": "naive-quantized", "global_compression_ratio": 1.2390114801129438,
        "ignore": model.quantization["ignore"], "kv_cache_scheme": None, "quant_method": "compressed-tensors",
        "quantization_status": "frozen"}
    model.compressed_tensors = False
    return model


def old_spelling(model, version="0.12.2"):
    """As compressed-tensors wrote configurations before 0.13; null for what is not used."""
    arguments = {"actorder": None, "block_structure": None, "dynamic": False, "group_size": None,
                 "observer": "minmax", "observer_kwargs": {}}
    groups = {name: {"format": scheme["format"], "input_activations": None, "output_activations": None,
                     "targets": scheme["targets"], "weights": dict(sorted((arguments | scheme["weights"]).items()))}
              for name, scheme in model.quantization["config_groups"].items()}
    model.quantization = {
        "config_groups": groups, "format": model.quantization["format"], "global_compression_ratio": None,
        "ignore": model.quantization["ignore"], "kv_cache_scheme": None, "quant_method": "compressed-tensors",
        "quantization_status": "compressed", "sparsity_config": {}, "transform_config": {}, "version": version}
    model.compressed_tensors = False
    return model


def gptq(name, symmetric, **keys):
    """The configuration as gptqmodel writes it; what it notes of its own run is left at a few lines."""
    how = Gptq(symmetric=symmetric, **keys)
    layout = "gptq" if how.version == 1 else "gptq_v2"
    meta = {"act_group_aware": not how.order, "damp_percent": 0.05, "mse": 0.0, "quantizer": ["gptqmodel:7.7.0"],
            "static_groups": False, "true_sequential": True, "uri": "https://github.com/modelcloud/gptqmodel"}
    return Model(name, qwen2(dtype="float16"), [(LINEAR, how)],
                 {"bits": how.bits, "group_size": how.group, "desc_act": how.order, "lm_head": False, "method": "gptq",
                  "quant_method": "gptq", "format": layout, "checkpoint_format": layout, "pack_dtype": "int32",
                  "meta": meta, "sym": symmetric}, dtype=torch.float16)


FP8 = {"activation_scheme": "dynamic", "quant_method": "fp8", "weight_block_size": [128, 128]}
MODELS = [
    Model("mxfp4_gpt_oss",
          small("GptOssForCausalLM", "gpt_oss", mlp_bias=LEFT_OUT, attention_bias=True, num_local_experts=4,
                num_experts_per_tok=2, experts_per_token=2, intermediate_size=32, sliding_window=11, swiglu_limit=7.0,
                initial_context_length=64, layer_types=["sliding_attention", "full_attention"], pad_token_id=0,
                output_router_logits=False, router_aux_loss_coef=0.9, rope_theta=150000,
                rope_scaling={"beta_fast": 32.0, "beta_slow": 1.0, "factor": 8.0,
                              "original_max_position_embeddings": 64, "rope_type": "yarn", "truncate": False}),
          [(r"model\.layers\.\d\.mlp\.experts\.(gate_up|down)_proj", Mxfp4GptOss())],
          {"modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
                                      "lm_head"], "quant_method": "mxfp4"}),
    Model("fp8_block", qwen3(hidden_size=136, head_dim=34, num_key_value_heads=1, intermediate_size=24,
                             tie_word_embeddings=True, vocab_size=90),
          [(r"model\.layers\.0\.mlp\.down_proj", None), (LINEAR, Fp8Block(torch.bfloat16))],
          {"activation_scheme": "dynamic", "fmt": "e4m3",
           "modules_to_not_convert": ["lm_head", "model.layers.0.input_layernorm", "model.layers.0.mlp.down_proj",
                                      *NORMS[1:]],
           "quant_method": "fp8", "weight_block_size": [128, 128]}, embedding=0.1),
    Model("fp8_block_moe", qwen3_moe(**RAGGED_MOE), [(r".*mlp\.gate", None), (LINEAR, Fp8Block())],
          FP8 | {"fmt": "e4m3", "modules_to_not_convert": ["lm_head", *NORMS, "model.layers.0.mlp.gate",
                                                           "model.layers.1.mlp.gate"]}, embedding=0.1),
    Model("fp8_block_latent", deepseek_v3(num_attention_heads=3, num_key_value_heads=3),
          [(r".*mlp\.gate", None), (LATENT, Fp8Block())], FP8 | {"fmt": "e4m3"}),
    Model("fp8_ue8m0", llama(**RAGGED), [(LINEAR, Fp8Block(torch.float8_e8m0fnu, True))],
          FP8 | {"modules_to_not_convert": ["lm_head"], "scale_fmt": "ue8m0"}),
    Model("fp8_tensor", qwen2(), [(LINEAR, Fp8Tensor())],
          {"activation_scheme": "static", "ignored_layers": ["lm_head"], "quant_method": "fp8"}),
    older_spelling(compressed(
        "ct_fp8_tensor", llama(), "float-quantized",
        [(["Linear"], CompressedTensors(floats(8, "tensor"), "float-quantized",
                                        FP8_TOKEN | {"strategy": "tensor", "dynamic": False}))])),
    compressed("ct_fp8_channel", qwen3(), "float-quantized",
               [(["Linear"], CompressedTensors(floats(8, "channel"), "float-quantized", FP8_TOKEN))]),
    compressed("ct_fp8_block", llama(**RAGGED), "float-quantized",
               [(["Linear"], CompressedTensors(floats(8, "block", block_structure=[128, 128]), "float-quantized",
                                               FP8_TOKEN | {"strategy": "group", "group_size": 128}))]),
    Model("modelopt_fp8", llama(), [(LINEAR, ModelOptFp8())], None, key_value_scales=True,
          files={"hf_quant_config.json": {"producer": PRODUCER, "quantization": {
              "quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}}),
    compressed("ct_int4", llama(), "pack-quantized",
               [(["Linear"], CompressedTensors(packed(4, group_size=32), "pack-quantized"))]),
    compressed("ct_int4_zero", llama(head_dim=12, num_key_value_heads=1, intermediate_size=80), "pack-quantized",
               [(["Linear"], CompressedTensors(packed(4, symmetric=False, group_size=16), "pack-quantized"))]),
    old_spelling(compressed(
        "ct_int4_order", llama(), "pack-quantized",
        [(["Linear"], CompressedTensors(packed(4, group_size=32, actorder="group"), "pack-quantized",
                                        old="ct*old"))])),
    old_spelling(compressed(
        "ct_int8_channel", qwen3(hidden_size=58, head_dim=10, intermediate_size=43), "pack-quantized",
        [(["Linear"], CompressedTensors(packed(8, "channel"), "pack-quantized"))])),
    compressed("ct_w8a8", qwen2(), "int-quantized",
               [(["Linear"], CompressedTensors(packed(8, "channel"), "int-quantized", INT8_TOKEN))]),
    compressed("ct_mixed", llama(), "mixed-precision",
               [(["Linear"], CompressedTensors(packed(4, group_size=32), "pack-quantized")),
                ([r"re:.*self_attn\.(q|k|v|o)_proj$"],
                 CompressedTensors(floats(8, "channel"), "float-quantized", FP8_TOKEN)),
                (["model.layers.1.mlp.down_proj"], CompressedTensors(packed(8, "channel"), "pack-quantized"))],
               ignore=["lm_head", r"re:.*layers\.0\.mlp\.d.*"]),
    compressed("ct_int4_moe", qwen3_moe(), "pack-quantized",
               [(["Linear"], CompressedTensors(packed(4, group_size=32), "pack-quantized"))],
               ignore=["lm_head", "re:.*mlp.gate$"]),
    Model("gptq", qwen2(dtype="float16"), [(LINEAR, Gptq(symmetric=False))],
          {"bits": 4, "damp_percent": 0.01, "desc_act": False, "group_size": 32, "model_file_base_name": None,
           "model_name_or_path": None, "quant_method": "gptq", "static_groups": False, "sym": False,
           "true_sequential": True}, dtype=torch.float16),
    gptq("gptq_v2", False, version=2),
    gptq("gptq_order", True, order=True),
    gptq("gptq_int8", True, bits=8),
    Model("awq", qwen2(dtype="float16"), [(LINEAR, Awq())],
          {"bits": 4, "group_size": 32, "modules_to_not_convert": None, "quant_method": "awq", "version": "gemm",
           "zero_point": True}, dtype=torch.float16),
    compressed("nvfp4_ct", llama(), "nvfp4-pack-quantized",
               [(["Linear"], CompressedTensors(floats(4, "tensor_group", **E4M3_SCALE), "nvfp4-pack-quantized",
                                               floats(4, "tensor_group", **E4M3_SCALE) | {"dynamic": "local"}))]),
    Model("nvfp4_modelopt", llama(), [(r"model\.layers\.0\.self_attn.*", None), (LINEAR, ModelOptNvfp4())],
          {"config_groups": {"group_0": {
              "input_activations": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16},
              "weights": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}, "targets": ["Linear"]}},
           "ignore": ["lm_head", "model.layers.0.self_attn*"], "quant_algo": "NVFP4", "producer": PRODUCER,
           "quant_method": "modelopt"},
          files={"hf_quant_config.json": {"producer": PRODUCER, "quantization": {
              "quant_algo": "NVFP4", "kv_cache_quant_algo": None, "group_size": 16,
              "exclude_modules": ["lm_head", "model.layers.0.self_attn*"]}}}),
    Model("nvfp4_moe", qwen3_moe(), [(r".*mlp\.gate", None), (LINEAR, ModelOptNvfp4())],
          {"config_groups": {"group_0": {
              "input_activations": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16},
              "weights": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}, "targets": ["Linear"]}},
           "ignore": ["lm_head", "model.layers.0.mlp.gate", "model.layers.1.mlp.gate"], "quant_algo": "NVFP4",
           "producer": PRODUCER, "quant_method": "modelopt"}),
    compressed("mxfp4_ct", llama(), "mxfp4-pack-quantized",
               [(["Linear"], CompressedTensors(floats(4, "group", **E8M0_SCALE), "mxfp4-pack-quantized"))]),
    compressed("mxfp8_ct", llama(), "mxfp8-quantized",
               [(["Linear"], CompressedTensors(floats(8, "group", **E8M0_SCALE), "mxfp8-quantized",
                                               floats(8, "group", **E8M0_SCALE) | {"dynamic": True}))]),
]


def is_stacked(module):
    return module.endswith("gate_up_proj") or module.endswith(".experts.down_proj")


def make_dense(model, folder, seed):
    """The names and random weights of the model that is not quantized, as the hub has them."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(model.config))
    dense = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    generator = torch.Generator().manual_seed(base.seed_of(model.name) + 100000 * seed)
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
    uneven = lambda grid: spread(grid, rows, columns, weight.shape)
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
        if model.key_value_scales and module.endswith(("k_proj", "v_proj")):
            key = "k_scale" if module.endswith("k_proj") else "v_scale"
            stored[f"{module}.{key}"] = 0.5 + torch.rand([], generator=generator)
    return stored, quantized


def write_config(model, folder):
    path = folder / "config.json"
    path.write_text(json.dumps(model.config))
    if model.compressed_tensors:
        ModelCompressor(quantization_config=QuantizationConfig(**model.quantization)).update_config(folder)
        text = path.read_text()
    elif model.quantization is None:
        text = json.dumps(model.config, indent=2)
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
        if re.fullmatch(KEPT, module):
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
    """Readings that must not pass: every kind of tensor shifted by one place along each dimension, or taken from the
    next module where it is a single number. Tensors that hold one value throughout cannot show it."""
    kinds = sorted({(key, value.ndim) for tensors in quantized.values() for key, value in tensors.items()
                    if not key.startswith("input_") and key != "weight_shape"})
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
                yield f"{key} shifted along {d}", {m: quantized[m] | {key: quantized[m][key].roll(1, d)}
                                                   for m in holders}


def replace_version(how):
    return Gptq(how.bits, how.group, how.symmetric, 3 - how.version, how.order)


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
    others = {m: replace_version(model.format_of(m)) for m in quantized if isinstance(model.format_of(m), Gptq)}
    if others:
        check("zero points of the other version", {m: how.values(quantized[m]) for m, how in others.items()})
    for module in quantized:
        check(f"{module} in another order", {module: values[module].flip(-2)})
    return least


def make(model):
    """Some random models repeat themselves, or decide too narrowly: then the next."""
    for seed in range(MODELS_MAX):
        try:
            return make_one(model, seed)
        except SystemExit as error:
            print(f"  {error}, seed {seed}", flush=True)
    raise SystemExit(f"{model.name}: no seed makes a model")


def make_one(model, seed):
    folder, variant = HERE / "models" / f"quant_{model.name}", model.variant()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        dense, generator = make_dense(model, Path(temporary) / "dense", seed)
        stored, quantized = quantize(model, dense, generator)
        save(stored, folder / "model.safetensors")
        write_config(model, folder)
        kept, worst, types = compare_with_package(model, quantized)
        save(kept, HERE / "values" / f"quant_{model.name}" / "model.safetensors")
        values = all_values(model, quantized)
        plain = Path(temporary) / "values"
        plain.mkdir()
        (plain / "config.json").write_text(json.dumps(model.config | {"torch_dtype": "float32"}))
        whole = {name: value.float() for name, value in stored.items() if name in dense}
        whole |= {dense_name(m): dense_layout(m, value).contiguous() for m, value in values.items()}
        save(whole, plain / "model.safetensors")
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
    base.SEEDS_MAX = 30
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
