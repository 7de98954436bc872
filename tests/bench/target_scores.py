#!/usr/bin/env python3
"""The demo model in every format of weights, on every CPU target: right rows of the prompt files, and perplexity.

    python3 tests/bench/target_scores.py [--minisgl build/src/cli/minisgl] [--targets amx,avx2] [--formats bf16,int4]

Needs the packages gguf, numpy and sentencepiece. Formats: the file's weights in f32, bf16 and f16 (--dtype), int8 and int4
(--quantize), and files as they are published, which are made here by rounding to nearest: GPTQ, AWQ, FP8 in blocks, MXFP4 and NVFP4
of compressed-tensors, and types of GGUF files. Right rows are those of prompts/*.jsonl whose answer is the expected one, of 300; the
perplexity is that of the bf16 model's answers to stories and notes. A format fails on a target if int8 or int4 by --quantize loses
more than two rows of bf16 of any file, or if its perplexity differs by more than 1 % from that on the first target.
"""
import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Type

import gguf_perplexity
import made_models

ROOT, WREN = gguf_perplexity.ROOT, gguf_perplexity.WREN
TARGETS = ["amx", "avx512_bf16", "avx512_vnni", "avx512", "avx2", "sse4", "scalar"]
FILES = ["notes", "mixed", "conversations"]
OPTIONS = {"f32": ["--dtype", "f32"], "bf16": [], "f16": ["--dtype", "f16"], "int8": ["--quantize", "int8"],
           "int4": ["--quantize", "int4"]}
ROWS_LOST_MAX, DIFFERENCE_MAX = 2, 0.01
GROUP = 64  # of GPTQ and AWQ: rows have 256 and 704 weights
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
E4M3 = np.array([(m / 8 * 2.0 ** -6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7)) for e in range(16) for m in range(8)][:127],
                np.float32)


def nearest(values, numbers):
    """The index of the nearest of ascending `numbers` to each value."""
    at = np.clip(np.searchsorted(numbers, values), 1, len(numbers) - 1)
    return (at - (values - numbers[at - 1] <= numbers[at] - values)).astype(np.uint8)


def signed(values, numbers, sign_bit):
    return nearest(np.abs(values), numbers) | np.where(values < 0, sign_bit, 0).astype(np.uint8)


def words(codes, order=range(8)):
    """Eight codes of 4 bits of the last axis to a word."""
    parts = codes.reshape(*codes.shape[:-1], -1, 8).astype(np.uint32)
    packed = np.zeros(parts.shape[:-1], np.uint32)
    for place, source in enumerate(order):
        packed |= parts[..., source] << np.uint32(4 * place)
    return packed


def halves(codes):
    return codes[:, 0::2] | codes[:, 1::2] << 4


def integers(matrix):
    """Codes 0 to 15 of weights (code - 8) * scale, and scales [out, groups] in f16."""
    groups = matrix.reshape(len(matrix), -1, GROUP)
    scales = (np.abs(groups).max(axis=2) / 7).astype(np.float16)
    codes = np.clip(np.rint(groups / scales[..., None].astype(np.float32)) + 8, 0, 15).astype(np.uint8)
    return codes.reshape(matrix.shape), scales


