"""A picture on the CPU against transformers: from the file of a picture to the first token of an answer, in one run.

    PYTHON tests/bench/image_peers.py [--minisgl FILE] [--work DIR] [--side 1024] [--rounds 3] [--threads 2] [--shared DIR]

PYTHON has torch, torchvision, transformers, safetensors and Pillow. The model has made-up weights in bf16: the tower of
Qwen3-VL-2B (24 layers of width 1024, three outputs besides the last) and three layers of its text, of width 2048, which
are as many as the tower's outputs need. The tokenizer and the template are those of the tiny model qwen2_vl in --shared
(default: ../shared/models/vision beside the project). Both sides take turns; each decodes and resizes the picture, runs
the tower, and computes the prompt with it. Loading does not count. Prints seconds, their ratio and the rate of the
tower's products and attention, whose number is counted from the shape.
"""
import argparse
import json
import random
import shutil
import statistics
import subprocess
import time
from pathlib import Path

VISION = {"depth": 24, "hidden_size": 1024, "num_heads": 16, "intermediate_size": 4096, "patch_size": 16,
          "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 2048, "num_position_embeddings": 2304,
          "deepstack_visual_indexes": [5, 11, 17], "hidden_act": "gelu_pytorch_tanh", "in_channels": 3}
TEXT = {"hidden_size": 2048, "num_hidden_layers": 3, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
        "intermediate_size": 6144, "vocab_size": 376, "max_position_embeddings": 8192, "rope_theta": 5000000,
        "rope_scaling": {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [24, 20, 20]}}
IDS = {"image_token_id": 368, "video_token_id": 369, "vision_start_token_id": 365, "vision_end_token_id": 366}
RULES = {"image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 16, "merge_size": 2, "temporal_patch_size": 2,
         "size": {"shortest_edge": 65536, "longest_edge": 16777216}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
QUESTION = "What is in the picture?"


def tower_flops(patches):
    width, inner, merged = VISION["hidden_size"], VISION["intermediate_size"], patches // 4
    layer = 2 * patches * width * (4 * width + 2 * inner) + 4 * patches * patches * width
    merger = 2 * merged * 4 * width * (4 * width + VISION["out_hidden_size"])
    return VISION["depth"] * layer + 4 * merger + 2 * patches * width * 3 * 2 * VISION["patch_size"] ** 2


def make_model(folder, shared):
    import torch
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    torch.manual_seed(0)
    config = Qwen3VLConfig(vision_config=VISION, text_config=TEXT, tie_word_embeddings=True, **IDS)
    model = Qwen3VLForConditionalGeneration._from_config(config, dtype=torch.bfloat16).eval()
    if not (folder / "model.safetensors").exists():
        model.save_pretrained(folder)
        (folder / "preprocessor_config.json").write_text(json.dumps(RULES))
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(shared / "qwen2_vl" / name, folder / name)
    return Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.bfloat16).eval()


def make_picture(path, side):
    from PIL import Image

    small = Image.frombytes("RGB", (64, 64), random.Random(0).randbytes(64 * 64 * 3))
    small.resize((side, side)).save(path)


def run_peer(model, ids, picture):
    import torch
    from PIL import Image
    from transformers import Qwen2VLImageProcessorFast

    begin = time.perf_counter()
    values = Qwen2VLImageProcessorFast(**{k: v for k, v in RULES.items() if k != "image_processor_type"})(
        images=[Image.open(picture).convert("RGB")], return_tensors="pt")
    input_ids = torch.tensor([ids])
    with torch.inference_mode():
        model(input_ids=input_ids, attention_mask=torch.ones_like(input_ids),
              mm_token_type_ids=(input_ids == IDS["image_token_id"]).int(),
              pixel_values=values["pixel_values"].to(torch.bfloat16), image_grid_thw=values["image_grid_thw"],
              logits_to_keep=1)
    return time.perf_counter() - begin


def run_own(arguments, folder, picture, summary):
    subprocess.run([arguments.minisgl, "run", "-m", folder, "-p", QUESTION, "--image", picture, "--max-tokens", "1",
                    "--threads", str(arguments.threads), "--device", "cpu", "--num-pages", "200", "--temperature", "0",
                    "--max-prefill-length", "2048", "--no-stdin", "--summary", summary, "--quiet"],
                   check=True, stdout=subprocess.DEVNULL)
    seconds = json.loads(summary.read_text())["seconds"]
    summary.unlink()
    return seconds


def main():
    import torch

    root = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minisgl", type=Path, default=root / "build/src/cli/minisgl")
    parser.add_argument("--work", type=Path, default=Path.home() / ".cache/minisgl-bench/images")
    parser.add_argument("--shared", type=Path, default=root / "../shared/models/vision")
    parser.add_argument("--side", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    folder = arguments.work / "model"
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(arguments.threads)
    model = make_model(folder, arguments.shared)
    picture, summary = arguments.work / f"{arguments.side}.png", arguments.work / "summary.json"
    make_picture(picture, arguments.side)
    row = arguments.work / "row.jsonl"
    parts = [{"type": "image", "image": str(picture)}, {"type": "text", "text": QUESTION}]
    row.write_text(json.dumps({"messages": [{"role": "user", "content": parts}]}) + "\n")
    shown = subprocess.run([arguments.minisgl, "tokenize", "-m", folder, "--file", row], check=True,
                           capture_output=True, text=True).stdout
    ids = json.loads(shown)["prompt_token_ids"]
    own, peer = [], []
    for _ in range(arguments.rounds):
        own.append(run_own(arguments, folder, picture, summary))
        peer.append(run_peer(model, ids, picture))
    patches = 4 * ids.count(IDS["image_token_id"])
    ratio = statistics.median(peer) / statistics.median(own)
    print(f"{arguments.side} x {arguments.side}, {patches} patches, {len(ids)} tokens, {arguments.threads} threads, "
          f"{tower_flops(patches) / 1e9:.0f} GFLOP in the tower")
    print(f"minisgl       {statistics.median(own):8.2f} s ({min(own):.2f} to {max(own):.2f}), "
          f"{tower_flops(patches) / 1e9 / statistics.median(own):.0f} GFLOP/s")
    print(f"transformers  {statistics.median(peer):8.2f} s ({min(peer):.2f} to {max(peer):.2f})")
    print(f"ratio         {ratio:8.2f}")


if __name__ == "__main__":
    main()
