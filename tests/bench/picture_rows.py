"""Rows of text beside rows with pictures on the CPU, and what a picture takes of memory.

    PYTHON tests/bench/picture_rows.py [--minisgl FILE] [--work DIR] [--side 448] [--rounds 3] [--threads 2] [--shared DIR]

PYTHON has numpy and Pillow. The model has the shape of image_peers.py's, with other made-up weights. Rows of text alone, rows
with pictures alone, and both in one file are run in turns. The two kinds share the processor, so that text keeps its rate if both
together take no longer than one after the other: the ratio says how much longer they take (limit 1.1). Then one row with a picture
and one without: the greatest resident memory of each. Prints the lines of a table.
"""
import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from image_peers import IDS, QUESTION, RULES, TEXT, VISION, make_picture  # noqa: E402

TEXT_ROWS, TEXT_TOKENS, PICTURE_ROWS = 32, 64, 6


def shapes():
    width, inner, out = VISION["hidden_size"], VISION["intermediate_size"], VISION["out_hidden_size"]
    patch, merged = VISION["patch_size"], VISION["hidden_size"] * VISION["spatial_merge_size"] ** 2
    linear = {"patch_embed.proj": [width, 3, VISION["temporal_patch_size"], patch, patch]}
    for i in range(VISION["depth"]):
        linear |= {f"blocks.{i}.attn.qkv": [3 * width, width], f"blocks.{i}.attn.proj": [width, width],
                   f"blocks.{i}.mlp.linear_fc1": [inner, width], f"blocks.{i}.mlp.linear_fc2": [width, inner],
                   f"blocks.{i}.norm1": [width], f"blocks.{i}.norm2": [width]}
    mergers = [("merger", width)] + [(f"deepstack_merger_list.{i}", merged)
                                     for i in range(len(VISION["deepstack_visual_indexes"]))]
    for name, norm in mergers:
        linear |= {f"{name}.norm": [norm], f"{name}.linear_fc1": [merged, merged], f"{name}.linear_fc2": [out, merged]}
    found = {"model.visual.pos_embed.weight": [VISION["num_position_embeddings"], width]}
    for name, shape in linear.items():
        found |= {f"model.visual.{name}.weight": shape, f"model.visual.{name}.bias": shape[:1]}
    hidden, heads, inner = TEXT["hidden_size"], TEXT["head_dim"], TEXT["intermediate_size"]
    queries, keys = heads * TEXT["num_attention_heads"], heads * TEXT["num_key_value_heads"]
    text = {"embed_tokens": [TEXT["vocab_size"], hidden], "norm": [hidden]}
    for i in range(TEXT["num_hidden_layers"]):
        parts = {"self_attn.q_proj": [queries, hidden], "self_attn.k_proj": [keys, hidden], "self_attn.v_proj": [keys, hidden],
                 "self_attn.o_proj": [hidden, queries], "self_attn.q_norm": [heads], "self_attn.k_norm": [heads],
                 "mlp.gate_proj": [inner, hidden], "mlp.up_proj": [inner, hidden], "mlp.down_proj": [hidden, inner],
                 "input_layernorm": [hidden], "post_attention_layernorm": [hidden]}
        text |= {f"layers.{i}.{name}": shape for name, shape in parts.items()}
    return found | {f"model.language_model.{name}.weight": shape for name, shape in text.items()}


def write_model(folder, shared):
    import numpy as np

    random, header, begin = np.random.default_rng(0), {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes().items():
        end = begin + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for shape in shapes().values():
            values = random.standard_normal(shape, dtype=np.float32) * 0.02
            file.write((values.view(np.uint32) >> 16).astype(np.uint16).tobytes())
    config = {"model_type": "qwen3_vl", "architectures": ["Qwen3VLForConditionalGeneration"], "tie_word_embeddings": True,
              "vision_config": {"model_type": "qwen3_vl", **VISION}, **IDS,
              "text_config": {"model_type": "qwen3_vl_text", "tie_word_embeddings": True, "hidden_act": "silu", **TEXT}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps(RULES))
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(shared / "qwen2_vl" / name, folder / name)


def text_row(i):
    return {"id": f"text {i}", "messages": [{"role": "user", "content": f"Write about the number {i} and about rivers."}],
            "max_tokens": TEXT_TOKENS, "ignore_eos": True}


def picture_row(i, picture):
    parts = [{"type": "image", "image": str(picture)}, {"type": "text", "text": QUESTION}]
    return {"id": f"picture {i}", "messages": [{"role": "user", "content": parts}], "max_tokens": 4, "ignore_eos": True}


def run(arguments, folder, rows):
    """Seconds of the run, and the greatest resident bytes of its process."""
    file, summary = arguments.work / "rows.jsonl", arguments.work / "summary.json"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary.unlink(missing_ok=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    subprocess.run([arguments.minisgl, "run", "-m", folder, "--file", file, "--threads", str(arguments.threads), "--device",
                    "cpu", "--num-pages", "1000", "--temperature", "0", "--summary", summary, "--quiet"],
                   check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return json.loads(summary.read_text())["seconds"], after * 1024 if after > before else None


def main():
    root = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minisgl", type=Path, default=root / "build/src/cli/minisgl")
    parser.add_argument("--work", type=Path, default=Path.home() / ".cache/minisgl-bench/images")
    parser.add_argument("--shared", type=Path, default=root / "../shared/models/vision")
    parser.add_argument("--side", type=int, default=448)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    folder = arguments.work / "rows-model"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "model.safetensors").exists():
        write_model(folder, arguments.shared)
    pictures = []
    for i in range(PICTURE_ROWS):
        pictures.append(arguments.work / f"{arguments.side + 32 * i}.png")
        make_picture(pictures[-1], arguments.side + 32 * i)
    texts = [text_row(i) for i in range(TEXT_ROWS)]
    shown = [picture_row(i, picture) for i, picture in enumerate(pictures)]
    mixed = [row for i in range(TEXT_ROWS) for row in [texts[i], *shown[i:i + 1]]]
    # Memory first: the greatest of all children so far is what the system tells.
    small, large = (run(arguments, folder, rows)[1] for rows in ([texts[0]], [shown[-1]]))
    seconds = {"text": [], "pictures": [], "both": []}
    for _ in range(arguments.rounds):
        for name, rows in (("text", texts), ("pictures", shown), ("both", mixed)):
            seconds[name].append(run(arguments, folder, rows)[0])
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    print(f"{TEXT_ROWS} rows of {TEXT_TOKENS} tokens, {PICTURE_ROWS} pictures of {arguments.side} to "
          f"{arguments.side + 32 * (PICTURE_ROWS - 1)} a side, {arguments.threads} threads, {arguments.rounds} rounds")
    for name, value in middle.items():
        print(f"{name:9} {value:7.2f} s ({min(seconds[name]):.2f} to {max(seconds[name]):.2f})")
    print(f"ratio     {middle['both'] / (middle['text'] + middle['pictures']):7.3f}")
    if small and large:
        print(f"memory    {small / 2**20:.0f} MiB for a row of text, {large / 2**20:.0f} MiB with the largest picture")


if __name__ == "__main__":
    main()
