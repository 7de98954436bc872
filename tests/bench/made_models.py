"""Model files with made-up weights, for benchmarks: GGUF for llama.cpp, a model directory (safetensors) for this program.

Speed does not depend on the values, so a tensor is one block of random numbers repeated, small enough that activations
stay finite. Supports configurations (config.json) of the families llama and qwen3; as GGUF also of lfm2,
qwen3_5_text and qwen3_5_moe_text. Needs only the standard library.
"""
import json
import random
import struct
from pathlib import Path

BLOCK_BYTES = 20 << 20
GGUF_ALIGNMENT = 32
# The numbers of the format.
GGUF_UINT32, GGUF_INT32, GGUF_FLOAT32, GGUF_STRING, GGUF_ARRAY = 4, 5, 6, 8, 9
GGML_F32, GGML_Q4_0, GGML_Q8_0, GGML_Q4_K, GGML_Q6_K, GGML_IQ3_S, GGML_BF16 = 0, 2, 8, 12, 14, 21, 30
SPACE = "\u0120"  # of a byte-level tokenizer
DECAY = -1  # numbers in f32 that must be negative
# The bits of a scale of type f16 that vary: as in real files, bf16 does not hold them.
VARIED = b"\x0f\x00"
FILE_TYPES = {"bf16": 32, "q8_0": 7, "q4_0": 2, "q4_k_m": 15, "iq3_s": 26}


def masked_block(keep, fixed):
    """Random bytes: `keep` masks the bits that stay random, `fixed` holds those that are set; both are repeated."""
    count = BLOCK_BYTES // len(keep)
    num_bytes = count * len(keep)
    bits = random.Random(0).getrandbits(8 * num_bytes)
    bits = bits & int.from_bytes(keep * count, "little") | int.from_bytes(fixed * count, "little")
    return bits.to_bytes(num_bytes, "little")


def bf16_block():
    """Numbers of either sign from 2^-7 to 2^-5."""
    return masked_block(b"\xff\x80", b"\x00\x3c")


def q8_0_block():
    """Blocks of an f16 scale and 32 odd numbers of 8 bits: the same range, and never -128."""
    return masked_block(VARIED + b"\xff" * 32, struct.pack("<e", 2e-4) + b"\x01" * 32)


def q4_0_block():
    """Blocks of an f16 scale and 32 numbers of 4 bits: the same range."""
    return masked_block(VARIED + b"\xff" * 16, struct.pack("<e", 3e-3) + b"\x00" * 16)


def q4_k_block():
    """Blocks of two f16 numbers, 8 scales and minima of 6 bits, and 256 numbers of 4 bits: the same range."""
    return masked_block(VARIED * 2 + b"\xff" * 140, struct.pack("<ee", 6e-5, 4e-4) + b"\0" * 140)


def q6_k_block():
    """Blocks of 256 numbers of 6 bits, 16 scales of 8 bits and an f16 number: the same range."""
    return masked_block(b"\xff" * 208 + VARIED, b"\0" * 208 + struct.pack("<e", 8e-6))


def iq3_s_block():
    """Blocks of an f16 number, 64 indices of four numbers each, and their upper bits, signs and scales: the same range."""
    return masked_block(VARIED + b"\xff" * 108, struct.pack("<e", 6.2e-5) + b"\0" * 108)


# Kinds of matrices: the type's number, the numbers in a block, its bytes, and a function that makes
# random blocks.
MATRIX_KINDS = {"bf16": (GGML_BF16, 1, 2, bf16_block), "q8_0": (GGML_Q8_0, 32, 34, q8_0_block),
                "q4_0": (GGML_Q4_0, 32, 18, q4_0_block), "q4_k": (GGML_Q4_K, 256, 144, q4_k_block),
                "q6_k": (GGML_Q6_K, 256, 210, q6_k_block), "iq3_s": (GGML_IQ3_S, 256, 110, iq3_s_block)}


