"""Makes golden/pixel_values.json: hashes of the pixel values that the reference makes of synthetic pictures, with the
rules of published models.

    python3 tests/vision/make_pixel_goldens.py     # needs torch, torchvision and transformers; made with 2.15, 0.29 and 5.24

A picture of width w and height h has the level (7x + 13y + 29c + xy / 16 + 3((x ^ y) & 31)) mod 256 at column x, row y and
channel c. Each case has the files of a model and, for some sizes, the shape and the SHA-256 of its little-endian float32
values, and the number of placeholders. Zero rows and tiles that only fill up a batch are left out.
"""
import hashlib
import importlib
import json
import math
import types
from pathlib import Path

import numpy
import torch

PATH = Path(__file__).parent / "golden" / "pixel_values.json"
CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
SIZES = [[640, 480], [37, 91], [1000, 30], [1, 1], [611, 1203]]


def side(size):
    return {"height": size, "width": size}


# Name, class, config.json, preprocessor_config.json, processor_config.json, sizes, pictures of a prompt.
CASES = [
    ("qwen2.5-vl", "qwen2_vl.Qwen2VLImageProcessor", {},
     {"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2, **CLIP}, {}, SIZES, 1),
    ("qwen3-vl", "qwen2_vl.Qwen2VLImageProcessor", {},
     {"size": {"longest_edge": 16777216, "shortest_edge": 65536}, "patch_size": 16, "temporal_patch_size": 2, "merge_size": 2, **HALF},
     {}, SIZES, 1),
    ("glm-4.1v", "glm4v.Glm4vImageProcessor", {},
     {"size": {"shortest_edge": 12544, "longest_edge": 9633792}, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2, **CLIP},
     {}, SIZES, 1),
    ("gemma-3", "gemma3.Gemma3ImageProcessor", {"mm_tokens_per_image": 256},
     {"size": side(896), "resample": 2, **HALF}, {"image_seq_length": 256}, SIZES, 1),
    ("gemma-4", "gemma4.Gemma4ImageProcessor", {}, None,
     {"image_processor": {"do_normalize": False, "max_soft_tokens": 280, "patch_size": 16, "pooling_kernel_size": 3, "resample": 3}},
     SIZES, 1),
    ("pixtral", "pixtral.PixtralImageProcessor", {}, {"size": {"longest_edge": 1024}, "patch_size": side(16), **CLIP},
     {"patch_size": 16}, SIZES[:3] + SIZES[4:], 1),
    ("mistral-3", "pixtral.PixtralImageProcessor", {}, {"size": {"longest_edge": 1540}, "patch_size": side(14), **CLIP},
     {"patch_size": 14, "spatial_merge_size": 2}, SIZES, 1),
    ("llava-1.5", "clip.CLIPImageProcessor", {"vision_config": {"model_type": "clip_vision_model", "patch_size": 14}},
     {"size": {"shortest_edge": 336}, "crop_size": side(336), "resample": 3, **CLIP},
     {"patch_size": 14, "num_additional_image_tokens": 1, "vision_feature_select_strategy": "default"}, SIZES, 1),
    ("llava-onevision", "llava_onevision.LlavaOnevisionImageProcessor", {"vision_config": {"patch_size": 14}},
     {"size": side(384), **HALF}, {"num_image_tokens": 729, "vision_aspect_ratio": "anyres_max_9"}, SIZES, 1),
    ("llava-onevision, two", "llava_onevision.LlavaOnevisionImageProcessor", {"vision_config": {"patch_size": 14}},
     {"size": side(384), **HALF}, {"num_image_tokens": 729, "vision_aspect_ratio": "anyres_max_9"}, SIZES, 2),
    ("internvl-3", "got_ocr2.GotOcr2ImageProcessor", {"vision_config": {"patch_size": [14, 14]}, "downsample_ratio": 0.5},
     {"size": side(448), "crop_to_patches": False, "min_patches": 1, "max_patches": 12, **IMAGENET}, {"image_seq_length": 256}, SIZES, 1),
    ("smolvlm", "smolvlm.SmolVLMImageProcessor", {"scale_factor": 4, "vision_config": {"patch_size": 16}},
     {"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}, "resample": 1, **HALF}, {"image_seq_len": 64}, SIZES, 1),
    ("idefics3, not split", "idefics3.Idefics3ImageProcessor", {"scale_factor": 2, "vision_config": {"patch_size": 14}},
     {"size": {"longest_edge": 1456}, "max_image_size": {"longest_edge": 364}, "do_image_splitting": False, **HALF}, {}, SIZES[:2], 1),
    ("llama-4", "llama4.Llama4ImageProcessor", {"vision_config": {"patch_size": 14, "pixel_shuffle_ratio": 0.5}},
     {"size": side(336), "max_patches": 16, "resize_to_max_canvas": False, "resample": 2, **HALF}, {"patch_size": 14}, SIZES, 1),
]


def picture(width, height):
    x, y, c = numpy.arange(width)[None, :, None], numpy.arange(height)[:, None, None], numpy.arange(3)[None, None, :]
    levels = (7 * x + 13 * y + 29 * c + x * y // 16 + 3 * ((x ^ y) & 31)) & 255
    return torch.from_numpy(levels.astype(numpy.uint8).transpose(2, 0, 1).copy())


def onevision_tokens(processor, width, height):
    module = importlib.import_module("transformers.models.llava_onevision.processing_llava_onevision")
    cls = module.LlavaOnevisionProcessor
    self = types.SimpleNamespace(image_processor=processor, num_image_tokens=729, vision_aspect_ratio="anyres_max_9")
    self._get_unpadded_features = lambda *sizes: cls._get_unpadded_features(self, *sizes)
    return cls._get_number_of_features(self, height, width, 384, 384)


def tokens_of(name, processor, rules, processor_rules, made, width, height):
    values = made["pixel_values"]
    if "image_grid_thw" in made:
        return int(made["image_grid_thw"][0].prod()) // 4
    if "num_soft_tokens_per_image" in made:
        return int(made["num_soft_tokens_per_image"][0])
    if name in ("pixtral", "mistral-3"):
        unit = processor_rules["patch_size"] * processor_rules.get("spatial_merge_size", 1)
        return values.shape[-1] // unit * (values.shape[-2] // unit)
    if name == "llava-onevision":
        return onevision_tokens(processor, width, height)
    a_tile = {"gemma-3": 256, "llava-1.5": 576, "llava-onevision, two": 730, "internvl-3": 256, "smolvlm": 64, "idefics3, not split": 169,
              "llama-4": 144}[name]
    return a_tile * math.prod(values.shape[:-3])


def values_of(name, processor, options, width, height, num_images):
    images = [picture(width, height)] * num_images
    made = processor(images if num_images == 1 else [images], return_tensors="pt", **options)
    values = made["pixel_values"]
    if name == "gemma-4":
        values = values[0, :int(made["num_soft_tokens_per_image"][0]) * 9]
    elif name.startswith("llava-onevision") or name.startswith(("smolvlm", "idefics3")):
        values = values[0]
    elif num_images > 1:
        values = values[:len(values) // num_images]
    made["pixel_values"] = values
    return made


def main():
    cases = []
    for name, path, config, rules, processor_rules, sizes, num_images in CASES:
        module, cls = path.split(".")
        own = rules if rules is not None else processor_rules["image_processor"]
        own["image_processor_type"] = cls
        processor = getattr(importlib.import_module(f"transformers.models.{module}.image_processing_{module}"), cls)
        keys = {key: value for key, value in own.items() if key != "image_processor_type"}
        processor = processor(**keys)
        options = {"crop_to_patches": True} if name == "internvl-3" else {}
        if name == "mistral-3":
            options = {"patch_size": side(28)}
        goldens = []
        for width, height in sizes:
            made = values_of(name, processor, options, width, height, num_images)
            values = made["pixel_values"].to(torch.float32).contiguous()
            goldens.append({"size": [width, height], "shape": list(values.shape),
                            "num_tokens": tokens_of(name, processor, rules, processor_rules, made, width, height),
                            "sha256": hashlib.sha256(values.numpy().astype("<f4").tobytes()).hexdigest()})
            print(name, width, height, goldens[-1]["shape"], goldens[-1]["num_tokens"], flush=True)
        cases.append({"name": name, "config": config, "preprocessor": rules, "processor": processor_rules, "num_images": num_images,
                      "goldens": goldens})
    PATH.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


main()
