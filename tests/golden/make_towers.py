"""Makes small towers of the families without a model in shared/models/vision, and what transformers makes of values
that a formula gives. Run by hand, never by the tests:

    python3 tests/golden/make_towers.py [NAME ...]

Needs torch, transformers, safetensors and numpy. Without names it makes all. Running it twice gives the same files:
towers/NAME/ with config.json, preprocessor_config.json and the tensors of the tower and its projector under the names
that transformers writes, and expected.json: for each picture its size, the shape of its values, and of its embeddings
the first 8 of the first and of the last token, the mean of absolute values, and the mean of each token.

Value i of a picture is ((i * 2654435761) mod 2^32 >> 16 & 255) / 127.5 - 1, or for Gemma 4 / 255, in float32.
"""
import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText

HERE = Path(__file__).resolve().parent / "towers"
TEXT = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 12, "vocab_size": 64, "max_position_embeddings": 512}
QWEN3 = {"depth": 3, "hidden_size": 24, "intermediate_size": 40, "num_heads": 2, "patch_size": 8, "out_hidden_size": 24,
         "spatial_merge_size": 2, "temporal_patch_size": 2, "num_position_embeddings": 36}
QWEN_PIXELS = {"image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 8, "merge_size": 2,
               "temporal_patch_size": 2, "size": {"shortest_edge": 256, "longest_edge": 65536}}
GEMMA4 = {"model_type": "gemma4_vision", "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2,
          "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "patch_size": 4, "pooling_kernel_size": 3,
          "position_embedding_size": 80, "rms_norm_eps": 1e-6, "use_clipped_linears": True, "standardize": False}
