#!/usr/bin/env python3
"""The demo model's perplexity in every type of GGUF files, beside that of the same values as f32.

    python3 tests/bench/gguf_perplexity.py [--minisgl build/src/cli/minisgl] [--types Q4_K,Q8_0] [--dtype f32]

Needs the packages gguf, numpy and sentencepiece. For each type the demo model is written twice: with its matrices in
that type, and with the values that gguf.quants gives for those bytes as f32. `minisgl score` scores the same answers
with both. The first file keeps codes in memory and may round activations, unless --dtype f32 is given; the second does
neither. A row of the table fails if the two perplexities differ by more than 1 %. What the type itself costs shows
beside the bf16 model.
Types of K and IQ are made here (gguf_grids.py) by rounding to nearest, without llama.cpp's search: the model in them is
worse than llama.cpp's tools would make it, which changes nothing of the comparison.
Rows of 704, which are not whole blocks of 256, are Q8_0 in files of such types.
"""
import argparse
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
import sentencepiece
from gguf import GGMLQuantizationType as Type

import gguf_grids

ROOT = Path(__file__).resolve().parents[2]
WREN = ROOT / "tests/models/wren"
LIMIT = 0.01


def pack(codes, bits, run):
    """Codes [N, K] of `bits` each to bytes: those `run` apart share a byte, the first in its lowest bits."""
    parts = codes.astype(np.uint8).reshape(len(codes), -1, 8 // bits, run)
    packed = np.zeros((len(codes), parts.shape[1], run), np.uint8)
    for i in range(8 // bits):
        packed |= parts[:, :, i] << np.uint8(bits * i)
    return packed.reshape(len(codes), -1)


def halves(values):
    return values.astype(np.float16).view(np.uint8).reshape(len(values), 2)


def ratio(values, scale):
    """values / scale, and 0 where the scale is 0."""
    return np.divide(values, scale, out=np.zeros(np.broadcast(values, scale).shape, np.float32), where=scale != 0)


def symmetric(blocks, group, largest, scale_largest):
    """Codes of x = d * scale * code, with signed codes and scales: (codes, scales, d)."""
    groups = blocks.reshape(len(blocks), -1, group)
    wanted = np.abs(groups).max(axis=2) / largest
    d = (wanted.max(axis=1) / scale_largest).astype(np.float16).astype(np.float32)
    scales = np.clip(np.round(ratio(wanted, d[:, None])), 0, scale_largest)
    codes = np.clip(np.round(ratio(groups, (d[:, None] * scales)[:, :, None])), -largest - 1, largest)
    return codes.reshape(len(blocks), -1).astype(int), scales.astype(int), d


def with_minimum(blocks, group, largest, scale_largest):
    """Codes of x = d * scale * code - dmin * minimum: (codes, scales, minimums, d, dmin)."""
    groups = blocks.reshape(len(blocks), -1, group)
    lowest = np.minimum(groups.min(axis=2), 0)
    width = (groups.max(axis=2) - lowest) / largest
    d = (width.max(axis=1) / scale_largest).astype(np.float16).astype(np.float32)
    dmin = (-lowest.min(axis=1) / scale_largest).astype(np.float16).astype(np.float32)
    scales = np.clip(np.round(ratio(width, d[:, None])), 0, scale_largest)
    minimums = np.clip(np.round(ratio(-lowest, dmin[:, None])), 0, scale_largest)
    shifted = groups + (dmin[:, None] * minimums)[:, :, None]
    codes = np.clip(np.round(ratio(shifted, (d[:, None] * scales)[:, :, None])), 0, largest)
    return codes.reshape(len(blocks), -1).astype(int), scales.astype(int), minimums.astype(int), d, dmin


def six_bit_pairs(scales, minimums):
    """Eight scales and eight minimums of 6 bits in 12 bytes."""
    s, m = scales, minimums
    return np.concatenate([s[:, :4] | s[:, 4:] >> 4 << 6, m[:, :4] | m[:, 4:] >> 4 << 6,
                           s[:, 4:] & 15 | (m[:, 4:] & 15) << 4], axis=1).astype(np.uint8)


def q2_k(blocks):
    codes, scales, minimums, d, dmin = with_minimum(blocks, 16, 3, 15)
    return [(scales | minimums << 4).astype(np.uint8), pack(codes, 2, 32), halves(d), halves(dmin)]


def q3_k(blocks):
    codes, scales, d = symmetric(blocks, 16, 3, 31)
    scales, codes = scales + 32, codes + 4
    return [pack(codes >> 2, 1, 32), pack(codes & 3, 2, 32), pack(scales & 15, 4, 8), pack(scales >> 4, 2, 4), halves(d)]


def q4_k(blocks):
    codes, scales, minimums, d, dmin = with_minimum(blocks, 32, 15, 63)
    return [halves(d), halves(dmin), six_bit_pairs(scales, minimums), pack(codes, 4, 32)]


def q5_k(blocks):
    codes, scales, minimums, d, dmin = with_minimum(blocks, 32, 31, 63)
    return [halves(d), halves(dmin), six_bit_pairs(scales, minimums), pack(codes >> 4, 1, 32), pack(codes & 15, 4, 32)]


def q6_k(blocks):
    codes, scales, d = symmetric(blocks, 16, 31, 127)
    codes = codes + 32
    return [pack(codes & 15, 4, 64), pack(codes >> 4, 2, 32), scales.astype(np.uint8), halves(d)]


KVALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def nearest(values):
    """The places in KVALUES that are nearest to `values`."""
    return np.abs(values[..., None] - KVALUES).argmin(axis=-1)


def iq4_nl(blocks):
    d = (np.abs(blocks).max(axis=1) / 127).astype(np.float16).astype(np.float32)
    return [halves(d), pack(nearest(ratio(blocks, d[:, None])), 4, 16)]


def iq4_xs(blocks):
    groups = blocks.reshape(len(blocks), 8, 32)
    wanted = np.abs(groups).max(axis=2) / 127
    d = (wanted.max(axis=1) / 31).astype(np.float16).astype(np.float32)
    scales = np.clip(np.round(ratio(wanted, d[:, None])), 0, 31).astype(int)
    codes = nearest(ratio(groups, (d[:, None] * scales)[:, :, None])).reshape(len(blocks), -1)
    scales = scales + 32
    high = np.zeros(len(blocks), np.uint16)
    for i in range(8):
        high |= (scales[:, i] >> 4 << 2 * i).astype(np.uint16)
    return [halves(d), high.view(np.uint8).reshape(-1, 2), pack(scales & 15, 4, 1), pack(codes, 4, 16)]


OWN = {Type.Q2_K: q2_k, Type.Q3_K: q3_k, Type.Q4_K: q4_k, Type.Q5_K: q5_k, Type.Q6_K: q6_k, Type.IQ4_NL: iq4_nl,
       Type.IQ4_XS: iq4_xs, **gguf_grids.OWN}
TYPES = [Type.F16, Type.Q8_0, Type.Q6_K, Type.Q5_K, Type.Q5_1, Type.Q5_0, Type.Q4_K, Type.Q4_1, Type.Q4_0, Type.IQ4_NL,
         Type.IQ4_XS, Type.MXFP4, Type.NVFP4, Type.Q3_K, Type.Q2_K, Type.IQ3_S, Type.IQ3_XXS, Type.IQ2_S, Type.IQ2_XS,
         Type.IQ2_XXS, Type.IQ1_M, Type.IQ1_S, Type.TQ2_0, Type.TQ1_0]


def quantized(array, kind):
    """The bytes of a matrix in `kind`, and its values by gguf.quants."""
    if kind in OWN:
        elements, num_bytes = gguf.GGML_QUANT_SIZES[kind]
        blocks = np.concatenate(OWN[kind](array.reshape(-1, elements)), axis=1)
        assert blocks.shape[1] == num_bytes, kind
        stored = blocks.reshape(len(array), -1)
    elif kind == Type.F16:
        stored = array.astype(np.float16)
    else:
        stored = gguf.quants.quantize(array, kind)
    return stored, gguf.quants.dequantize(stored, kind)


def read_weights():
    """Name -> f32 array."""
    data = (WREN / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    weights = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "BF16", name
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        bits = np.frombuffer(data[begin:end], np.uint16).astype(np.uint32) << 16
        weights[name] = bits.view(np.float32).reshape(entry["shape"])
    return weights


class Writer:
    """A GGUF file of the demo model."""

    def __init__(self, path, config):
        self.writer = writer = gguf.GGUFWriter(path, "llama")
        self.names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_context_length(config["max_position_embeddings"])
        writer.add_embedding_length(config["hidden_size"])
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_head_count(config["num_attention_heads"])
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_rope_freq_base(config["rope_theta"])
        model = sentencepiece.SentencePieceProcessor(model_file=str(WREN / "tokenizer.model"))
        ids = range(model.get_piece_size())
        writer.add_tokenizer_model("llama")
        writer.add_token_list([model.id_to_piece(i) for i in ids])
        writer.add_token_scores([model.get_score(i) for i in ids])
        # The package does not say which pieces the user defined, so take the template's.
        writer.add_token_types([2 if model.is_unknown(i) else 3 if model.is_control(i) else 5 if model.is_unused(i) else
                                6 if model.is_byte(i) else 4 if model.id_to_piece(i).startswith("<|") else 1
                                for i in ids])
        writer.add_add_space_prefix(False)
        writer.add_bos_token_id(model.bos_id())
        writer.add_eos_token_id(model.eos_id())
        writer.add_chat_template(json.loads((WREN / "tokenizer_config.json").read_text())["chat_template"])

    def add(self, name, array, kind=None):
        self.writer.add_tensor(self.names.get_name(name, try_suffixes=(".weight",)), np.ascontiguousarray(array),
                               raw_dtype=kind)

    def close(self):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def pairs_side_by_side(array, head_dim):
    """Rows of halves of heads become rows of pairs, as files of llama have them."""
    rows = array.reshape(-1, 2, head_dim // 2, array.shape[1])
    return rows.swapaxes(1, 2).reshape(array.shape)


def write_models(folder, kind, config, weights):
    """The paths of the model in `kind`, and of its values. Returns the bits of a weight, too."""
    paths = [folder / f"{kind.name}{end}.gguf" for end in ("", "-values")]
    files = [Writer(path, config) for path in paths]
    num_bytes = num_weights = 0
    for name, array in weights.items():
        if array.ndim == 1:
            for file in files:
                file.add(name, array)
            continue
        if ".q_proj." in name or ".k_proj." in name:
            array = pairs_side_by_side(array, config["head_dim"])
        own = kind if array.shape[1] % gguf.GGML_QUANT_SIZES[kind][0] == 0 else Type.Q8_0
        stored, values = quantized(array, own)
        files[0].add(name, stored, None if own == Type.F16 else own)
        files[1].add(name, values.astype(np.float32))
        num_bytes += stored.nbytes
        num_weights += array.size
    for file in files:
        file.close()
    return paths, 8 * num_bytes / num_weights


def write_texts(program, folder):
    """Answers of the bf16 model to the demo's questions, to be scored behind them."""
    asked, answers, texts = folder / "asked.jsonl", folder / "answers.jsonl", folder / "texts.jsonl"
    prompts = folder / "prompts.jsonl"
    rows = [json.loads(line) for name in ("stories", "notes") for line in (ROOT / f"prompts/{name}.jsonl").open()]
    asked.write_text("".join(json.dumps(row) + "\n" for row in rows))
    subprocess.run([program, "run", "-m", WREN, "--file", asked, "-o", answers, "-q"], check=True)
    subprocess.run([program, "tokenize", "-m", WREN, "--file", asked, "-o", prompts, "-q"], check=True)
    found = {row["id"]: row["text"] for row in map(json.loads, answers.open())}
    with texts.open("w") as out:
        for row in map(json.loads, prompts.open()):
            out.write(json.dumps({"id": row["id"], "prompt": row["prompt"].removeprefix("<s>"), "text": found[row["id"]]}) + "\n")
    return texts


def perplexity(program, model, texts, folder, options=()):
    summary = folder / "summary.json"
    summary.unlink(missing_ok=True)
    subprocess.run([program, "score", "-m", model, "--file", texts, "-o", folder / "scores.jsonl", "--force", "-q",
                    "--device", "cpu", "--summary", summary, *options], check=True)
    def find(value):
        if isinstance(value, dict):
            return value.get("perplexity") or next(filter(None, map(find, value.values())), None)
        return None
    return find(json.loads(summary.read_text()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minisgl", type=Path, default=ROOT / "build/src/cli/minisgl")
    parser.add_argument("--types", help="names, by commas (default: all)")
    parser.add_argument("--dtype", help="as the program's option, for the files with codes")
    options = parser.parse_args()
    more = ["--dtype", options.dtype] if options.dtype else []
    kinds = [Type[name] for name in options.types.split(",")] if options.types else TYPES
    config, weights = json.loads((WREN / "config.json").read_text()), read_weights()
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = write_texts(options.minisgl, folder)
        original = perplexity(options.minisgl, WREN, texts, folder)
        print(f"bf16: perplexity {original:.4f}\n")
        print("| type | bits a weight | perplexity | of its values | difference | beside bf16 |\n|---|---|---|---|---|---|")
        for kind in kinds:
            (model, values), bits = write_models(folder, kind, config, weights)
            found = perplexity(options.minisgl, model, texts, folder, more)
            wanted = perplexity(options.minisgl, values, texts, folder)
            difference = found / wanted - 1
            failed |= abs(difference) > LIMIT
            print(f"| {kind.name} | {bits:.2f} | {found:.4f} | {wanted:.4f} | {100 * difference:+.2f} % | "
                  f"{100 * (found / original - 1):+.1f} % |", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
