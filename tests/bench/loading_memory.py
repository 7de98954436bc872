#!/usr/bin/env python3
"""The most memory that loading takes, in every kind of file, against what its promise allows.

    python3 tests/bench/loading_memory.py [--minisgl build/src/cli/minisgl] [--folder DIR] [--formats bf16,int4] [--target NAME]

Models of made-up weights of some hundred MB are written to the folder (default: a temporary one) and loaded by `minisgl bench`,
with a small cache and steps of 17 tokens. A row shows, in MiB: the model's files; the packed weights, as the program counts them;
the peaks of anonymous pages and of pages of mapped files, sampled each millisecond, and that of the resident set (VmHWM).
"allowed" is the packed weights, the files' bytes of the largest layer (or of embedding and head), and 48 MiB for the program. A row
fails if its peak is above that.
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import made_models
from made_models import elements

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
PROGRAM_MIB = 48  # the program, its workspace and its cache
DENSE = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 4096,
         "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 16384,
         "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": True,
         "hidden_act": "silu", "torch_dtype": "bfloat16"}
EXPERTS = {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 1024, "intermediate_size": 1024,
           "num_hidden_layers": 12, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 16384,
           "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 150000, "tie_word_embeddings": False,
           "hidden_act": "silu", "attention_bias": True, "num_local_experts": 16, "num_experts_per_tok": 2,
           "sliding_window": 128, "swiglu_limit": 7.0, "torch_dtype": "bfloat16",
           "layer_types": ["sliding_attention", "full_attention"] * 6}
QUANTIZATION = {
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True},
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]},
    "mxfp4": {"quant_method": "mxfp4",
              "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]},
}
# Names of rows: the model's kind of files, and options.
FORMATS = {"bf16": ("bf16", []), "int8": ("bf16", ["--quantize", "int8"]), "int4": ("bf16", ["--quantize", "int4"]),
           "f32": ("bf16", ["--dtype", "f32"]), "gptq": ("gptq", []), "awq": ("awq", []), "fp8": ("fp8", []),
           "mxfp4": ("mxfp4", []), "q4_k_m": ("q4_k_m", [])}


def quantized(kind, name, out, inputs):
    """The tensors of a matrix [out, inputs] of a dense layer: name, type, shape, block of bytes."""
    scale = b"\x66\x10"  # f16: 5e-4
    if kind == "gptq":
        groups = inputs // 128
        yield name + ".qweight", "I32", [inputs // 8, out], random_block()
        yield name + ".qzeros", "I32", [groups, out // 8], b"\x77" * 4096
        yield name + ".scales", "F16", [groups, out], scale * 4096
        yield name + ".g_idx", "I32", [inputs], b"".join((i // 128).to_bytes(4, "little") for i in range(inputs))
    elif kind == "awq":
        groups = inputs // 128
        yield name + ".qweight", "I32", [inputs, out // 8], random_block()
        yield name + ".qzeros", "I32", [groups, out // 8], b"\x77" * 4096
        yield name + ".scales", "F16", [groups, out], scale * 4096
    elif kind == "fp8":
        yield name + ".weight", "F8_E4M3", [out, inputs], made_models.masked_block(b"\x87", b"\x10")
        yield name + ".weight_scale_inv", "F32", [out // 128, inputs // 128], b"\x00\x00\x80\x3e" * 1024
    else:
        yield name + ".weight", "BF16", [out, inputs], made_models.bf16_block()


_RANDOM = []


def random_block():
    if not _RANDOM:
        _RANDOM.append(made_models.masked_block(b"\xff", b"\x00"))
    return _RANDOM[0]


def dense_tensors(kind):
    ones = b"\x80\x3f" * 4096
    for _, name, shape in made_models.tensors_of(made_models.Sizes(DENSE)):
        if len(shape) == 1:
            yield name, "BF16", shape, ones
        elif ".layers." in name:
            yield from quantized(kind, name.removesuffix(".weight"), *shape)
        else:
            yield name, "BF16", shape, made_models.bf16_block()


def expert_tensors():
    hidden, inner, count = EXPERTS["hidden_size"], EXPERTS["intermediate_size"], EXPERTS["num_local_experts"]
    heads, kv_heads = EXPERTS["num_attention_heads"], EXPERTS["num_key_value_heads"]
    ones, block, zeros = b"\x80\x3f" * 4096, made_models.bf16_block(), b"\0" * 4096
    scales = bytes([119]) * 4096  # 2^-8
    yield "model.embed_tokens.weight", "BF16", [EXPERTS["vocab_size"], hidden], block
    yield "lm_head.weight", "BF16", [EXPERTS["vocab_size"], hidden], block
    yield "model.norm.weight", "BF16", [hidden], ones
    for layer in range(EXPERTS["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", "BF16", [hidden], ones
        yield prefix + "post_attention_layernorm.weight", "BF16", [hidden], ones
        for name, out, inputs in (("q", heads * 64, hidden), ("k", kv_heads * 64, hidden), ("v", kv_heads * 64, hidden),
                                  ("o", hidden, heads * 64)):
            yield f"{prefix}self_attn.{name}_proj.weight", "BF16", [out, inputs], block
            yield f"{prefix}self_attn.{name}_proj.bias", "BF16", [out], zeros
        yield prefix + "self_attn.sinks", "BF16", [heads], zeros
        yield prefix + "mlp.router.weight", "BF16", [count, hidden], block
        yield prefix + "mlp.router.bias", "BF16", [count], zeros
        for name, out, inputs in (("gate_up", 2 * inner, hidden), ("down", hidden, inner)):
            of_all = f"{prefix}mlp.experts.{name}_proj_"
            yield of_all + "blocks", "U8", [count, out, inputs // 32, 16], random_block()
            yield of_all + "scales", "U8", [count, out, inputs // 32], scales
            yield of_all + "bias", "BF16", [count, out], zeros


def part_of(name):
    """The layer of a tensor; "" outside of them."""
    found = re.search(r"(?:layers|blk)\.(\d+)\.", name)
    return found[1] if found else ""


def largest_part(sizes):
    """`sizes`: of (name, bytes). The bytes of the layer with most."""
    parts = {}
    for name, num_bytes in sizes:
        parts[part_of(name)] = parts.get(part_of(name), 0) + num_bytes
    return max(parts.values())


def write_safetensors(kind, folder):
    """Returns the bytes of the largest layer."""
    config = EXPERTS if kind == "mxfp4" else DENSE
    if kind in QUANTIZATION:
        config = dict(config, quantization_config=QUANTIZATION[kind])
    tensors = list(expert_tensors() if kind == "mxfp4" else dense_tensors(kind))
    sizes = [(name, elements(shape) * made_models.STORED_BYTES[dtype]) for name, dtype, shape, _ in tensors]
    path = folder / "model.safetensors"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config))
        made_models.write_tokenizer(config["vocab_size"], folder)
        made_models.write_safetensors(tensors, path)
    return folder, largest_part(sizes)


def write_gguf(path):
    """Returns the bytes of the largest layer."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = [(name, num_bytes) for name, _, _, num_bytes in made_models.gguf_tensors(DENSE, "q4_k_m")]
    return made_models.write_gguf(DENSE, "q4_k_m", path), largest_part(sizes)


