"""What adapters (LoRA) cost on the CPU: the rate of a batch whose rows go through several of them against that of the base.

    python3 tests/bench/adapter_cost.py BINARY [--layers 28] [--rank 16] [--tokens 32] [--rounds 3] [--stored f32|bf16]
                                        [-- OPTIONS OF RUN]

Makes a model of Qwen3-0.6B's sizes with random weights in bf16, and eight adapters of every matrix of a layer. Compares, side
by side in each round, 32 rows with eight adapters against 32 rows of the base, and one row likewise, by tokens a second of the
answers after the first token. Needs numpy.
"""
import argparse
import json
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WIDTH, INNER, HEADS, KV_HEADS, HEAD, VOCAB = 1024, 3072, 16, 8, 128, 151936
MATRICES = {"self_attn.q_proj": (HEADS * HEAD, WIDTH), "self_attn.k_proj": (KV_HEADS * HEAD, WIDTH),
            "self_attn.v_proj": (KV_HEADS * HEAD, WIDTH), "self_attn.o_proj": (WIDTH, HEADS * HEAD),
            "mlp.gate_proj": (INNER, WIDTH), "mlp.up_proj": (INNER, WIDTH), "mlp.down_proj": (WIDTH, INNER)}
ADAPTERS = 8


def bits_of(values, dtype):
    return values.tobytes() if dtype == "F32" else (values.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes()


def write_tensors(path, tensors, dtype, generator):
    """`tensors`: names, shapes and the scale of random numbers; a scale of 0 is all ones."""
    header, begin, width = {}, 0, 4 if dtype == "F32" else 2
    for name, shape, _ in tensors:
        size = width * int(numpy.prod(shape))
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, begin + size]}
        begin += size
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, shape, scale in tensors:
            values = numpy.ones(shape, numpy.float32)
            if scale > 0:
                values = generator.standard_normal(shape, dtype=numpy.float32) * scale
            out.write(bits_of(values, dtype))


def write_model(folder, num_layers):
    tensors = [("model.embed_tokens.weight", (VOCAB, WIDTH), 0.02), ("model.norm.weight", (WIDTH,), 0)]
    for i in range(num_layers):
        prefix = f"model.layers.{i}."
        tensors += [(f"{prefix}{norm}.weight", (WIDTH,), 0) for norm in ("input_layernorm", "post_attention_layernorm")]
        tensors += [(f"{prefix}self_attn.{norm}.weight", (HEAD,), 0) for norm in ("q_norm", "k_norm")]
        tensors += [(f"{prefix}{name}.weight", shape, 0.02) for name, shape in MATRICES.items()]
    write_tensors(folder / "model.safetensors", tensors, "BF16", numpy.random.default_rng(1))
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "bfloat16", "tie_word_embeddings": True,
        "hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": num_layers, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "vocab_size": VOCAB, "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "max_position_embeddings": 4096, "rope_theta": 1e6}))
    for name in ("tokenizer.json", "tokenizer_config.json", "tokenizer.model"):
        if (ROOT / "tests/models/wren" / name).exists():
            (folder / name).write_bytes((ROOT / "tests/models/wren" / name).read_bytes())


def write_adapter(folder, num_layers, rank, dtype, seed):
    folder.mkdir(parents=True)
    tensors = []
    for i in range(num_layers):
        for name, (num_out, num_in) in MATRICES.items():
            prefix = f"base_model.model.model.layers.{i}.{name}."
            tensors += [(f"{prefix}lora_A.weight", (rank, num_in), 0.02), (f"{prefix}lora_B.weight", (num_out, rank), 0.01)]
    write_tensors(folder / "adapter_model.safetensors", tensors, dtype, numpy.random.default_rng(seed))
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": [name.split(".")[1] for name in MATRICES]}))


def rate_of(binary, folder, names, tokens, more):
    """Tokens a second of answers, behind the first token of each. `names`: the adapter of each row, or None."""
    rows = [{"prompt_token_ids": list(range(300 + i, 308 + i)), "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
            for i in range(len(names))]
    for row, name in zip(rows, names):
        if name is not None:
            row["adapter"] = name
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = folder / "summary.json"
    command = [binary, "run", "-m", folder / "model", "--device", "cpu", "--file", folder / "rows.jsonl", "-o",
               folder / "out.jsonl", "--force", "--quiet", "--max-seq-len", "512", "--summary", summary, *more]
    if any(names):
        command += ["--adapter", folder / "adapters"]
    subprocess.run(command, check=True)
    figures = json.loads(summary.read_text())
    return len(names) * (tokens - 1) / (figures["seconds"] - figures["first_token_s"]["max"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stored", default="f32")
    arguments = sys.argv[1:]
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:end])
    options.more = arguments[end + 1:]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "model").mkdir()
        write_model(folder / "model", options.layers)
        for i in range(ADAPTERS):
            write_adapter(folder / "adapters" / f"a{i}", options.layers, options.rank, options.stored.upper(), i + 2)
        cases = {"32 rows, 8 adapters": [f"a{i % ADAPTERS}" for i in range(32)], "32 rows, 1 adapter": ["a0"] * 32,
                 "1 row, 1 adapter": ["a0"]}
        seen = {case: [] for case in cases}
        for _ in range(options.rounds):
            base = {}
            for case, names in cases.items():
                if len(names) not in base:
                    base[len(names)] = rate_of(options.binary, folder, [None] * len(names), options.tokens, options.more)
                seen[case].append((rate_of(options.binary, folder, names, options.tokens, options.more), base[len(names)]))
        for case, rates in seen.items():
            ratio = statistics.median(own / base for own, base in rates)
            own, base = (max(rate[i] for rate in rates) for i in (0, 1))
            print(f"{case}: {ratio:.3f} of the base's rate (median of {len(rates)} rounds); the best rounds {own / base:.3f}, "
                  f"{own:.1f} of {base:.1f} tokens/s", flush=True)


main()
