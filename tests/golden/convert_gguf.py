"""Makes gguf/NAME.gguf from models/NAME with llama.cpp's own converter, for each case of gguf/cases.json. Run by hand:

    python3 tests/golden/convert_gguf.py LLAMA_CPP [NAME ...]

LLAMA_CPP is a source tree of llama.cpp, with its folders conversion and gguf-py; the source package of llama-cpp-python
0.3.36 has the one that was used. Needs the packages that the converter needs. Running it twice gives the same files.

A case says how the model of the file differs from models/NAME, because files of its architecture cannot say more:

    layers        numbers of the layers that are taken, in this order
    drop          parts of names of tensors that are left out
    changes       keys of the text model's configuration; null removes one
    unsaid        keys that the file does not state, whatever they are: what it means (for the test alone)
    architecture  the one that the file runs as, if it is another (for the test alone)
    close         the converter's arithmetic rounds: logits are not the same bit for bit (for the test alone)
"""
import json
import re
import struct
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def changed_config(config, case):
    text = config.get("text_config", config)
    for key, value in case.get("changes", {}).items():
        text.pop(key, None)
        if value is not None:
            text[key] = value
    if "layers" in case:
        text["num_hidden_layers"] = len(case["layers"])
    return config


def names_in_file(name, case):
    """The names under which the tensor `name` is kept."""
    if any(part in name for part in case.get("drop", [])):
        return []
    layer = re.search(r"layers\.(\d+)\.", name)
    if "layers" not in case or not layer:
        return [name]
    return [name.replace(layer.group(0), f"layers.{i}.", 1)
            for i, old in enumerate(case["layers"]) if old == int(layer.group(1))]


def copy_model(source, folder, case):
    config = changed_config(json.loads((source / "config.json").read_text()), case)
    (folder / "config.json").write_text(json.dumps(config))
    for path in source.glob("*.safetensors"):
        data = path.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header, parts, at = {}, [], 0
        for name, entry in json.loads(data[8:8 + length]).items():
            if name == "__metadata__":
                continue
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            for kept in names_in_file(name, case):
                header[kept] = {**entry, "data_offsets": [at, at + end - begin]}
                parts.append(data[begin:end])
                at += end - begin
        text = json.dumps(header).encode()
        (folder / path.name).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def convert(name, case):
    import gguf
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class
    from conversion.stablelm import StableLMModel

    def stack_norms(self, data_torch, name, bid, plain=StableLMModel.modify_tensors):
        # The converter of this version drops the stacked norms: its generator returns them.
        stacked = []
        own = self._stack_qk_norm
        self._stack_qk_norm = lambda *args: stacked.extend(own(*args))
        yield from plain(self, data_torch, name, bid)
        self._stack_qk_norm = own
        yield from stacked

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / name
        folder.mkdir()
        copy_model(HERE / "models" / name, folder, case)
        config = ModelBase.load_hparams(folder, False)
        base = get_model_class(get_model_architecture(config, ModelType.TEXT))

        class Converter(base):
            model_arch = base.model_arch
            no_mtp, mtp_only = True, False

            def set_vocab(self):
                pass  # the models have none

            if base is StableLMModel:
                modify_tensors = stack_norms

        text = {**config, **config.get("text_config", {})}
        dtype = text.get("torch_dtype") or text.get("dtype") or "float32"
        file_type = {"bfloat16": gguf.LlamaFileType.MOSTLY_BF16, "float16": gguf.LlamaFileType.MOSTLY_F16,
                     "float32": gguf.LlamaFileType.ALL_F32}[dtype]
        model = Converter(folder, file_type, HERE / "gguf" / f"{name}.gguf", eager=True)
        if hasattr(model, "impl"):  # of Mistral 3, which leaves all to another class
            model.impl.set_vocab = lambda: None
        model.write()


if __name__ == "__main__":
    sys.path[:0] = [sys.argv[1], f"{sys.argv[1]}/gguf-py"]
    cases = json.loads((HERE / "gguf/cases.json").read_text())
    failed = []
    for each in sys.argv[2:] or cases:
        try:
            convert(each, cases[each])
        except Exception as error:  # the others are made all the same
            failed.append(f"{each}: {type(error).__name__}: {error}")
    sys.exit("\n".join(failed) or 0)
