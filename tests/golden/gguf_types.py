"""Makes the blocks and the files of the types that make_gguf.py has not. Run by hand, never by the tests:

    python3 tests/golden/gguf_types.py

Needs the packages gguf and numpy. Running it twice gives the same files.

    gguf/blocks_of_grids.safetensors   blocks of these types, and their values by gguf.quants
    gguf/types_of_grids.gguf           a model whose matrices are of different types
    gguf/types_of_experts.gguf         a mixture of experts, the same
"""
import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

from make_gguf import HERE, close, llama_writer, random_blocks, write_safetensors

# Type -> the place of the f16 scale of a block.
SCALE_AT = {Type.IQ1_S: 0, Type.IQ2_XXS: 0, Type.IQ2_XS: 0, Type.IQ2_S: 0, Type.IQ3_XXS: 0, Type.IQ3_S: 0,
            Type.TQ1_0: 52, Type.TQ2_0: 64}


def set_scales(blocks, kind, scales):
    """Stores the scales, [N] f16, in the blocks [N, bytes]."""
    if kind in SCALE_AT:
        place = SCALE_AT[kind]
        blocks[:, place:place + 2] = scales.reshape(-1, 1).view(np.uint8)
    else:  # IQ1_M: four bits in each of four words
        words = blocks[:, 48:56].copy().view(np.uint16)
        shifts = np.array([0, 4, 8, 12], np.uint16)
        words = (words & 0x0FFF) | (scales.view(np.uint16)[:, None] >> shifts & 0xF) << 12
        blocks[:, 48:56] = words.astype(np.uint16).view(np.uint8)


def blocks_of(kind, num_blocks, rng, size):
    """Blocks whose weights are about `size`."""
    if kind not in SCALE_AT and kind not in (Type.IQ1_M, Type.NVFP4):
        return random_blocks(kind, num_blocks, rng, size)
    elements, num_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (num_blocks, num_bytes), dtype=np.uint8)
    if kind == Type.NVFP4:
        blocks[:, :4] = rng.integers(0, 64, (num_blocks, 4))  # up to 1.9
        return blocks
    scales = rng.uniform(0.2, 1, num_blocks).astype(np.float16)
    set_scales(blocks, kind, scales)
    largest = np.abs(gguf.quants.dequantize(blocks, kind)).max()
    set_scales(blocks, kind, (scales * np.float16(size / largest)).astype(np.float16))
    return blocks


def make_blocks():
    rng = np.random.default_rng(11)
    tensors = {}
    for kind in (*SCALE_AT, Type.IQ1_M, Type.NVFP4):
        blocks = blocks_of(kind, 4, rng, 2.0)
        if kind == Type.NVFP4:
            blocks[0, :4] = (0, 1, 0x7E, 0x7F)  # the ends of the scales
        if kind != Type.NVFP4:
            set_scales(blocks[3:], kind, -np.array([0.0123], np.float16))
        tensors[f"{kind.name}.blocks"] = ("U8", blocks)
        values = gguf.quants.dequantize(blocks, kind)
        if kind == Type.NVFP4:
            values += np.float32(0)  # without -0, which a scale of 0 makes of negative codes
        tensors[f"{kind.name}.values"] = ("F32", values)
    write_safetensors(HERE / "gguf/blocks_of_grids.safetensors", tensors)


def add_matrix(writer, name, shape, kind, rng):
    elements, num_bytes = gguf.GGML_QUANT_SIZES[kind]
    count = int(np.prod(shape)) // elements
    blocks = blocks_of(kind, count, rng, 0.3)
    writer.add_tensor(f"{name}.weight", blocks.reshape(*shape[:-1], -1), raw_dtype=kind)


def add_norms(writer, width, rng):
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", rng.uniform(0.5, 1.5, width).astype(np.float32))


def make_types():
    rng = np.random.default_rng(12)
    width, hidden, heads, kv_heads, head_dim, vocab = 256, 256, 2, 1, 32, 64
    writer = llama_writer(HERE / "gguf/types_of_grids.gguf", width, hidden, heads, kv_heads, head_dim)
    shapes = {"token_embd": (vocab, width, Type.IQ3_S), "output": (vocab, width, Type.IQ2_XXS),
              "blk.0.attn_q": (heads * head_dim, width, Type.IQ2_XS),
              "blk.0.attn_k": (kv_heads * head_dim, width, Type.IQ1_S),
              "blk.0.attn_v": (kv_heads * head_dim, width, Type.IQ1_M),
              "blk.0.attn_output": (width, heads * head_dim, Type.NVFP4),
              "blk.0.ffn_gate": (hidden, width, Type.TQ1_0), "blk.0.ffn_up": (hidden, width, Type.TQ2_0),
              "blk.0.ffn_down": (width, hidden, Type.IQ3_XXS)}
    for name, (rows, columns, kind) in shapes.items():
        add_matrix(writer, name, (rows, columns), kind, rng)
    writer.add_tensor("blk.0.attn_output.scale", np.array([0.04], np.float32))
    writer.add_tensor("blk.0.attn_output.input_scale", np.array([0.01], np.float32))
    add_norms(writer, width, rng)
    close(writer)


def make_experts():
    rng = np.random.default_rng(13)
    width, hidden, heads, kv_heads, head_dim, vocab, experts = 256, 64, 2, 1, 32, 64, 3
    writer = llama_writer(HERE / "gguf/types_of_experts.gguf", width, hidden, heads, kv_heads, head_dim)
    writer.add_expert_count(experts)
    writer.add_expert_used_count(2)
    shapes = {"token_embd": ((vocab, width), Type.IQ2_S), "output": ((vocab, width), Type.MXFP4),
              "blk.0.attn_q": ((heads * head_dim, width), Type.IQ3_XXS),
              "blk.0.attn_k": ((kv_heads * head_dim, width), Type.IQ3_XXS),
              "blk.0.attn_v": ((kv_heads * head_dim, width), Type.Q4_K),
              "blk.0.attn_output": ((width, heads * head_dim), Type.MXFP4),
              "blk.0.ffn_gate_exps": ((experts, hidden, width), Type.IQ2_S),
              "blk.0.ffn_up_exps": ((experts, hidden, width), Type.IQ2_S),
              "blk.0.ffn_down_exps": ((experts, width, hidden), Type.NVFP4)}
    for name, (shape, kind) in shapes.items():
        add_matrix(writer, name, shape, kind, rng)
    writer.add_tensor("blk.0.ffn_down_exps.scale", np.array([0.04, 0.08, 0.06], np.float32))
    writer.add_tensor("blk.0.ffn_gate_inp.weight", rng.normal(0, 0.2, (experts, width)).astype(np.float32))
    add_norms(writer, width, rng)
    close(writer)


if __name__ == "__main__":
    make_blocks()
    make_types()
    make_experts()