def gptq(matrix):
    codes, scales = integers(matrix)
    zeros = np.full((scales.shape[1], len(matrix)), 7, np.uint8)  # files of version 1 hold one less
    yield "qweight", "I32", np.ascontiguousarray(words(codes).T)
    yield "qzeros", "I32", words(zeros)
    yield "scales", "F16", np.ascontiguousarray(scales.T)
    yield "g_idx", "I32", (np.arange(matrix.shape[1]) // GROUP).astype(np.int32)


def awq(matrix):
    codes, scales = integers(matrix)
    zeros = np.full((scales.shape[1], len(matrix)), 8, np.uint8)
    yield "qweight", "I32", words(np.ascontiguousarray(codes.T), AWQ_ORDER)
    yield "qzeros", "I32", words(zeros, AWQ_ORDER)
    yield "scales", "F16", np.ascontiguousarray(scales.T)


def fp8(matrix):
    grid = tuple(-(-size // 128) for size in matrix.shape)
    scales = np.empty(grid, np.float32)
    codes = np.empty(matrix.shape, np.uint8)
    for i, j in np.ndindex(grid):
        block = np.s_[i * 128:(i + 1) * 128, j * 128:(j + 1) * 128]
        scales[i, j] = np.abs(matrix[block]).max() / E4M3[-1]
        codes[block] = signed(matrix[block] / scales[i, j], E4M3, 0x80)
    yield "weight", "F8_E4M3", codes
    yield "weight_scale_inv", "F32", scales


def mxfp4(matrix):
    groups = matrix.reshape(len(matrix), -1, 32)
    exponents = np.floor(np.log2(np.abs(groups).max(axis=2))) - 2
    codes = signed(groups / np.exp2(exponents)[..., None], E2M1, 8).reshape(matrix.shape)
    yield "weight_packed", "U8", halves(codes)
    yield "weight_scale", "U8", (exponents + 127).astype(np.uint8)


def nvfp4(matrix):
    groups = matrix.reshape(len(matrix), -1, 16)
    most = np.abs(groups).max(axis=2)
    factor = np.float32(E4M3[-1] * E2M1[-1] / most.max())
    scales = nearest(most * factor / E2M1[-1], E4M3)
    codes = signed(groups * factor / np.maximum(E4M3[scales], E4M3[1])[..., None], E2M1, 8).reshape(matrix.shape)
    yield "weight_packed", "U8", halves(codes)
    yield "weight_scale", "F8_E4M3", scales
    yield "weight_global_scale", "F32", np.array([factor], np.float32)


def compressed(name, group, scale_type, strategy):
    weights = {"dynamic": False, "group_size": group, "num_bits": 4, "scale_dtype": scale_type, "strategy": strategy, "symmetric": True,
               "type": "float"}
    return {"quant_method": "compressed-tensors", "format": name, "ignore": ["lm_head"], "quantization_status": "compressed",
            "config_groups": {"group_0": {"format": name, "input_activations": None, "output_activations": None,
                                          "targets": ["Linear"], "weights": weights}}}


# The function that stores a matrix, and its entry in config.json.
PUBLISHED = {
    "GPTQ": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": True}),
    "AWQ": (awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}),
    "FP8": (fp8, {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]}),
    "MXFP4": (mxfp4, compressed("mxfp4-pack-quantized", 32, "torch.uint8", "group")),
    "NVFP4": (nvfp4, compressed("nvfp4-pack-quantized", 16, "torch.float8_e4m3fn", "tensor_group")),
}
GGUF = ["Q8_0", "Q6_K", "Q4_K", "Q4_0"]
FORMATS = [*OPTIONS, *PUBLISHED, *GGUF]


def write_published(name, weights, folder):
    store, quantization = PUBLISHED[name]
    folder.mkdir()
    for file in WREN.iterdir():
        if file.suffix != ".safetensors":
            shutil.copy(file, folder)
    config = json.loads((WREN / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(dict(config, quantization_config=quantization)))
    tensors = []
    for tensor, values in weights.items():
        if values.ndim == 2 and ".layers." in tensor:
            parts = [(tensor.removesuffix("weight") + end, dtype, part) for end, dtype, part in store(values)]
        else:
            parts = [(tensor, "F32", values)]
        tensors += [(part_name, dtype, list(part.shape), part.tobytes()) for part_name, dtype, part in parts]
    made_models.write_safetensors(tensors, folder / "model.safetensors")
    return folder


def model_of(name, weights, folder):
    """The model in the format `name`, and the options that it takes."""
    if name in OPTIONS:
        return WREN, OPTIONS[name]
    if name in PUBLISHED:
        return write_published(name, weights, folder / name), []
    config = json.loads((WREN / "config.json").read_text())
    return gguf_perplexity.write_models(folder, Type[name], config, weights)[0][0], []


def right_rows(program, model, options, file, folder):
    answers = folder / "right.jsonl"
    subprocess.run([program, "run", "-m", model, "--file", ROOT / f"prompts/{file}.jsonl", "-o", answers, "--force", "-q",
                    "--device", "cpu", *options], check=True)
    rows = [json.loads(line) for line in answers.open()]
    return sum(row["text"] == row["metadata"]["expected"] for row in rows)


def table(title, formats, rows, show):
    print(f"\n{title}\n\n| `--cpu-target` | {' | '.join(formats)} |\n|{'---|' * (len(formats) + 1)}")
    for target, found in rows.items():
        print(f"| {target} | {' | '.join(show(found[name]) for name in formats)} |", flush=True)


def faults(found, first):
    """`found`: of a target, by format, right rows of each file and perplexity; `first`: of the first target."""
    for name, (right, perplexity) in found.items():
        lost = [b - r for b, r in zip(found.get("bf16", (right, 0))[0], right)]
        if name in ("int8", "int4") and max(lost) > ROWS_LOST_MAX:
            yield f"{name} loses {lost} rows of {FILES}"
        if abs(perplexity / first[name][1] - 1) > DIFFERENCE_MAX:
            yield f"{name}: perplexity {perplexity:.4f}, {first[name][1]:.4f} on the first target"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minisgl", type=Path, default=ROOT / "build/src/cli/minisgl")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--formats", default=",".join(FORMATS))
    args = parser.parse_args()
    formats = args.formats.split(",")
    unknown = [name for name in formats if name not in FORMATS and name not in Type.__members__]
    if unknown:
        parser.error(f"--formats: {unknown[0]} is none of {', '.join(FORMATS)}, nor a type of GGUF files")
    weights = gguf_perplexity.read_weights()
    rows, failed = {}, False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = gguf_perplexity.write_texts(args.minisgl, folder)
        models = {form: model_of(form, weights, folder) for form in formats}
        for target in args.targets.split(","):
            rows[target] = {}
            for form, (model, options) in models.items():
                options = [*options, "--cpu-target", target]
                right = [right_rows(args.minisgl, model, options, file, folder) for file in FILES]
                perplexity = gguf_perplexity.perplexity(args.minisgl, model, texts, folder, options)
                rows[target][form] = right, perplexity
                print(f"{target} {form}: {right} {perplexity:.4f}", file=sys.stderr)
            for fault in faults(rows[target], next(iter(rows.values()))):
                print(f"FAILED on {target}: {fault}")
                failed = True
    table(f"Right rows of {', '.join(FILES)}:", formats, rows, lambda found: " ".join(map(str, found[0])))
    table("Perplexity:", formats, rows, lambda found: f"{found[1]:.4f}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
