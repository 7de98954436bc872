"""Makes the GGUF files of the tests from the small models and tokenizers here. Run by hand, never by the tests:

    python3 tests/golden/make_gguf.py

Needs the packages gguf and numpy. Running it twice gives the same files.

    gguf/NAME.gguf       models/NAME, tensors named and changed as llama.cpp's converter does
    gguf/blocks.safetensors   blocks of quantized types, and their values by gguf.quants (gguf_types.py: of the others)
    gguf/types.gguf      a model whose matrices are of different types
    gguf/chat.gguf       a model with a tokenizer and a chat template
    gguf/chat_parts/     the same in three files
    ../text/tokenizers/gguf/NAME.gguf   the tokenizers there, without a model
    ../fuzz/corpus/gguf/model.gguf      a model of few bytes
    ../fuzz/corpus/gguf/parts.gguf      the same in two files, joined by "<part>"
    ../fuzz/corpus/gguf/states.gguf     a model with a recurrent layer, experts and tensors in other orders
    ../fuzz/corpus/gguf/xielu.gguf      a model with numbers of its layers in the metadata
"""
import json
import struct
import tempfile
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

HERE = Path(__file__).resolve().parent
TOKENIZERS = HERE.parent / "text/tokenizers"
WREN = HERE.parent / "models/wren"
CORPUS = HERE.parent / "fuzz/corpus/gguf"
STORED = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}


