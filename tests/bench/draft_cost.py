"""What drafts by a model's own layer, or by a small model, cost and give, on the CPU, for one answer.

    python3 tests/bench/draft_cost.py BINARY [--layers 28] [--tokens 96] [--rounds 3] [--small]

Makes a model of Qwen3-0.6B's sizes with a layer for multi-token prediction (in Qwen3.5's layout, attention in all layers)
whose weights are read and multiplied as those of any model, but what its layers add is 0: the token that follows is a
function of the last one, for the layer as for the model, so every draft is right. A step that drafts K tokens and
verifies them costs `step` plain steps; at an acceptance of a it gives 1 + a + ... + a^K tokens, from which the speed-up
for any acceptance follows. With --small the model has Llama-3.2-1B's sizes and the one that drafts a fifth of its
weights; both repeat the last token. Needs numpy.
"""
import argparse
import json
import pathlib
import statistics
import struct
import subprocess
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WIDTH, INNER, HEADS, KV_HEADS, HEAD, VOCAB = 1024, 3072, 16, 8, 128, 151936
ONES = "ones"


def tensors_of(num_layers):
    """Names and shapes; a scale of 0 is all zeros."""
    yield "model.language_model.embed_tokens.weight", (VOCAB, WIDTH), 1
    yield "model.language_model.norm.weight", (WIDTH,), 0
    layers = [f"model.language_model.layers.{i}." for i in range(num_layers)] + ["mtp.layers.0."]
    for prefix in layers:
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}{norm}.weight", (WIDTH,), 0
        for norm in ("q_norm", "k_norm"):
            yield f"{prefix}self_attn.{norm}.weight", (HEAD,), 0
        yield f"{prefix}self_attn.q_proj.weight", (2 * HEADS * HEAD, WIDTH), 0.02
        yield f"{prefix}self_attn.k_proj.weight", (KV_HEADS * HEAD, WIDTH), 0.02
        yield f"{prefix}self_attn.v_proj.weight", (KV_HEADS * HEAD, WIDTH), 0.02
        yield f"{prefix}self_attn.o_proj.weight", (WIDTH, HEADS * HEAD), 0
        yield f"{prefix}mlp.gate_proj.weight", (INNER, WIDTH), 0.02
        yield f"{prefix}mlp.up_proj.weight", (INNER, WIDTH), 0.02
        yield f"{prefix}mlp.down_proj.weight", (WIDTH, INNER), 0
    yield "mtp.fc.weight", (WIDTH, 2 * WIDTH), None
    for norm in ("mtp.norm", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden"):
        yield f"{norm}.weight", (WIDTH,), 0


def llama_tensors(sizes):
    """Names and shapes of a model of Llama's architecture; ONES stands in place of a scale."""
    width, inner = sizes["hidden_size"], sizes["intermediate_size"]
    heads, keys = (sizes[key] * sizes["head_dim"] for key in ("num_attention_heads", "num_key_value_heads"))
    yield "model.embed_tokens.weight", (sizes["vocab_size"], width), 1
    yield "model.norm.weight", (width,), ONES
    for layer in range(sizes["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}{norm}.weight", (width,), ONES
        for name, shape in (("q", (heads, width)), ("k", (keys, width)), ("v", (keys, width))):
            yield f"{prefix}self_attn.{name}_proj.weight", shape, 0.02
        yield f"{prefix}self_attn.o_proj.weight", (width, heads), 0
        yield f"{prefix}mlp.gate_proj.weight", (inner, width), 0.02
        yield f"{prefix}mlp.up_proj.weight", (inner, width), 0.02
        yield f"{prefix}mlp.down_proj.weight", (width, inner), 0


def llama_sizes(layers, width, inner, heads, keys, head):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16", "hidden_act": "silu",
            "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": keys, "head_dim": head, "vocab_size": 128256, "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": True}


def values_of(shape, scale, generator):
    if scale is None:  # the embedding passes, the state does not
        return numpy.concatenate([numpy.eye(WIDTH, dtype=numpy.float32), numpy.zeros((WIDTH, WIDTH), numpy.float32)], 1)
    if scale in (0, ONES):
        return numpy.full(shape, 0 if scale == 0 else 1, numpy.float32)
    return generator.standard_normal(shape, dtype=numpy.float32) * scale


def write_tensors(folder, tensors):
    header, begin = {"__metadata__": {"format": "pt"}}, 0
    for name, shape, _ in tensors:
        size = 2 * int(numpy.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, begin + size]}
        begin += size
    text = json.dumps(header).encode()
    generator = numpy.random.default_rng(1)
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, shape, scale in tensors:
            bits = values_of(shape, scale, generator).view(numpy.uint32)
            out.write((bits >> 16).astype(numpy.uint16).tobytes())


def write_config(folder, config):
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json", "tokenizer.model"):
        if (ROOT / "tests/models/wren" / name).exists():
            (folder / name).write_bytes((ROOT / "tests/models/wren" / name).read_bytes())


def write_llama(folder, sizes):
    folder.mkdir(exist_ok=True)
    write_tensors(folder, list(llama_tensors(sizes)))
    write_config(folder, sizes)


def write_model(folder, num_layers):
    write_tensors(folder, list(tensors_of(num_layers)))
    config = {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "dtype": "bfloat16",
              "tie_word_embeddings": True,
              "text_config": {"model_type": "qwen3_5_text", "hidden_size": WIDTH, "intermediate_size": INNER,
                              "num_hidden_layers": num_layers, "num_attention_heads": HEADS,
                              "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "vocab_size": VOCAB,
                              "layer_types": ["full_attention"] * num_layers, "attn_output_gate": True,
                              "hidden_act": "silu", "rms_norm_eps": 1e-6, "max_position_embeddings": 4096,
                              "mtp_num_hidden_layers": 1, "tie_word_embeddings": True,
                              "linear_conv_kernel_dim": 4, "linear_key_head_dim": 32, "linear_num_key_heads": 2,
                              "linear_num_value_heads": 2, "linear_value_head_dim": 16,
                              "rope_parameters": {"rope_type": "default", "rope_theta": 1e7,
                                                  "partial_rotary_factor": 0.25, "mrope_interleaved": True,
                                                  "mrope_section": [6, 5, 5]}}}
    write_config(folder, config)


def seconds_of(binary, folder, speculate, tokens):
    """Returns the seconds of a token after the first, and the tokens of a step."""
    rows = folder / "rows.jsonl"
    rows.write_text(json.dumps({"prompt_token_ids": list(range(300, 332)), "max_tokens": tokens, "temperature": 0,
                                "ignore_eos": True}))
    summary = folder / "summary.json"
    subprocess.run([binary, "run", "-m", folder, "--device", "cpu", "--file", rows, "-o", folder / "out.jsonl", "--force",
                    "--quiet", "--no-images", "--max-seq-len", "1024", "--max-running-requests", "1", "--speculate",
                    speculate, "--summary", summary], check=True)
    figures = json.loads(summary.read_text())
    if speculate != "none":
        assert figures["draft_acceptance_percent"] > 99, figures["draft_acceptance_percent"]
    per_step = figures.get("tokens_per_step", 1)
    return (figures["seconds"] - figures["first_token_s"]["max"]) / (tokens - 1), per_step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if options.small:
            write_llama(folder, llama_sizes(16, 2048, 8192, 32, 8, 64))
            write_llama(folder / "small", llama_sizes(8, 1024, 3072, 16, 8, 64))
        else:
            write_model(folder, options.layers)
        kinds = ["none"] + [f"draft:{folder}/small:{k}" if options.small else f"mtp:{k}"
                            for k in ((1, 3, 5, 7) if options.small else (1, 2, 3))]
        seen = {kind: [] for kind in kinds}
        for _ in range(options.rounds):
            for kind in kinds:
                seen[kind].append(seconds_of(options.binary, folder, kind, options.tokens))
    plain = statistics.median(seconds for seconds, _ in seen["none"])
    print(f"plain: {1000 * plain:.1f} ms a token, medians of {options.rounds}")
    for kind in kinds[1:]:
        drafts = int(kind[-1])
        label = kind.replace(f"{folder}/small", "small")
        each = statistics.median(seconds for seconds, _ in seen[kind])
        per_step = seen[kind][0][1]
        step = each * per_step / plain
        speed_ups = [sum(a ** i for i in range(drafts + 1)) / step for a in (0.5, 0.7, 0.9)]
        print(f"{label}: {plain / each:.2f} times as fast with {per_step:.2f} tokens a step; a step costs {step:.2f} plain "
              f"ones; at 50, 70, 90 % right: " + ", ".join(f"{s:.2f}" for s in speed_ups))


main()