PIXTRAL = {"model_type": "pixtral", "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2,
           "num_attention_heads": 2, "image_size": 128, "patch_size": 8, "hidden_act": "silu", "head_dim": 16,
           "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
INTERNVL = {"model_type": "internvl_vision", "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2,
            "num_attention_heads": 2, "image_size": [32, 32], "patch_size": [8, 8], "attention_bias": True}
INTERNVL_PIXELS = {"image_processor_type": "GotOcr2ImageProcessorFast", "size": {"height": 32, "width": 32},
                   "min_patches": 1, "max_patches": 6, "crop_to_patches": True}

# name: configuration, preprocessor_config.json, (width, height) of pictures
TOWERS = {
    "qwen3_vl": ({"model_type": "qwen3_vl", "vision_config": {**QWEN3, "deepstack_visual_indexes": [0, 2]},
                  "text_config": {**TEXT, "model_type": "qwen3_vl_text",
                                  "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                                                      "mrope_section": [2, 2, 2]}}},
                 QWEN_PIXELS, [(48, 80), (16, 16), (160, 32)]),
    "qwen3_5": ({"model_type": "qwen3_5", "vision_config": QWEN3,
                 "text_config": {**TEXT, "model_type": "qwen3_5_text",
                                 "layer_types": ["full_attention", "full_attention"]}},
                QWEN_PIXELS, [(48, 80), (16, 160)]),
    "glm4v": ({"model_type": "glm4v",
               "vision_config": {"depth": 2, "hidden_size": 32, "num_heads": 2, "image_size": 40, "patch_size": 8,
                                 "out_hidden_size": 24, "intermediate_size": 44, "spatial_merge_size": 2,
                                 "temporal_patch_size": 2, "rms_norm_eps": 1e-5},
               "text_config": {**TEXT, "model_type": "glm4v_text", "pad_token_id": 0,
                               "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                                                   "mrope_section": [1, 1, 1], "partial_rotary_factor": 0.5}}},
              {"image_processor_type": "Glm4vImageProcessor", "patch_size": 8, "merge_size": 2,
               "temporal_patch_size": 2, "size": {"shortest_edge": 512, "longest_edge": 131072}},
              [(48, 80), (32, 32), (112, 32)]),
    "mistral3": ({"model_type": "mistral3", "vision_config": PIXTRAL, "spatial_merge_size": 2,
                  "multimodal_projector_bias": False, "vision_feature_layer": -1, "projector_hidden_act": "gelu",
                  "text_config": {**TEXT, "model_type": "mistral", "rms_norm_eps": 1e-3}},
                 {"image_processor_type": "PixtralImageProcessorFast", "patch_size": 8, "spatial_merge_size": 2,
                  "size": {"longest_edge": 128}},
                 [(48, 80), (32, 16), (128, 48)]),
    "gemma4_clipped": ({"model_type": "gemma4", "vision_config": GEMMA4, "audio_config": None,
                        "text_config": {**TEXT, "model_type": "gemma4_text", "vocab_size_per_layer_input": 64,
                                        "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0,
                                        "layer_types": ["sliding_attention", "full_attention"]}},
                       {"image_processor_type": "Gemma4ImageProcessor", "patch_size": 4, "pooling_kernel_size": 3,
                        "max_soft_tokens": 70},
                       [(48, 80), (200, 40)]),
    "internvl": ({"model_type": "internvl", "vision_config": INTERNVL, "image_seq_length": 4,
                  "text_config": {**TEXT, "model_type": "qwen2"}},
                 INTERNVL_PIXELS, [(32, 32), (64, 96)]),
    "internvl_rms": ({"model_type": "internvl", "image_seq_length": 4,
                      "vision_config": {**INTERNVL, "use_qk_norm": True, "norm_type": "rms_norm",
                                        "attention_bias": False, "use_mean_pooling": False},
                      "text_config": {**TEXT, "model_type": "qwen2"}},
                     INTERNVL_PIXELS, [(32, 64)]),
    "llama4": ({"model_type": "llama4",
                "vision_config": {"model_type": "llama4_vision_model", "hidden_size": 32, "intermediate_size": 128,
                                  "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32, "patch_size": 8,
                                  "vision_output_dim": 28, "projector_input_dim": 28, "projector_output_dim": 28,
                                  "pixel_shuffle_ratio": 0.5,
                                  "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
                "text_config": {**TEXT, "model_type": "llama4_text", "intermediate_size_mlp": 32,
                                "num_local_experts": 2}},
               {"image_processor_type": "Llama4ImageProcessorFast", "size": {"height": 32, "width": 32},
                "max_patches": 4},
               [(32, 32), (64, 32)]),
}
TOWER_PARTS = ("visual.", "vision_tower.", "vision_model.", "embed_vision.", "multi_modal_projector.")


def values_of(shape, is_gemma):
    """The values of a picture, as the test makes them."""
    index = np.arange(int(np.prod(shape)), dtype=np.uint64)
    level = ((index * np.uint64(2654435761)) % np.uint64(2**32) >> np.uint64(16) & np.uint64(255)).astype(np.float32)
    scaled = level / np.float32(255) if is_gemma else level / np.float32(127.5) - np.float32(1)
    return torch.from_numpy(scaled.astype(np.float32).reshape(shape))


def fill(model):
    """Weights with which every part of a tower matters, exact in bfloat16."""
    generator = torch.Generator().manual_seed(20260)
    for name, parameter in sorted([*model.named_parameters(), *model.named_buffers()]):
        if not parameter.is_floating_point():
            continue
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith(("input_min", "output_min", "input_max", "output_max")):
            bound = 0.9 + 0.1 * noise.abs()
            value = -bound if name.endswith("min") else bound
        elif "freq" in name:
            continue
        elif parameter.dim() >= 2 and "position" not in name and "pos_embed" not in name:
            value = noise * 1.2 / max(1, parameter[0].numel()) ** 0.5
        elif "norm" in name and name.endswith("weight") or "lambda" in name or name.endswith("std_scale"):
            value = 1 + 0.3 * noise
        else:
            value = 0.3 * noise
        parameter.data.copy_(value.to(torch.bfloat16).to(parameter.dtype))


def shape_of(name, config, pixels, size):
    """The shape of a picture's values, and its grid of patches; sizes need no resizing."""
    width, height = size
    vision = config["vision_config"]
    patch = vision["patch_size"] if isinstance(vision["patch_size"], int) else vision["patch_size"][0]
    rows, columns = height // patch, width // patch
    if name.startswith(("qwen", "glm")):
        return [rows * columns, 3 * 2 * patch * patch], (rows, columns)
    if name.startswith("gemma4"):
        # The budget of patches decides.
        scale = (pixels["max_soft_tokens"] * 9 * patch**2 / (width * height)) ** 0.5
        rows, columns = (int(scale * side / (3 * patch)) * 3 for side in (height, width))
        return [rows * columns, 3 * patch * patch], (rows, columns)
    if name == "mistral3":
        return [1, 3, height, width], (rows, columns)
    tiles = (width // 32) * (height // 32)
    return [tiles + (tiles > 1), 3, 32, 32], (4, 4)


def embed(name, model, values, grid):
    """The embeddings [tokens, width] of one picture, and its deepstack features."""
    inner = model.model if hasattr(model, "model") else model
    if name.startswith(("qwen", "glm")):
        out = inner.get_image_features(values, image_grid_thw=torch.tensor([[1, *grid]]))
        features = out.pooler_output
        stacked = [torch.cat(tuple(one)) for one in getattr(out, "deepstack_features", None) or []]
        return torch.cat(tuple(features)), stacked
    if name.startswith("gemma4"):
        places = torch.tensor([[[x, y] for y in range(grid[0]) for x in range(grid[1])]])
        out = inner.get_image_features(values[None], image_position_ids=places)
        return torch.cat(tuple(out.pooler_output)), []
    if name == "mistral3":
        out = inner.get_image_features(values, image_sizes=[tuple(values.shape[2:])])
        return torch.cat(tuple(out.pooler_output)), []
    if name == "llama4":
        hidden = model.get_image_features(values).last_hidden_state
        return model.multi_modal_projector(hidden.reshape(-1, hidden.shape[-1])), []
    out = inner.get_image_features(values, vision_feature_layer=-1, vision_feature_select_strategy="default")
    return out.pooler_output.reshape(-1, out.pooler_output.shape[-1]), []


def figures(rows):
    rows = rows.double().numpy()
    return {"shape": list(rows.shape), "first": [round(float(x), 7) for x in rows[0, :8]],
            "last": [round(float(x), 7) for x in rows[-1, :8]], "mean_abs": round(float(np.abs(rows).mean()), 7),
            "token_means": [round(float(x), 7) for x in rows.mean(axis=1)]}


def make(name):
    config, pixels, sizes = TOWERS[name]
    folder = HERE / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "float32"}, indent=1) + "\n")
    (folder / "preprocessor_config.json").write_text(json.dumps(pixels, indent=1) + "\n")
    torch.manual_seed(0)
    hf_config = AutoConfig.for_model(**config)
    hf_config._attn_implementation = "eager"
    model = AutoModelForImageTextToText.from_config(hf_config, attn_implementation="eager").eval()
    fill(model)
    written = folder / "whole"
    model.save_pretrained(written, save_original_format=True)
    tensors = load_file(written / "model.safetensors")
    for path in written.iterdir():
        path.unlink()
    written.rmdir()
    kept = {key: value.to(torch.bfloat16) for key, value in tensors.items()
            if key.removeprefix("model.").startswith(TOWER_PARTS)}
    save_file(kept, folder / "model.safetensors")
    pictures = []
    for size in sizes:
        shape, grid = shape_of(name, config, pixels, size)
        with torch.no_grad():
            rows, stacked = embed(name, model, values_of(shape, name.startswith("gemma4")), grid)
        pictures.append({"size": list(size), "values": shape, "image_embeds": figures(rows),
                         "deepstack": [figures(one) for one in stacked]})
    (folder / "expected.json").write_text(json.dumps({"pictures": pictures}, indent=1) + "\n")
    total = sum(path.stat().st_size for path in folder.iterdir())
    print(name, total, [(p["values"], p["image_embeds"]["shape"]) for p in pictures])


for wanted in sys.argv[1:] or TOWERS:
    make(wanted)