def matrix_kind(file_type, name, sizes):
    """The name in MATRIX_KINDS of a matrix in a file of this type."""
    is_table = name in ("token_embd.weight", "output.weight")
    if file_type == "q4_0":
        return "q8_0" if is_table else "q4_0"
    if file_type == "iq3_s":
        return "q6_k" if name == "output.weight" or is_table and sizes.tied else "iq3_s"
    if file_type != "q4_k_m":
        return file_type
    if is_table:  # the table, too, if it is the head
        return "q6_k" if sizes.tied or name == "output.weight" else "q4_k"
    layer, eighth = int(name.split(".")[1]), sizes.layers // 8
    more_bits = layer < eighth or layer >= 7 * sizes.layers // 8 or (layer - eighth) % 3 == 2
    return "q6_k" if more_bits and (any(part in name for part in ("attn_v.", "ffn_down.", "ffn_down_exps.", "ffn_down_shexp."))) else "q4_k"


GGUF_FAMILIES = {"llama": "llama", "qwen3": "qwen3", "lfm2": "lfm2", "qwen3_5_text": "qwen35", "qwen3_5_moe_text": "qwen35moe"}


class Sizes:
    def __init__(self, config):
        family = config["model_type"]
        if family not in GGUF_FAMILIES:
            raise SystemExit(f"model_type {family}: only {', '.join(GGUF_FAMILIES)} are made up")
        self.family = GGUF_FAMILIES[family]
        self.hidden, self.layers = config["hidden_size"], config["num_hidden_layers"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.head_dim = config.get("head_dim") or self.hidden // self.heads
        self.vocab, self.context = config["vocab_size"], config["max_position_embeddings"]
        self.tied = config.get("tie_word_embeddings", config.get("tie_embedding"))
        self.eps = config.get("rms_norm_eps", config.get("norm_eps"))
        rope = config.get("rope_parameters", config)
        self.rope_base, self.rope_dim = float(rope["rope_theta"]), self.head_dim
        self.query, self.kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        self.attention_layers = range(self.layers)
        self.has_states, self.experts = False, 0
        if self.family == "lfm2":
            self.attention_layers = config["full_attn_idxs"]
            self.conv_length = config["conv_L_cache"]
            multiple = config["block_multiple_of"]  # with block_auto_adjust_ff_dim
            self.intermediate = -(-(2 * config["block_ff_dim"] // 3) // multiple) * multiple
            return
        self.has_states = self.family.startswith("qwen35")
        self.experts = config.get("num_experts", 0)
        self.intermediate = config["moe_intermediate_size" if self.experts else "intermediate_size"]
        if self.experts:
            self.chosen, self.shared = config["num_experts_per_tok"], config["shared_expert_intermediate_size"]
        if self.has_states:
            self.rope_dim = int(self.head_dim * rope["partial_rotary_factor"])
            self.rope_sections = [*rope["mrope_section"], 0]
            self.interval = config["full_attention_interval"]
            self.attention_layers = range(self.interval - 1, self.layers, self.interval)
            self.conv_length, self.state = config["linear_conv_kernel_dim"], config["linear_key_head_dim"]
            self.key_heads, self.value_heads = config["linear_num_key_heads"], config["linear_num_value_heads"]


def attention_tensors(sizes, ours, theirs):
    gates = 2 if sizes.has_states else 1  # beside each query a gate of its head's output
    for short, name, out in (("q", "q_proj", gates * sizes.query), ("k", "k_proj", sizes.kv), ("v", "v_proj", sizes.kv)):
        yield f"{theirs}attn_{short}.weight", f"{ours}self_attn.{name}.weight", [out, sizes.hidden]
    yield theirs + "attn_output.weight", ours + "self_attn.o_proj.weight", [sizes.hidden, sizes.query]
    if sizes.family != "llama":
        for short in "qk":
            yield f"{theirs}attn_{short}_norm.weight", f"{ours}self_attn.{short}_norm.weight", [sizes.head_dim]


def state_tensors(sizes, theirs):
    """The tensors of a layer with a state, for GGUF alone."""
    if sizes.family == "lfm2":
        yield theirs + "shortconv.conv.weight", None, [sizes.hidden, sizes.conv_length]
        yield theirs + "shortconv.in_proj.weight", None, [3 * sizes.hidden, sizes.hidden]
        yield theirs + "shortconv.out_proj.weight", None, [sizes.hidden, sizes.hidden]
        return
    values = sizes.value_heads * sizes.state
    conv = 2 * sizes.key_heads * sizes.state + values
    yield theirs + "attn_qkv.weight", None, [conv, sizes.hidden]
    yield theirs + "attn_gate.weight", None, [values, sizes.hidden]
    yield theirs + "ssm_conv1d.weight", None, [conv, sizes.conv_length]
    yield theirs + "ssm_dt.bias", None, [sizes.value_heads]
    yield theirs + "ssm_a", None, [sizes.value_heads]
    for name in ("beta", "alpha"):
        yield f"{theirs}ssm_{name}.weight", None, [sizes.value_heads, sizes.hidden]
    yield theirs + "ssm_norm.weight", None, [sizes.state]
    yield theirs + "ssm_out.weight", None, [sizes.hidden, values]


def expert_tensors(sizes, theirs):
    """The feed-forward part of a layer with experts, for GGUF alone."""
    yield theirs + "ffn_gate_inp.weight", None, [sizes.experts, sizes.hidden]
    yield theirs + "ffn_gate_inp_shexp.weight", None, [sizes.hidden]
    for name in ("gate", "up"):
        yield f"{theirs}ffn_{name}_exps.weight", None, [sizes.experts, sizes.intermediate, sizes.hidden]
        yield f"{theirs}ffn_{name}_shexp.weight", None, [sizes.shared, sizes.hidden]
    yield theirs + "ffn_down_exps.weight", None, [sizes.experts, sizes.hidden, sizes.intermediate]
    yield theirs + "ffn_down_shexp.weight", None, [sizes.hidden, sizes.shared]


def tensors_of(sizes):
    """(GGUF name, name in a checkpoint, [out, in] or [width])"""
    yield "token_embd.weight", "model.embed_tokens.weight", [sizes.vocab, sizes.hidden]
    second_norm = "post_attention_norm" if sizes.has_states else "ffn_norm"
    for i in range(sizes.layers):
        ours, theirs = f"model.layers.{i}.", f"blk.{i}."
        yield theirs + "attn_norm.weight", ours + "input_layernorm.weight", [sizes.hidden]
        has_attention = i in sizes.attention_layers
        yield from attention_tensors(sizes, ours, theirs) if has_attention else state_tensors(sizes, theirs)
        yield f"{theirs}{second_norm}.weight", ours + "post_attention_layernorm.weight", [sizes.hidden]
        if sizes.experts:
            yield from expert_tensors(sizes, theirs)
            continue
        for name in ("gate", "up"):
            yield f"{theirs}ffn_{name}.weight", f"{ours}mlp.{name}_proj.weight", [sizes.intermediate, sizes.hidden]
        yield theirs + "ffn_down.weight", ours + "mlp.down_proj.weight", [sizes.hidden, sizes.intermediate]
    output_norm = "token_embd_norm" if sizes.family == "lfm2" else "output_norm"
    yield output_norm + ".weight", "model.norm.weight", [sizes.hidden]
    if not sizes.tied:
        yield "output.weight", "lm_head.weight", [sizes.vocab, sizes.hidden]


def elements(shape):
    count = 1
    for size in shape:
        count *= size
    return count


def write_repeated(file, block, num_bytes):
    for begin in range(0, num_bytes, len(block)):
        file.write(block[:min(len(block), num_bytes - begin)])


def gguf_string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf_value(kind, value):
    if kind == GGUF_ARRAY and value and isinstance(value[0], str):
        return struct.pack("<IIQ", kind, GGUF_STRING, len(value)) + b"".join(map(gguf_string, value))
    if kind == GGUF_ARRAY:  # of numbers
        return struct.pack(f"<IIQ{len(value)}i", kind, GGUF_INT32, len(value), *value)
    packed = gguf_string(value) if kind == GGUF_STRING else struct.pack("<I" if kind == GGUF_UINT32 else "<f", value)
    return struct.pack("<I", kind) + packed


def gguf_header_values(sizes, file_type, name):
    family = sizes.family
    values = {
        "general.architecture": (GGUF_STRING, family), "general.name": (GGUF_STRING, name),
        "general.file_type": (GGUF_UINT32, FILE_TYPES[file_type]), "tokenizer.ggml.model": (GGUF_STRING, "no_vocab"),
        f"{family}.vocab_size": (GGUF_UINT32, sizes.vocab), f"{family}.block_count": (GGUF_UINT32, sizes.layers),
        f"{family}.context_length": (GGUF_UINT32, sizes.context),
        f"{family}.embedding_length": (GGUF_UINT32, sizes.hidden),
        f"{family}.feed_forward_length": (GGUF_UINT32, sizes.intermediate),
        f"{family}.attention.head_count": (GGUF_UINT32, sizes.heads),
        f"{family}.attention.head_count_kv": (GGUF_UINT32, sizes.kv_heads),
        f"{family}.attention.key_length": (GGUF_UINT32, sizes.head_dim),
        f"{family}.attention.value_length": (GGUF_UINT32, sizes.head_dim),
        f"{family}.attention.layer_norm_rms_epsilon": (GGUF_FLOAT32, sizes.eps),
        f"{family}.rope.dimension_count": (GGUF_UINT32, sizes.rope_dim),
        f"{family}.rope.freq_base": (GGUF_FLOAT32, sizes.rope_base),
    }
    if family == "lfm2":
        kv_heads = [sizes.kv_heads if i in sizes.attention_layers else 0 for i in range(sizes.layers)]
        values[f"{family}.attention.head_count_kv"] = (GGUF_ARRAY, kv_heads)
        values[f"{family}.shortconv.l_cache"] = (GGUF_UINT32, sizes.conv_length)
    if sizes.experts:
        del values[f"{family}.feed_forward_length"]
        values.update({
            f"{family}.expert_count": (GGUF_UINT32, sizes.experts),
            f"{family}.expert_used_count": (GGUF_UINT32, sizes.chosen),
            f"{family}.expert_feed_forward_length": (GGUF_UINT32, sizes.intermediate),
            f"{family}.expert_shared_feed_forward_length": (GGUF_UINT32, sizes.shared)})
    if sizes.has_states:
        values.update({
            f"{family}.full_attention_interval": (GGUF_UINT32, sizes.interval),
            f"{family}.rope.dimension_sections": (GGUF_ARRAY, sizes.rope_sections),
            f"{family}.ssm.conv_kernel": (GGUF_UINT32, sizes.conv_length),
            f"{family}.ssm.inner_size": (GGUF_UINT32, sizes.value_heads * sizes.state),
            f"{family}.ssm.state_size": (GGUF_UINT32, sizes.state),
            f"{family}.ssm.time_step_rank": (GGUF_UINT32, sizes.value_heads),
            f"{family}.ssm.group_count": (GGUF_UINT32, sizes.key_heads)})
    return values


def byte_characters():
    """The characters that stand for bytes in a byte-level tokenizer."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]


def gguf_tokenizer(vocab):
    """The metadata of a byte-level BPE tokenizer of `vocab` tokens, each of two others, as large as those of real files."""
    tokens, merges, choose = byte_characters(), [], random.Random(1)
    inside = [token for token in tokens if token.isascii() and token.isalpha()]  # may follow another part of a word
    parts = inside + [SPACE + letter for letter in inside]
    merges += [f"{SPACE} {letter}" for letter in inside]
    tokens += parts[len(inside):]
    known = set(tokens)
    while len(tokens) < vocab - 3:
        left, right = choose.choice(parts), choose.choice(inside)
        if left + right in known:
            continue
        merges.append(f"{left} {right}")
        tokens.append(left + right)
        known.add(left + right)
        if len(left + right) <= 6:
            parts.append(left + right)
            if SPACE not in left:
                inside.append(left + right)
    tokens += ["<s>", "</s>", "<pad>"]
    kinds = [1] * (vocab - 3) + [3] * 3  # normal, control
    return {"tokenizer.ggml.model": (GGUF_STRING, "gpt2"), "tokenizer.ggml.pre": (GGUF_STRING, "qwen2"),
            "tokenizer.ggml.tokens": (GGUF_ARRAY, tokens), "tokenizer.ggml.token_type": (GGUF_ARRAY, kinds),
            "tokenizer.ggml.merges": (GGUF_ARRAY, merges), "tokenizer.ggml.eos_token_id": (GGUF_UINT32, vocab - 2)}


def padded(size):
    return -(-size // GGUF_ALIGNMENT) * GGUF_ALIGNMENT


def gguf_tensors(config, file_type):
    """(name, shape, type, bytes) of each tensor of the file."""
    sizes = Sizes(config)
    for name, _, shape in tensors_of(sizes):
        count = elements(shape)
        if len(shape) == 1 or name.endswith(("conv.weight", "conv1d.weight", "ffn_gate_inp.weight")):
            yield name, shape, GGML_F32, 4 * count
        else:
            kind, numbers, block_bytes, _ = MATRIX_KINDS[matrix_kind(file_type, name, sizes)]
            yield name, shape, kind, count // numbers * block_bytes


def write_gguf(config, file_type, path, with_tokenizer=False, more=None):
    """`file_type`: of the matrices (with "q4_0" the embedding and the head are "q8_0"; "q4_k_m" is the usual mixture of
    q4_k and q6_k); norms are f32. `more`: of the metadata. A file that is there is taken as it is."""
    path = Path(path)
    if path.exists():
        return path
    sizes = Sizes(config)
    infos, offset, written = b"", 0, []
    for name, shape, kind, num_bytes in gguf_tensors(config, file_type):
        dims = shape[::-1]
        infos += gguf_string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
        offset += padded(num_bytes)
        written.append((kind if name[-6:] != ".ssm_a" else DECAY, num_bytes))
    values = gguf_header_values(sizes, file_type, path.stem)
    if with_tokenizer:
        values.update(gguf_tokenizer(sizes.vocab))
    values.update(more or {})
    blocks = {GGML_F32: struct.pack("<f", 1) * 4096, DECAY: struct.pack("<f", -1) * 4096}
    blocks.update({kind: make() for kind, _, _, make in MATRIX_KINDS.values() if any(kind == k for k, _ in written)})
    partial = path.with_suffix(".partial")
    with open(partial, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(written), len(values)))
        for key, (kind, value) in values.items():
            file.write(gguf_string(key) + gguf_value(kind, value))
        file.write(infos)
        file.write(b"\0" * (padded(file.tell()) - file.tell()))
        for kind, num_bytes in written:
            write_repeated(file, blocks[kind], num_bytes)
            file.write(b"\0" * (padded(num_bytes) - num_bytes))
    partial.rename(path)
    return path


def made_tokenizer(vocab):
    """A tokenizer.json of `vocab` entries without merges: control tokens, all bytes, then words of their own number."""
    names = ["<unk>", "<s>", "</s>", *byte_characters()]
    names += [f"word{i}" for i in range(len(names), vocab)]
    added = [{"id": i, "content": names[i], "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for i in range(3)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "vocab": {name: i for i, name in enumerate(names)}, "merges": []}}


def write_tokenizer(vocab, folder):
    (folder / "tokenizer.json").write_text(json.dumps(made_tokenizer(vocab)))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}))


STORED_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "U8": 1, "F8_E4M3": 1}


def write_safetensors(tensors, path):
    """`tensors`: (name, type, shape, block of bytes that is repeated)."""
    header, offset = {}, 0
    for name, dtype, shape, _ in tensors:
        end = offset + STORED_BYTES[dtype] * elements(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    partial = path.with_suffix(".partial")
    with open(partial, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, _, _, block in tensors:
            begin, end = header[name]["data_offsets"]
            write_repeated(file, block, end - begin)
    partial.rename(path)


def write_model_dir(config, folder):
    """bf16 safetensors with a tokenizer and no chat template, of llama or qwen3. A folder that is complete is taken as it
    is."""
    folder = Path(folder)
    weights = folder / "model.safetensors"
    if weights.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    sizes = Sizes(config)
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(sizes.vocab, folder)
    block, ones = bf16_block(), b"\x80\x3f" * 4096
    write_safetensors([(name, "BF16", shape, ones if len(shape) == 1 else block) for _, name, shape in tensors_of(sizes)], weights)
    return folder
