"""The models of make_quantized.py: their configurations, the formats of their matrices, and how publishers describe them."""
import re
from dataclasses import dataclass, field

import torch

from architectures import KEYS_AS_VALUES, LEFT_OUT, PER_LAYER, Variant, config, gemma4, wrapper
from architectures_states import DELTA, DELTA_ROPE, DELTA_TOKENS, DELTA_VISION, GRANITE, MAMBA, NEMOTRON, NEMOTRON_EXPERTS
from quantized_formats import Awq, CompressedTensors, Fp8Block, Fp8Tensor, Gptq, ModelOptFp8, ModelOptNvfp4, Mxfp4GptOss, Stacked


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
    query_norm: float = 1.0
    norms_add_one: bool = False
    split_experts: bool = False  # the hub's file has experts one by one where transformers writes one tensor
    fuse_experts: bool = False  # the hub's file has one tensor of all experts where transformers writes them one by one
    unused: dict = field(default_factory=dict)  # tensors that the file has besides

    def format_of(self, module):
        return next((format for pattern, format in self.formats if re.fullmatch(pattern, module)), None)

    def variant(self):
        return Variant(f"quant_{self.name}", self.config, dtype=self.dtype, embedding=self.embedding,
                       tied=self.config.get("tie_word_embeddings", False), distinct_min=6,
                       query_norm=self.query_norm, norms_add_one=self.norms_add_one,
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


def compressed(name, model_config, format, groups, ignore=("lm_head",), linear=LINEAR, **keys):
    """`groups`: (targets, format). Names come before expressions, and these before the class Linear, in any order.
    `linear`: the modules of that class."""
    formats = [(re.escape(entry) if not entry.startswith("re:") else entry[3:], None) for entry in ignore]
    rank = lambda pair: 2 if pair[0] == "Linear" else int(pair[0].startswith("re:"))
    for target, how in sorted([(target, how) for targets, how in groups for target in targets], key=rank):
        formats.append((linear if target == "Linear" else target.removeprefix("re:"), how))
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


def fp8_qwen3_5_moe():
    """Everything of the text model but small matrices of states, routers and gates; layers that predict, too."""
    text = config("Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", **DELTA | {
        "num_hidden_layers": 3, "head_dim": 36, "hidden_size": 136, "num_key_value_heads": 1, "intermediate_size": LEFT_OUT,
        "linear_key_head_dim": 34, "linear_value_head_dim": 34, "rope_theta": LEFT_OUT, "full_attention_interval": 3,
        "rope_parameters": DELTA_ROPE | {"mrope_section": [3, 3, 3]}, "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24, "torch_dtype": "bfloat16"})
    whole = wrapper("Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", text, DELTA_VISION, **DELTA_TOKENS,
                    tie_word_embeddings=False)
    small_ones = [f"model.language_model.layers.{i}.{name}" for i in range(3) for name in (
        "linear_attn.conv1d", "linear_attn.in_proj_a", "linear_attn.in_proj_b", "mlp.gate", "mlp.shared_expert_gate")
        if i < 2 or "linear" not in name]
    prediction = {"mtp.layers.0.mlp.experts.0.gate_proj.weight": torch.zeros(16, 136, dtype=torch.float8_e4m3fn),
                  "mtp.layers.0.mlp.experts.0.gate_proj.weight_scale_inv": torch.ones(1, 2, dtype=torch.bfloat16)}
    return Model("fp8_qwen3_5_moe", whole,
                 [(r"model\.language_model\.layers\..*(in_proj_qkv|in_proj_z|(out|q|k|v|o|gate|up|down)_proj)",
                   Fp8Block(torch.bfloat16))],
                 FP8 | {"fmt": "e4m3", "modules_to_not_convert": ["lm_head", "model.language_model.embed_tokens",
                                                                  *small_ones, "model.visual"]},
                 norms_add_one=True, unused=prediction)


def nemotron_h(pattern, **keys):
    return config("NemotronHForCausalLM", "nemotron_h", **NEMOTRON | NEMOTRON_EXPERTS | {
        "num_hidden_layers": len(pattern), "hybrid_override_pattern": pattern, "hidden_size": 64, "head_dim": 16,
        "mamba_head_dim": 8, "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 48,
        "n_routed_experts": 4, "vocab_size": 100, "torch_dtype": "bfloat16"} | keys)


NEMOTRON_QUANTIZED = {"producer": PRODUCER, "quant_method": "modelopt", "kv_cache_scheme": {
    "dynamic": False, "num_bits": 8, "type": "float"}}


def nvfp4_nemotron_h():
    """One format, and attention with the layer before it in bf16."""
    excluded = [r"backbone\.layers\.[23]\..*"]
    return Model("nvfp4_nemotron_h", nemotron_h("MEM*E"),
                 [*((pattern, None) for pattern in excluded), (r".*mixer\..*(in|out|up|down)_proj", ModelOptNvfp4())],
                 NEMOTRON_QUANTIZED | {
                     "config_groups": {"group_0": {
                         "input_activations": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16},
                         "weights": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16},
                         "targets": ["Linear"]}},
                     "ignore": ["backbone.layers.2*", "backbone.layers.3*", "lm_head"], "quant_algo": "NVFP4"})


def mixed_nemotron_h():
    """A format for each matrix: experts in NVFP4, the products of states and the shared expert in FP8."""
    fp8 = [f"backbone.layers.{i}.mixer.{name}_proj" for i in (0, 3) for name in ("in", "out")]
    fp8 += [f"backbone.layers.1.mixer.shared_experts.{name}_proj" for name in ("up", "down")]
    fp4 = [f"backbone.layers.1.mixer.experts.{i}.{name}_proj" for i in range(4) for name in ("up", "down")]
    layers = {name: {"quant_algo": "FP8"} for name in fp8}
    layers |= {name: {"quant_algo": "W4A16_NVFP4", "group_size": 16} for name in fp4}
    return Model("mixed_nemotron_h", nemotron_h("ME*M", moe_latent_size=32),
                 [("|".join(map(re.escape, fp8)), ModelOptFp8()), ("|".join(map(re.escape, fp4)), ModelOptNvfp4())],
                 NEMOTRON_QUANTIZED | {"quantized_layers": layers, "quant_algo": "MIXED_PRECISION",
                                       "ignore": ["backbone.layers.2*", "lm_head"]})


def qwen3_5(name, format, quantization, **keys):
    """The text model alone, without experts; rows of queries and of gates alternate."""
    text = config("Qwen3_5ForCausalLM", "qwen3_5_text", **DELTA | {
        "num_hidden_layers": 3, "hidden_size": 64, "intermediate_size": 64, "vocab_size": 100, "rope_theta": LEFT_OUT,
        "linear_key_head_dim": 16, "linear_value_head_dim": 16, "full_attention_interval": 2,
        "rope_parameters": DELTA_ROPE, "torch_dtype": "float16"})
    return Model(name, text, [(r"model\.layers\..*(in_proj_qkv|in_proj_z|(out|q|k|v|o|gate|up|down)_proj)", format)],
                 quantization, dtype=torch.float16, norms_add_one=True, **keys)


def ct_fp8_granite():
    """Mamba-2, experts one by one and a shared one."""
    model = config("GraniteMoeHybridForCausalLM", "granitemoehybrid", **GRANITE, **MAMBA | {
        "num_hidden_layers": 3, "mamba_proj_bias": False}, attention_bias=False, position_embedding_type="nope",
        layer_types=["mamba", "mamba", "attention"], num_local_experts=4, num_experts_per_tok=2, intermediate_size=16,
        shared_intermediate_size=24, rope_theta=10000, rope_scaling=None, normalization_function="rmsnorm",
        torch_dtype="bfloat16", vocab_size=100)
    how = CompressedTensors(floats(8, "channel"), "float-quantized", FP8_TOKEN)
    return compressed("ct_fp8_granite", model, "float-quantized", [(["Linear"], how)],
                      ignore=["re:.*lm_head", "re:.*block_sparse_moe.router.*"],
                      linear=r"model\.layers\..*(_proj|_linear)", split_experts=True)


def ct_int4_latent():
    how = CompressedTensors(packed(4, group_size=32), "pack-quantized")
    sizes = {"kv_lora_rank": 64, "q_lora_rank": 96, "v_head_dim": 32, "qk_nope_head_dim": 16, "moe_intermediate_size": 32}
    return compressed("ct_int4_latent", deepseek_v3(num_attention_heads=2, num_key_value_heads=2, **sizes),
                      "pack-quantized", [(["Linear"], how)], ignore=["lm_head", "re:.*mlp.gate$"], linear=LATENT)


GEMMA4_LAYERS = (r"model\.language_model\.(layers\..*(_proj|per_layer_input_gate|per_layer_projection)|"
                 r"per_layer_model_projection)")
GEMMA4_TOWERS = ["lm_head", r"re:.*(vision|audio).*", r"re:.*router.*"]


def gemma4_whole(**keys):
    text = gemma4("Gemma4ForCausalLM", "gemma4_text", **{"hidden_size": 64, "intermediate_size": 64,
                                                         "torch_dtype": "bfloat16"} | keys)
    return wrapper("Gemma4ForConditionalGeneration", "gemma4", text, None, audio_config=None, eos_token_id=[1, 106],
                   image_token_id=1140, video_token_id=1141, audio_token_id=1142, boi_token_id=1143,
                   eoi_token_id=1144, boa_token_id=1145, eoa_token_index=1146, tie_word_embeddings=True)


def ct_int4_gemma4():
    """Products of per-layer embeddings, too; layers that read the keys of others."""
    layers = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"]
    how = CompressedTensors(packed(4, group_size=32), "pack-quantized")
    return compressed("ct_int4_gemma4",
                      gemma4_whole(**PER_LAYER | {"layer_types": layers, "head_dim": 16, "global_head_dim": 32,
                                                  "hidden_size_per_layer_input": 32}),
                      "pack-quantized", [(["Linear"], how)], ignore=GEMMA4_TOWERS, linear=GEMMA4_LAYERS,
                      embedding=0.2, query_norm=0.4)


def ct_fp8_gemma4_moe():
    """Experts one by one, and keys as values."""
    how = CompressedTensors(floats(8, "channel"), "float-quantized", FP8_TOKEN)
    return compressed("ct_fp8_gemma4_moe",
                      gemma4_whole(**KEYS_AS_VALUES, hidden_size_per_layer_input=0, enable_moe_block=True,
                                   num_experts=4, top_k_experts=2, moe_intermediate_size=16),
                      "float-quantized", [(["Linear"], how)], ignore=GEMMA4_TOWERS, linear=GEMMA4_LAYERS,
                      embedding=0.06, query_norm=0.4, split_experts=True)


def gpt_oss():
    return small("GptOssForCausalLM", "gpt_oss", mlp_bias=LEFT_OUT, attention_bias=True, num_local_experts=4,
                 num_experts_per_tok=2, experts_per_token=2, intermediate_size=32, sliding_window=11, swiglu_limit=7.0,
                 initial_context_length=64, layer_types=["sliding_attention", "full_attention"], pad_token_id=0,
                 output_router_logits=False, router_aux_loss_coef=0.9, rope_theta=150000,
                 rope_scaling={"beta_fast": 32.0, "beta_slow": 1.0, "factor": 8.0,
                               "original_max_position_embeddings": 64, "rope_type": "yarn", "truncate": False})


def nvfp4_gpt_oss():
    """Stacks of experts, [inputs, outputs] as the dense ones are."""
    return Model("nvfp4_gpt_oss", gpt_oss(),
                 [(r"model\.layers\.\d\.mlp\.experts\.(gate_up|down)_proj",
                   Stacked(ModelOptNvfp4(), joined=True, inputs_first=True))],
                 {"config_groups": {"group_0": {
                     "input_activations": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16},
                     "weights": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16},
                     "targets": ["Linear"]}},
                  "ignore": ["lm_head", "model.layers.*.self_attn*", "model.layers.*.mlp.router"], "quant_algo": "NVFP4",
                  "producer": PRODUCER, "quant_method": "modelopt"})