ENGINE = ["--device", "cpu", "--num-pages", "8", "--max-seq-len", "64", "--max-running-requests", "1", "--max-prefill-length", "16"]


def status_of(process):
    """VmHWM, RssAnon and RssFile in MiB; None if the process has ended."""
    try:
        text = Path(f"/proc/{process.pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    found = dict(re.findall(r"^(VmHWM|RssAnon|RssFile):\s+(\d+) kB", text, re.MULTILINE))
    return [int(found[name]) / 1024 for name in ("VmHWM", "RssAnon", "RssFile")] if len(found) == 3 else None


def measured(program, model, options):
    """The MiB of packed weights, and the peaks of status_of()."""
    command = [program, "bench", "uniform", "1", "16", "1", "--temperature", "0", "--repeat", "1", "--copy-mib", "1",
               "--matrix-size", "16", "--quiet", "-m", model, *ENGINE, *options]
    with tempfile.NamedTemporaryFile() as figures:
        process = subprocess.Popen([*command, "--json", figures.name], stdout=subprocess.DEVNULL)
        most = [0, 0, 0]
        while process.poll() is None:
            now = status_of(process)
            if now:
                most = [max(pair) for pair in zip(most, now)]
            time.sleep(0.001)
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, command))}: exit {process.returncode}")
        return json.load(figures)["engine"]["weight_bytes"] / MIB, most


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minisgl", default=ROOT / "build/src/cli/minisgl")
    parser.add_argument("--folder", type=Path, help="keeps the models")
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--target", help="--cpu-target of the program")
    args = parser.parse_args()
    temporary = tempfile.TemporaryDirectory()
    folder = args.folder or Path(temporary.name)
    print("| format | files | packed weights | anonymous | file pages | peak | allowed |")
    print("|---|---|---|---|---|---|---|")
    failed = False
    for name in args.formats.split(","):
        kind, options = FORMATS[name]
        if args.target:
            options = [*options, "--cpu-target", args.target]
        model, layer = write_gguf(folder / "q4_k_m.gguf") if kind == "q4_k_m" else write_safetensors(kind, folder / kind)
        files = sum(file.stat().st_size for file in (model.iterdir() if model.is_dir() else [model])) / MIB
        weights, (peak, anonymous, mapped) = measured(args.minisgl, model, options)
        allowed = weights + layer / MIB + PROGRAM_MIB
        failed = failed or peak > allowed
        print(f"| {name} | {files:.0f} | {weights:.0f} | {anonymous:.0f} | {mapped:.0f} | {peak:.0f} |"
              f" {allowed:.0f}{' FAILED' if peak > allowed else ''} |", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
