"""Makes the files of gguf/projectors with llama.cpp's own converter. Run by hand:

    python3 tests/golden/convert_projectors.py LLAMA_CPP MODELS [NAME ...]

NAME.gguf and mmproj-NAME.gguf from the model directories of the folder MODELS, such as shared/models/vision; and
tower-NAME.gguf from towers/NAME. LLAMA_CPP is a source tree of llama.cpp as convert_gguf.py takes it. Needs the
packages that the converter needs.
"""
import json
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODELS = ["gemma3", "gemma4", "pixtral", "qwen2_5_vl", "qwen2_vl", "smolvlm"]
TOWERS = {  # the class of the model that has it
    "gemma4_clipped": "Gemma4ForConditionalGeneration",
    "internvl": "InternVisionModel",
    "mistral3": "Mistral3ForConditionalGeneration",
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
}


def convert(source, out, kind, architecture=None):
    import gguf
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class

    config = ModelBase.load_hparams(source, False)
    is_projector = kind == ModelType.MMPROJ
    base = get_model_class(architecture or get_model_architecture(config, kind), mmproj=is_projector)

    class Converter(base):
        model_arch = base.model_arch
        no_mtp, mtp_only = True, False

        def set_vocab(self):
            tokenizer = json.loads((source / "tokenizer.json").read_text())
            if base.__name__ == "Gemma3Model":  # takes as many rows of the embeddings as there are tokens
                self.hparams["vocab_size"] = len(tokenizer["model"]["vocab"]) + len(tokenizer["added_tokens"])
            self._set_vocab_gpt2()  # all of these models have such a tokenizer

        def get_vocab_base_pre(self, tokenizer):
            return "gpt-2"

        def get_token_id(self, token):
            # Towers alone have no tokenizer.
            return -1 if architecture else super().get_token_id(token)

    file_type = gguf.LlamaFileType.ALL_F32 if architecture else gguf.LlamaFileType.MOSTLY_BF16
    model = Converter(source, file_type, out, eager=True)
    if is_projector:
        # The map has as many projectors' names as the tower has layers.
        model.tensor_map = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, 64)
    model.write()


def convert_tower(name, out):
    """A converter needs what the folder of a tower leaves to defaults."""
    from conversion import ModelType
    from safetensors.torch import load_file, save_file

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / name
        shutil.copytree(HERE / "towers" / name, folder)
        path = folder / "preprocessor_config.json"
        path.write_text(json.dumps({"image_mean": [0.5] * 3, "image_std": [0.5] * 3, **json.loads(path.read_text())}))
        path = folder / "config.json"
        config = json.loads(path.read_text())
        vision = config["vision_config"]
        for key, value in [("layer_norm_eps", 1e-6), ("hidden_act", "gelu")]:
            vision.setdefault(key, value)
        config.setdefault("downsample_ratio", 0.5)
        path.write_text(json.dumps(config))
        if name.startswith("internvl"):  # published under names with "model."
            path = folder / "model.safetensors"
            save_file({f"model.{key}": value for key, value in load_file(path).items()}, path)
        convert(folder, out, ModelType.MMPROJ, TOWERS[name])


if __name__ == "__main__":
    sys.path[:0] = [sys.argv[1], f"{sys.argv[1]}/gguf-py"]
    from conversion import ModelType

    results = HERE / "gguf/projectors"
    results.mkdir(exist_ok=True)
    for each in sys.argv[3:] or [*MODELS, *TOWERS]:
        if each in TOWERS:
            convert_tower(each, results / f"tower-{each}.gguf")
        else:
            convert(Path(sys.argv[2]) / each, results / f"{each}.gguf", ModelType.TEXT)
            convert(Path(sys.argv[2]) / each, results / f"mmproj-{each}.gguf", ModelType.MMPROJ)