def ct_int4_qwen3_5_moe():
    """Routed experts alone, in one tensor for a layer."""
    text = config("Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", **DELTA | {
        "num_hidden_layers": 3, "hidden_size": 64, "intermediate_size": LEFT_OUT, "vocab_size": 100,
        "rope_theta": LEFT_OUT, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "full_attention_interval": 3,
        "rope_parameters": DELTA_ROPE, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 24, "torch_dtype": "bfloat16"})
    how = Stacked(CompressedTensors(packed(4, group_size=32), "pack-quantized"))
    return compressed("ct_int4_qwen3_5_moe", text, "pack-quantized", [([r"re:.*mlp\.experts\.(gate_up|down)_proj$"], how)],
                      norms_add_one=True, fuse_experts=True)


MODELS = [
    Model("mxfp4_gpt_oss", gpt_oss(),
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
    fp8_qwen3_5_moe(),
    nvfp4_gpt_oss(),
    ct_int4_qwen3_5_moe(),
    nvfp4_nemotron_h(),
    mixed_nemotron_h(),
    ct_int4_gemma4(),
    ct_fp8_gemma4_moe(),
    ct_int4_latent(),
    ct_fp8_granite(),
    qwen3_5("gptq_qwen3_5", Gptq(symmetric=False),
            {"bits": 4, "checkpoint_format": "gptq", "desc_act": False,
             "dynamic": {"-:.*in_proj_[ab]": {}, "-:.*visual.*": {}, "-:.*mtp.*": {}}, "group_size": 32,
             "lm_head": False, "method": "gptq", "pack_dtype": "int32", "quant_method": "gptq", "sym": False}),
    qwen3_5("awq_qwen3_5", Awq(),
            {"bits": 4, "group_size": 32, "modules_to_not_convert": ["linear_attn.in_proj_a", "linear_attn.in_proj_b"],
             "quant_method": "awq", "version": "gemm", "zero_point": True}),
]