def read_safetensors(folder):
    """Name -> (type, array); bf16 as its bits."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        for name, entry in json.loads(data[8:8 + length]).items():
            if name == "__metadata__":
                continue
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            array = np.frombuffer(data[begin:end], STORED[entry["dtype"]]).reshape(entry["shape"])
            tensors[name] = (entry["dtype"], array)
    return tensors


def widened(dtype, array):
    if dtype == "BF16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


def pairs_side_by_side(array, num_heads):
    """Rows of halves of heads become rows of pairs, as the converter stores those of llama."""
    return (array.reshape(num_heads, 2, array.shape[0] // num_heads // 2, *array.shape[1:])
            .swapaxes(1, 2).reshape(array.shape))


class Model:
    def __init__(self, name, arch, config=None):
        folder = HERE / "models" / name
        self.config = config or json.loads((folder / "config.json").read_text())
        if "layers_block_type" in self.config:
            self.config["num_hidden_layers"] = len(self.config["layers_block_type"])
        self.tensors = read_safetensors(folder)
        self.arch = arch
        self.writer = gguf.GGUFWriter(HERE / "gguf" / f"{name}.gguf", gguf.MODEL_ARCH_NAMES[arch])
        self.names = gguf.get_tensor_name_map(arch, self.config["num_hidden_layers"])
        self.heads = self.config["num_attention_heads"]
        self.kv_heads = self.config.get("num_key_value_heads", self.heads)
        self.head_dim = self.config.get("head_dim") or self.config["hidden_size"] // self.heads

    def write_sizes(self):
        config, writer = self.config, self.writer
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_context_length(config["max_position_embeddings"])
        writer.add_embedding_length(config["hidden_size"])
        writer.add_feed_forward_length(config.get("intermediate_size", 0) or self.lfm2_width())
        writer.add_head_count(self.heads)
        writer.add_head_count_kv(self.kv_heads_of_layers())
        writer.add_layer_norm_rms_eps(config.get("rms_norm_eps", config.get("norm_eps")))
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        writer.add_rope_freq_base(float(rope.get("rope_theta", config.get("rope_theta", 10000.0))))
        if "head_dim" in config:
            writer.add_key_length(self.head_dim)
            writer.add_value_length(self.head_dim)
        if rope.get("rope_type") in ("linear", "yarn"):
            writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
            writer.add_rope_scaling_factor(rope["factor"])
        if rope.get("rope_type") == "yarn":
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
            writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
            writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
        if "num_local_experts" in config or "num_experts" in config:
            writer.add_expert_count(config.get("num_local_experts", config.get("num_experts")))
            writer.add_expert_used_count(config.get("num_experts_per_tok", config.get("top_k_experts")))
        return rope

    def kv_heads_of_layers(self):
        full = self.config.get("full_attn_idxs")
        if full is None:
            return self.kv_heads
        return [self.kv_heads if i in full else 0 for i in range(self.config["num_hidden_layers"])]

    def lfm2_width(self):
        width = int(self.config["block_ffn_dim_multiplier"] * int(2 * self.config["block_ff_dim"] / 3))
        multiple = self.config["block_multiple_of"]
        return (width + multiple - 1) // multiple * multiple

    def add(self, name, dtype, array):
        """Vectors are stored as f32, matrices as they are."""
        if array.ndim == 1 or name.endswith(("norm.weight", "exps.bias", "shortconv.conv.weight")):
            self.writer.add_tensor(name, np.ascontiguousarray(widened(dtype, array)))
        elif dtype == "BF16":
            self.writer.add_tensor(name, np.ascontiguousarray(array).view(np.uint8), raw_dtype=Type.BF16)
        else:
            self.writer.add_tensor(name, np.ascontiguousarray(array))

    def add_tensors(self, permuted=False, norms_plus_one=False):
        experts = {}
        for name, (dtype, array) in self.tensors.items():
            if name.endswith("sinks"):
                name += ".weight"
            if permuted and ".q_proj." in name:
                array = pairs_side_by_side(array, self.heads)
            if permuted and ".k_proj." in name:
                array = pairs_side_by_side(array, self.kv_heads)
            if norms_plus_one and name.endswith("norm.weight"):
                dtype, array = "F32", widened(dtype, array) + np.float32(1)
            if ".conv.conv.weight" in name:
                array = array.squeeze(1)
            if ".experts.gate_up_proj" in name or ".experts.down_proj" in name:
                self.add_gpt_oss_experts(name, dtype, array)
            elif ".experts." in name:
                layer, _, rest = name.partition(".experts.")
                number, _, kind = rest.partition(".")
                experts.setdefault(f"{layer}.experts.{kind}", {})[int(number)] = (dtype, array)
            else:
                self.add(self.name_of(name), dtype, array)
        for name, parts in experts.items():
            stacked = np.stack([parts[i][1] for i in range(len(parts))])
            self.add(self.name_of(name), parts[0][0], stacked)

    def name_of(self, name):
        found = self.names.get_name(name, try_suffixes=(".weight", ".bias"))
        if found is None:
            found = self.names.get_name(name.replace("model.", "", 1).replace("block_sparse_moe", "feed_forward"),
                                        try_suffixes=(".weight", ".bias"))
        assert found, name
        return found

    def add_gpt_oss_experts(self, name, dtype, array):
        layer = "blk." + name.split(".")[2]
        suffix = "bias" if name.endswith("_bias") else "weight"
        if suffix == "weight":
            array = array.swapaxes(-1, -2)  # [X, outputs, inputs]
        if "gate_up" not in name:
            self.add(f"{layer}.ffn_down_exps.{suffix}", dtype, array)
            return
        even, odd = (array[:, ::2], array[:, 1::2])
        self.add(f"{layer}.ffn_gate_exps.{suffix}", dtype, even)
        self.add(f"{layer}.ffn_up_exps.{suffix}", dtype, odd)

    def close(self):
        close(self.writer)


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama3_factors(rope, head_dim):
    base, factor = rope["rope_theta"], rope["factor"]
    low, high, old = rope["low_freq_factor"], rope["high_freq_factor"], rope["original_max_position_embeddings"]
    factors = []
    for i in range(0, head_dim, 2):
        wavelength = 2 * np.pi * base ** (i / head_dim)
        if wavelength < old / high:
            factors.append(1)
        elif wavelength > old / low:
            factors.append(factor)
        else:
            smooth = (old / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def make_models():
    arch = gguf.MODEL_ARCH
    for name, kind in (("llama_biases", arch.LLAMA), ("f16_sharded", arch.LLAMA), ("mixtral", arch.LLAMA)):
        model = Model(name, kind)
        rope = model.write_sizes()
        model.writer.add_rope_dimension_count(model.head_dim)
        model.add_tensors(permuted=True)
        if rope.get("rope_type") == "llama3":
            model.writer.add_tensor("rope_freqs.weight", llama3_factors(rope, model.head_dim))
        model.close()
    for name, kind in (("qwen2", arch.QWEN2), ("qwen3", arch.QWEN3), ("olmo2", arch.OLMO2)):
        model = Model(name, kind)
        model.write_sizes()
        model.add_tensors()
        model.close()
    model = Model("qwen3_moe_plain", arch.QWEN3MOE)
    model.write_sizes()
    model.writer.add_expert_feed_forward_length(model.config["moe_intermediate_size"])
    model.add_tensors()
    model.close()
    for name, kind in (("gemma", arch.GEMMA), ("gemma2", arch.GEMMA2), ("gemma3_text", arch.GEMMA3)):
        model = Model(name, kind)
        model.write_sizes()
        config, writer = model.config, model.writer
        for key, add in (("sliding_window", writer.add_sliding_window),
                         ("sliding_window_pattern", writer.add_sliding_window_pattern),
                         ("rope_local_base_freq", writer.add_rope_freq_base_swa),
                         ("attn_logit_softcapping", writer.add_attn_logit_softcapping),
                         ("final_logit_softcapping", writer.add_final_logit_softcapping)):
            if config.get(key) is not None:
                add(config[key])
        model.add_tensors(norms_plus_one=True)
        model.close()
    model = Model("phi3_short", arch.PHI3)
    rope = model.write_sizes()
    model.writer.add_rope_dimension_count(int(rope["partial_rotary_factor"] * model.head_dim))
    model.writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    model.writer.add_sliding_window(model.config["sliding_window"])
    model.add_tensors()
    for kind in ("long", "short"):
        model.writer.add_tensor(f"rope_factors_{kind}.weight", np.array(rope[f"{kind}_factor"], np.float32))
    model.close()
    model = Model("granite", arch.GRANITE)
    model.write_sizes()
    for key, add in (("attention_multiplier", model.writer.add_attention_scale),
                     ("embedding_multiplier", model.writer.add_embedding_scale),
                     ("residual_multiplier", model.writer.add_residual_scale),
                     ("logits_scaling", model.writer.add_logit_scale)):
        add(model.config[key])
    model.add_tensors(permuted=True)
    model.close()
    model = Model("glm4", arch.GLM4)
    model.write_sizes()
    model.writer.add_rope_dimension_count(int(model.head_dim * model.config["partial_rotary_factor"]))
    model.add_tensors()
    model.close()
    model = Model("gpt_oss", arch.GPT_OSS)
    model.write_sizes()
    model.writer.add_sliding_window(model.config["sliding_window"])
    model.writer.add_expert_feed_forward_length(model.config["intermediate_size"])
    model.add_tensors()
    model.close()
    make_qwen35()
    make_deepseek2("deepseek_v2")
    make_deepseek2("deepseek_v2_lite", older=True)
    make_deepseek2("deepseek_v3")
    for name, kind in (("nemotron_h", arch.NEMOTRON_H), ("nemotron_h_moe", arch.NEMOTRON_H_MOE),
                       ("nemotron_h_latent", arch.NEMOTRON_H_MOE)):
        make_nemotron_h(name, kind)
    for name in ("gemma4_text", "gemma4_moe"):
        make_gemma4(name)
    model = Model("lfm2", arch.LFM2)
    model.write_sizes()
    model.writer.add_vocab_size(model.config["vocab_size"])
    model.writer.add_shortconv_l_cache(model.config["conv_L_cache"])
    model.add_tensors()
    model.close()


def by_turns(array, groups, heads, width):
    """Heads of values: the first of each group, then the second of each."""
    return (array.reshape(groups, heads // groups, width, *array.shape[1:]).swapaxes(0, 1).reshape(array.shape))


def make_qwen35():
    model = Model("qwen3_5_text", gguf.MODEL_ARCH.QWEN35)
    rope = model.write_sizes()
    config, writer = model.config, model.writer
    groups, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    width, keys = config["linear_value_head_dim"], config["linear_key_head_dim"] * config["linear_num_key_heads"]
    writer.add_rope_dimension_count(int(model.head_dim * rope["partial_rotary_factor"]))
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(groups)
    writer.add_ssm_time_step_rank(heads)
    writer.add_ssm_inner_size(heads * width)
    writer.add_array("qwen35.attention.recurrent_layers", [t == "linear_attention" for t in config["layer_types"]])
    for name, (dtype, array) in model.tensors.items():
        array = widened(dtype, array)
        if "in_proj_qkv" in name or "conv1d" in name:
            array = array.squeeze()
            array = np.concatenate([array[:2 * keys], by_turns(array[2 * keys:], groups, heads, width)])
        elif "in_proj_z" in name:
            array = by_turns(array, groups, heads, width)
        elif "in_proj_a" in name or "in_proj_b" in name or "dt_bias" in name or "A_log" in name:
            array = by_turns(array, groups, heads, 1)
        elif "linear_attn.out_proj" in name:
            array = by_turns(np.ascontiguousarray(array.T), groups, heads, width).T
        elif name.endswith("norm.weight") and "linear_attn.norm" not in name:
            array = array + np.float32(1)
        if name.endswith("A_log"):
            array = -np.exp(array)
        model.add(model.name_of(name.replace(".dt_bias", ".dt_proj.bias")), "F32", array)
    model.close()


def add_routed_experts(config, writer):
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])


def stack_experts(tensors):
    """Tensors "X.experts.N.Y" become one "X.experts.Y"."""
    stacks, others = {}, {}
    for name, (dtype, array) in tensors.items():
        before, found, rest = name.partition(".experts.")
        if found and rest[0].isdigit():
            number, _, kind = rest.partition(".")
            stacks.setdefault(f"{before}.experts.{kind}", {})[int(number)] = (dtype, array)
        else:
            others[name] = (dtype, array)
    for name, parts in stacks.items():
        others[name] = (parts[0][0], np.stack([parts[i][1] for i in range(len(parts))]))
    return others


def make_deepseek2(name, older=False):
    """`older`: heads are those of the model, and kv_b is one tensor, as the converter of early 2025 wrote them."""
    model = Model(name, gguf.MODEL_ARCH.DEEPSEEK2)
    config, writer = model.config, model.writer
    config.pop("head_dim", None)
    keys, rotated, rank = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["kv_lora_rank"]
    values, heads = config["v_head_dim"], config["num_attention_heads"]
    model.kv_heads = heads if older else 1
    rope = model.write_sizes()
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_vocab_size(config["vocab_size"])
    if config["q_lora_rank"]:
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(rank)
    writer.add_key_length(keys + rotated if older else rank + rotated)
    writer.add_value_length(values if older else rank)
    if not older:
        writer.add_key_length_mla(keys + rotated)
        writer.add_value_length_mla(values)
    writer.add_rope_dimension_count(rotated)
    add_routed_experts(config, writer)
    if "scoring_func" in config:
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType[config["scoring_func"].upper()])
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
    writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])
    for key, (dtype, array) in stack_experts(model.tensors).items():
        if key.startswith(f"model.layers.{config['num_hidden_layers']}."):
            continue  # of the layer that drafts
        if "kv_b_proj" in key and not older:
            both = array.reshape(heads, keys + values, rank)
            model.add(model.name_of(key.replace("kv_b", "k_b")), dtype, both[:, :keys].swapaxes(1, 2))
            model.add(model.name_of(key.replace("kv_b", "v_b")), dtype, both[:, keys:])
        else:
            model.add(model.name_of(key.replace("e_score_correction_bias", "e_score_correction.bias")), dtype, array)
    model.close()


def make_nemotron_h(name, arch):
    model = Model(name, arch)
    config, writer = model.config, model.writer
    letters = config.get("hybrid_override_pattern")
    if letters is None:
        kinds = {"linear_attention": "M", "full_attention": "*", "mlp": "-", "moe": "E"}
        letters = "".join(kinds[kind] for kind in config["layers_block_type"])
    config["rms_norm_eps"] = config["layer_norm_epsilon"]
    wide = "moe_intermediate_size" if "E" in letters else "intermediate_size"
    heads, groups = config["mamba_num_heads"], config["n_groups"]
    model.write_sizes()
    writer.add_feed_forward_length([config[wide] if letter in "-E" else 0 for letter in letters])
    writer.add_head_count_kv([model.kv_heads if letter == "*" else 0 for letter in letters])
    writer.add_ssm_conv_kernel(config["conv_kernel"])
    writer.add_ssm_state_size(config["ssm_state_size"])
    writer.add_ssm_group_count(groups)
    writer.add_ssm_inner_size(heads * config["mamba_head_dim"])
    writer.add_ssm_time_step_rank(heads)
    if "E" in letters:
        add_routed_experts(config, writer)
        writer.add_expert_shared_feed_forward_length(config["moe_shared_expert_intermediate_size"])
    if "moe_latent_size" in config:
        writer.add_moe_latent_size(config["moe_latent_size"])
    for key, (dtype, array) in stack_experts(model.tensors).items():
        if not key.startswith(("backbone.", "lm_head.")):
            continue  # of layers that draft
        array = widened(dtype, array)
        if key.endswith("A_log"):
            array = -np.exp(array)
        if key.endswith(("A_log", ".D")):
            array = array.reshape(-1, 1)
        if "conv1d.weight" in key:
            array = array.squeeze()
        if key.endswith("mixer.norm.weight"):
            array = array.reshape(groups, -1)
        key = key.replace(".dt_bias", ".dt.bias").replace("e_score_correction_bias", "e_score_correction.bias")
        if "mixer.experts." in key:
            key = key.replace("backbone.", "model.").replace("mixer.", "mlp.")
        model.add(model.name_of(key), "F32", array)
    model.close()


def make_gemma4(name):
    folder = HERE / "models" / name
    config = json.loads((folder / "config.json").read_text())
    config = config.get("text_config", config)
    model = Model(name, gguf.MODEL_ARCH.GEMMA4, config)
    writer, heads = model.writer, config["global_head_dim"]
    windows = [kind == "sliding_attention" for kind in config["layer_types"]]
    num_layers, shared = config["num_hidden_layers"], config["num_kv_shared_layers"]
    full, windowed = (config["rope_parameters"][kind] for kind in ("full_attention", "sliding_attention"))
    config["rope_parameters"] = full
    model.write_sizes()
    writer.add_rope_freq_base_swa(windowed["rope_theta"])
    writer.add_sliding_window(config["sliding_window"])
    writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    writer.add_shared_kv_layers(shared)
    writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    writer.add_sliding_window_pattern(windows)
    for add, add_swa in ((writer.add_key_length, writer.add_key_length_swa),
                         (writer.add_value_length, writer.add_value_length_swa),
                         (writer.add_rope_dimension_count, writer.add_rope_dimension_count_swa)):
        add(heads)
        add_swa(config["head_dim"])
    if config["enable_moe_block"]:
        writer.add_expert_used_count(config["top_k_experts"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if config["use_double_wide_mlp"]:
        width = config["intermediate_size"]
        writer.add_feed_forward_length([width if i < num_layers - shared else 2 * width for i in range(num_layers)])
    if config["num_global_key_value_heads"]:
        counts = (config["num_global_key_value_heads"], config["num_key_value_heads"])
        writer.add_head_count_kv([counts[window] for window in windows])
    names = {"router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale"}
    for key, (dtype, array) in model.tensors.items():
        key = key.replace("language_model.", "")
        layer = key.split(".")[2]
        key = key + ".weight" if key.endswith(("layer_scalar", "gate_up_proj", "experts.down_proj")) else key
        renamed = [f"blk.{layer}.{new}" for old, new in names.items() if key.endswith(old)]
        model.add(renamed[0] if renamed else model.name_of(key), dtype, array)
    rotated = int(heads * full["partial_rotary_factor"] / 2)
    writer.add_tensor("rope_freqs.weight", np.array([1.0] * rotated + [1e30] * (heads // 2 - rotated), np.float32))
    model.close()


# Type -> the places of the f16 scales of a block.
SCALES = {Type.Q4_0: (0,), Type.Q4_1: (0, 2), Type.Q5_0: (0,), Type.Q5_1: (0, 2), Type.Q8_0: (0,),
          Type.MXFP4: (), Type.IQ4_NL: (0,), Type.IQ4_XS: (0,), Type.Q2_K: (80, 82), Type.Q3_K: (108,),
          Type.Q4_K: (0, 2), Type.Q5_K: (0, 2), Type.Q6_K: (208,)}


def random_blocks(kind, num_blocks, rng, size):
    """Blocks whose weights are about `size`."""
    elements, num_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (num_blocks, num_bytes), dtype=np.uint8)
    for place in SCALES[kind]:
        scales = rng.uniform(0.2, 1, num_blocks).astype(np.float16)
        blocks[:, place:place + 2] = scales.reshape(-1, 1).view(np.uint8)
    if kind == Type.MXFP4:
        blocks[:, 0] = rng.integers(120, 124, num_blocks)
    largest = np.abs(gguf.quants.dequantize(blocks, kind)).max()
    for place in SCALES[kind]:
        scales = blocks[:, place:place + 2].copy().view(np.float16)
        blocks[:, place:place + 2] = (scales * np.float16(size / largest)).view(np.uint8)
    return blocks


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def make_blocks():
    rng = np.random.default_rng(1)
    tensors = {}
    for kind in SCALES:
        blocks = random_blocks(kind, 4, rng, 2.0)
        if kind == Type.MXFP4:
            blocks[:3, 0] = (0, 1, 245)  # the ends of the exponents
        tensors[f"{kind.name}.blocks"] = ("U8", blocks)
        tensors[f"{kind.name}.values"] = ("F32", gguf.quants.dequantize(blocks, kind))
    write_safetensors(HERE / "gguf/blocks.safetensors", tensors)


def llama_writer(path, width, hidden, heads, kv_heads, head_dim, tensors_of_part=0):
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=tensors_of_part)
    writer.add_block_count(1)
    writer.add_context_length(256)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    return writer


def make_types():
    rng = np.random.default_rng(2)
    width, hidden, heads, kv_heads, head_dim, vocab = 256, 256, 2, 1, 32, 64
    writer = llama_writer(HERE / "gguf/types.gguf", width, hidden, heads, kv_heads, head_dim)
    shapes = {"token_embd": (vocab, width, Type.Q6_K), "output": (vocab, width, Type.Q8_0),
              "blk.0.attn_q": (heads * head_dim, width, Type.Q4_K),
              "blk.0.attn_k": (kv_heads * head_dim, width, Type.Q5_K),
              "blk.0.attn_v": (kv_heads * head_dim, width, Type.Q3_K),
              "blk.0.attn_output": (width, heads * head_dim, Type.Q4_0),
              "blk.0.ffn_gate": (hidden, width, Type.IQ4_XS), "blk.0.ffn_up": (hidden, width, Type.Q2_K),
              "blk.0.ffn_down": (width, hidden, Type.Q4_1)}
    for name, (rows, columns, kind) in shapes.items():
        elements, num_bytes = gguf.GGML_QUANT_SIZES[kind]
        blocks = random_blocks(kind, rows * columns // elements, rng, 0.3)
        writer.add_tensor(f"{name}.weight", blocks.reshape(rows, -1), raw_dtype=kind)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", rng.uniform(0.5, 1.5, width).astype(np.float32))
    close(writer)


CONTROL, USER_DEFINED = 3, 4
CHAT_TEMPLATE = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
                 "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def add_byte_level(writer, name, pre):
    tokenizer = json.loads((TOKENIZERS / name / "tokenizer.json").read_text())
    tokens = {id: (text, 1) for text, id in tokenizer["model"]["vocab"].items()}
    for token in tokenizer["added_tokens"]:
        tokens[token["id"]] = (token["content"], CONTROL if token["special"] else USER_DEFINED)
    ids = sorted(tokens)
    assert ids == list(range(len(ids)))
    merges = tokenizer["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([tokens[id][0] for id in ids])
    writer.add_token_types([tokens[id][1] for id in ids])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    return {text: id for id, (text, _) in tokens.items()}


def make_tokenizers():
    (TOKENIZERS / "gguf").mkdir(exist_ok=True)
    for name, pre, begin in (("gpt2", "gpt-2", None), ("qwen2", "qwen2", None), ("o200k", "gpt-4o", None),
                             ("llama3", "llama-bpe", "<|begin_of_text|>")):
        writer = gguf.GGUFWriter(TOKENIZERS / "gguf" / f"{name}.gguf", "llama")
        ids = add_byte_level(writer, name, pre)
        if begin:
            writer.add_bos_token_id(ids[begin])
        close(writer)
    import sentencepiece
    model = sentencepiece.SentencePieceProcessor(model_file=str(WREN / "tokenizer.model"))
    writer = gguf.GGUFWriter(TOKENIZERS / "gguf/wren.gguf", "llama")
    ids = range(model.get_piece_size())
    writer.add_tokenizer_model("llama")
    writer.add_token_list([model.id_to_piece(i) for i in ids])
    writer.add_token_scores([model.get_score(i) for i in ids])
    writer.add_token_types([2 if model.is_unknown(i) else 3 if model.is_control(i) else 5 if model.is_unused(i) else
                            6 if model.is_byte(i) else 1 for i in ids])
    writer.add_add_space_prefix(False)  # as its model says
    writer.add_bos_token_id(model.bos_id())
    writer.add_eos_token_id(model.eos_id())
    close(writer)


def make_chat(path, tensors_of_part=0):
    rng = np.random.default_rng(3)
    width, hidden, heads, kv_heads, head_dim = 32, 64, 2, 1, 16
    writer = llama_writer(path, width, hidden, heads, kv_heads, head_dim, tensors_of_part)
    writer.add_name("a made-up model")
    ids = add_byte_level(writer, "qwen2", "qwen2")
    writer.add_eos_token_id(ids["<|endoftext|>"])
    writer.add_chat_template(CHAT_TEMPLATE)
    shapes = {"token_embd": (len(ids), width), "blk.0.attn_q": (heads * head_dim, width),
              "blk.0.attn_k": (kv_heads * head_dim, width), "blk.0.attn_v": (kv_heads * head_dim, width),
              "blk.0.attn_output": (width, heads * head_dim), "blk.0.ffn_gate": (hidden, width),
              "blk.0.ffn_up": (hidden, width), "blk.0.ffn_down": (width, hidden)}
    for name, (rows, columns) in shapes.items():
        values = rng.normal(0, 0.3, (rows, columns)).astype(np.float32)
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(values, Type.Q8_0), raw_dtype=Type.Q8_0)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", rng.uniform(0.5, 1.5, width).astype(np.float32))
    close(writer)


def make_corpus(path, tensors_of_part=0):
    """A model of a few numbers, whose parts a fuzzer can change."""
    writer = llama_writer(path, 32, 32, 2, 1, 16, tensors_of_part)
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + ["a", "b", "ab"]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(i) for i in range(len(tokens))])
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * 3)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    shapes = {"token_embd": (len(tokens), 32), "blk.0.attn_q": (32, 32), "blk.0.attn_k": (16, 32),
              "blk.0.attn_v": (16, 32), "blk.0.attn_output": (32, 32), "blk.0.ffn_gate": (32, 32),
              "blk.0.ffn_up": (32, 32), "blk.0.ffn_down": (32, 32)}
    for name, shape in shapes.items():
        blocks = gguf.quants.quantize(np.ones(shape, np.float32), Type.Q4_0)
        writer.add_tensor(f"{name}.weight", blocks, raw_dtype=Type.Q4_0)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(32, np.float32))
    close(writer)


def add_tiny(writer, shapes):
    for name, shape in shapes.items():
        value = -1 if name.endswith("ssm_a") else 1
        writer.add_tensor(name, np.full(shape, value, np.float32))


def tiny_writer(path, name, width, layers):
    writer = gguf.GGUFWriter(path, name)
    writer.add_block_count(layers)
    writer.add_context_length(64)
    writer.add_embedding_length(width)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_key_length(4)
    writer.add_value_length(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(4)
    return writer


def make_state_corpus(path):
    """Qwen3-Next: a layer with the gated delta rule, and one with attention."""
    writer = tiny_writer(path, "qwen3next", 8, 2)
    writer.add_expert_count(2)
    writer.add_expert_used_count(1)
    writer.add_expert_feed_forward_length(4)
    writer.add_expert_shared_feed_forward_length(4)
    writer.add_ssm_conv_kernel(2)
    writer.add_ssm_state_size(2)
    writer.add_ssm_group_count(1)
    writer.add_ssm_time_step_rank(2)
    writer.add_ssm_inner_size(4)
    writer.add_array("qwen3next.attention.recurrent_layers", [True, False])
    shapes = {"token_embd.weight": (8, 8), "output_norm.weight": 8}
    for i in range(2):
        shapes |= {f"blk.{i}.{name}.weight": shape for name, shape in {
            "attn_norm": 8, "post_attention_norm": 8, "ffn_gate_inp": (2, 8), "ffn_gate_exps": (2, 4, 8),
            "ffn_up_exps": (2, 4, 8), "ffn_down_exps": (2, 8, 4), "ffn_gate_inp_shexp": (1, 8), "ffn_gate_shexp": (4, 8),
            "ffn_up_shexp": (4, 8), "ffn_down_shexp": (8, 4)}.items()}
    shapes |= {"blk.0.attn_qkv.weight": (8, 8), "blk.0.attn_gate.weight": (4, 8), "blk.0.ssm_ba.weight": (4, 8),
               "blk.0.ssm_conv1d.weight": (8, 2), "blk.0.ssm_a": 2, "blk.0.ssm_dt.bias": 2, "blk.0.ssm_norm.weight": 2,
               "blk.0.ssm_out.weight": (8, 4), "blk.1.attn_q.weight": (16, 8), "blk.1.attn_k.weight": (4, 8),
               "blk.1.attn_v.weight": (4, 8), "blk.1.attn_output.weight": (8, 8), "blk.1.attn_q_norm.weight": 4,
               "blk.1.attn_k_norm.weight": 4}
    add_tiny(writer, shapes)
    close(writer)


def make_xielu_corpus(path):
    writer = tiny_writer(path, "apertus", 8, 1)
    writer.add_feed_forward_length(4)
    for add in (writer.add_xielu_alpha_n, writer.add_xielu_alpha_p, writer.add_xielu_beta, writer.add_xielu_eps):
        add([0.5])
    add_tiny(writer, {"token_embd.weight": (8, 8), "output_norm.weight": 8, "rope_freqs.weight": 2} | {
        f"blk.0.{name}.weight": shape for name, shape in {
            "attn_norm": 8, "ffn_norm": 8, "attn_q": (8, 8), "attn_k": (4, 8), "attn_v": (4, 8), "attn_output": (8, 8),
            "attn_q_norm": 4, "attn_k_norm": 4, "ffn_up": (4, 8), "ffn_down": (8, 4)}.items()})
    close(writer)


if __name__ == "__main__":
    (HERE / "gguf").mkdir(exist_ok=True)
    make_models()
    make_blocks()
    make_types()
    make_chat(HERE / "gguf/chat.gguf")
    (HERE / "gguf/chat_parts").mkdir(exist_ok=True)
    make_chat(HERE / "gguf/chat_parts/chat.gguf", tensors_of_part=4)
    make_tokenizers()
    make_corpus(CORPUS / "model.gguf")
    make_state_corpus(CORPUS / "states.gguf")
    make_xielu_corpus(CORPUS / "xielu.gguf")
    with tempfile.TemporaryDirectory() as folder:
        make_corpus(Path(folder) / "model.gguf", tensors_of_part=7)
        parts = [path.read_bytes() for path in sorted(Path(folder).iterdir())]
        (CORPUS / "parts.gguf").write_bytes(b"<part>".join(parts))
