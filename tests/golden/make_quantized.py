"""Makes small quantized models, what their matrices mean, and their reference logits. Run by hand, never by the tests:

    python3 tests/golden/make_quantized.py PACKAGES [NAME ...]

Needs torch, transformers, safetensors, numpy and compressed-tensors. PACKAGES is a folder with the unpacked packages
that define the other formats (README.md lists them); they are imported from there and not built. Without names it makes
all models. Running it twice gives the same files.

Every model has random weights that are quantized matrix by matrix. The logits are those of transformers' model in
float64 on the values that the stored tensors mean by the format's definition, computed in float32 in its order; they
are compared with what the package that defines the format makes of the same tensors, which are kept too. Checked here
as well: every scale, zero point, order and global scale changes the logits by far more than the tests' tolerance if a
reader takes it from the wrong group, row, part or expert, and so does every matrix.
"""
import json
import logging
import re
import shutil
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import QuantizationConfig
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

import make_architectures as base
from quantized_formats import Gptq, Mxfp4GptOss, Packages, spread
from quantized_models import MODELS

HERE = Path(__file__).resolve().parent
FLOAT32_MAX = 2e-5
MODELS_MAX = 8
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# Parts that are stacked when a model is loaded differ in size by more than any rounding.
PART_SIZE = dict(zip(PROJECTIONS, (0.5, 2.0, 3.0, 0.4, 0.7, 2.5, 0.5)))
# The modules whose values, as the package computes them, are kept.
KEPT = (r"(model|model\.language_model|backbone)\.layers\.1\.(self_attn\.([kv]_proj|kv_b_proj)|"
        r"(mlp\.)?(experts\.[03]\.)?(gate|down)_proj|mlp\.experts\.(gate_up|down)_proj|per_layer_input_gate|"
        r"linear_attn\.(in_proj_qkv|out_proj)|mamba\.(in|out)_proj|block_sparse_moe\.experts\.[03]\.(gate|down)_proj|"
        r"mixer\.(in_proj|out_proj|experts\.[03]\.(up|down)_proj))")





def is_stacked(module):
    return module.endswith("gate_up_proj") or module.endswith(".experts.down_proj")


def make_dense(model, folder, seed):
    """The names and random weights of the model that is not quantized, as the hub has them."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(model.config))
    auto = base.auto_class(model.variant())
    dense = auto.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    generator = torch.Generator().manual_seed(base.seed_of(model.name) + 100000 * seed)
    for name, parameter in dense.named_parameters():
        parameter.data.copy_(base.random_parameter(name, parameter.shape, model.variant(), generator))
    dense.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    tensors = base.fused(tensors) if model.fuse_experts else tensors
    return split(tensors) if model.split_experts else tensors, generator


def split(tensors):
    """With a tensor for each expert's gates, the rest of the first product, and the second product."""
    result = {}
    for name, tensor in tensors.items():
        name = re.sub(r"block_sparse_moe\.input_linear\.weight$", "block_sparse_moe.experts.gate_up_proj", name)
        name = re.sub(r"block_sparse_moe\.output_linear\.weight$", "block_sparse_moe.experts.down_proj", name)
        if not is_stacked(name):
            result[name] = tensor
            continue
        prefix, part = name.rsplit(".", 1)
        for i, expert in enumerate(tensor):
            halves = dict(zip(("gate_proj", "up_proj"), expert.chunk(2))) if part == "gate_up_proj" else {part: expert}
            result |= {f"{prefix}.{i}.{key}.weight": half.contiguous() for key, half in halves.items()}
    return result


def join(tensors):
    """The reverse of split."""
    names = [("experts.gate_up_proj", "input_linear.weight"), ("experts.down_proj", "output_linear.weight")]
    result = {}
    for name, tensor in base.fused(tensors).items():
        for ending, other in names if "block_sparse_moe" in name else []:
            name = name.replace(ending, other)
        result[name] = tensor
    return result


def make_uneven(weight, module, format, generator):
    """Blocks of very different sizes, and ranges that zero lies anywhere in."""
    if is_stacked(module):
        return torch.stack([make_uneven(expert, "", format, generator) for expert in weight])
    rows, columns = format.grid(tuple(weight.shape))
    count = (-(-weight.shape[0] // rows), -(-weight.shape[1] // columns))
    uneven = lambda grid: spread(grid, rows, columns, weight.shape)
    random = lambda: torch.rand(count, generator=generator, dtype=torch.float64) * 2 - 1
    size, shift = 2.0 ** (1.5 * random()), 0.8 * random() * weight.std()
    expert = re.search(r"experts\.(\d+)\.", module)
    size *= PART_SIZE.get(module.rsplit(".", 1)[-1], 1.0) * (2.0 ** (int(expert[1]) % 3 - 1) if expert else 1.0)
    return (weight + uneven(shift)) * uneven(size)


def quantize(model, dense, generator):
    """The tensors of the file, and those of quantized modules by module."""
    stored, quantized = {}, {}
    for name, weight in sorted(dense.items()):
        module = name.removesuffix(".weight")
        format = model.format_of(module) if not name.endswith("bias") else None
        if format is None:
            stored[name] = weight.to(model.dtype)
            continue
        weight = weight.double()
        weight = dense_layout(model, module, weight)
        tensors = format.store(make_uneven(weight, module, format, generator), generator)
        quantized[module] = {key: value.contiguous() for key, value in tensors.items()}
        stored |= {stored_name(module, format, key): value for key, value in quantized[module].items()}
        if model.key_value_scales and module.endswith(("k_proj", "v_proj")):
            key = "k_scale" if module.endswith("k_proj") else "v_scale"
            stored[f"{module}.{key}"] = 0.5 + torch.rand([], generator=generator)
    return stored | model.unused, quantized


def stored_name(module, format, key):
    if getattr(format, "joined", False):
        return f"{module}_{key}" if key != "weight" else module
    separator = "_" if isinstance(format, Mxfp4GptOss) else "."
    return f"{module}{separator}{key}"


def write_config(model, folder):
    path = folder / "config.json"
    path.write_text(json.dumps(model.config))
    if model.compressed_tensors:
        ModelCompressor(quantization_config=QuantizationConfig(**model.quantization)).update_config(folder)
        text = path.read_text()
    elif model.quantization is None:
        text = json.dumps(model.config, indent=2)
    else:
        text = json.dumps(model.config | {"quantization_config": model.quantization}, indent=2)
    path.write_text(text.rstrip() + "\n")
    for name, content in model.files.items():
        (folder / name).write_text(json.dumps(content, indent=4) + "\n")


def save(tensors, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)


def dense_name(module):
    return module if is_stacked(module) else module + ".weight"


def dense_layout(model, module, values):
    turns = is_stacked(module) and model.variant().experts_in_first
    return values.transpose(1, 2).contiguous() if turns else values


def all_values(model, quantized):
    return {module: model.format_of(module).values(tensors) for module, tensors in quantized.items()}


def compare_with_package(model, quantized):
    """The values that the package makes of the tensors, and how far its type is from the definition in float32."""
    values, kept, worst, types = all_values(model, quantized), {}, 0.0, set()
    for module, tensors in quantized.items():
        found = model.format_of(module).package({key: value.clone() for key, value in tensors.items()})
        wanted = values[module]
        assert wanted.dtype == torch.float32 and wanted.shape == found.shape and wanted.isfinite().all(), module
        assert torch.equal(wanted.to(found.dtype), found), f"{module}: the package computes something else"
        worst = max(worst, ((found.float() - wanted).abs() / wanted.abs().clamp(min=1e-30)).max().item())
        types.add(str(found.dtype).removeprefix("torch."))
        if re.fullmatch(KEPT, module):
            kept[module + ".weight"] = found.float().contiguous()
    return kept, worst, types


class Reference:
    """transformers' model in one type, whose matrices can be replaced."""

    def __init__(self, model, folder, dtype):
        self.model = model
        self.network = base.load(folder, dtype, model.variant())
        self.parameters = dict(self.network.named_parameters())

    def place(self, module):
        """The parameter of a module, or the part of one that holds it."""
        module = re.sub(r"^backbone\.", "model.", module)
        expert = re.fullmatch(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj", module)
        if not expert:
            return self.parameters[dense_name(module)].data
        whole = f"{expert[1]}.{expert[3]}_proj"
        if whole in self.parameters:
            return self.parameters[whole].data[int(expert[2])]
        both = self.parameters[f"{expert[1]}.gate_up_proj"].data[int(expert[2])]
        half = both.shape[0] // 2
        return both[:half] if expert[3] == "gate" else both[half:]

    def set(self, module, values):
        self.place(module).copy_(dense_layout(self.model, module, values))

    def logits(self, prompts):
        return [base.logits_of(self.network, ids) for ids in prompts]


def mistakes(model, quantized):
    """Readings that must not pass: every kind of tensor shifted by one place along each dimension, or taken from the
    next module where it is a single number. Tensors that hold one value throughout cannot show it."""
    kinds = sorted({(key, value.ndim) for tensors in quantized.values() for key, value in tensors.items()
                    if not key.startswith("input_") and key != "weight_shape"})
    for key, dimensions in kinds:
        holders = [m for m, tensors in quantized.items() if key in tensors and tensors[key].ndim == dimensions]
        single = all(quantized[module][key].numel() == 1 for module in holders)
        if single:
            others = dict(zip(holders, holders[1:] + holders[:1]))
            yield f"{key} of another module", {m: quantized[m] | {key: quantized[others[m]][key]} for m in holders}
            continue
        if all((quantized[m][key] == quantized[m][key].flatten()[0]).all() for m in holders):
            print(f"  {key} is the same everywhere")
            continue
        for d in range(dimensions):
            if any(quantized[m][key].shape[d] > 1 for m in holders):
                yield f"{key} shifted along {d}", {m: quantized[m] | {key: quantized[m][key].roll(1, d)}
                                                   for m in holders}


def replace_version(how):
    return Gptq(how.bits, how.group, how.symmetric, 3 - how.version, how.order)


def check_effects(model, reference, quantized, values, prompts, logits):
    least = (float("inf"), "nothing")

    def check(what, changed):
        nonlocal least
        for module, new in changed.items():
            reference.set(module, new)
        effect = base.relative(reference.logits(prompts), logits)
        for module in changed:
            reference.set(module, values[module])
        if effect < base.EFFECT_MIN:
            raise SystemExit(f"{model.name}: {what} changes only {effect:.1e}")
        least = min(least, (effect, what))

    for what, tensors in mistakes(model, quantized):
        check(what, {module: model.format_of(module).values(changed) for module, changed in tensors.items()})
    others = {m: replace_version(model.format_of(m)) for m in quantized if isinstance(model.format_of(m), Gptq)}
    if others:
        check("zero points of the other version", {m: how.values(quantized[m]) for m, how in others.items()})
    for module in quantized:
        check(f"{module} in another order", {module: values[module].flip(-2)})
    return least


def make(model):
    """Some random models repeat themselves, decide too narrowly, or are chaotic: then the next."""
    for seed in range(MODELS_MAX):
        try:
            return make_one(model, seed)
        except SystemExit as error:
            print(f"  {error}, seed {seed}", flush=True)
    raise SystemExit(f"{model.name}: no seed makes a model")


def make_one(model, seed):
    folder, variant = HERE / "models" / f"quant_{model.name}", model.variant()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        dense, generator = make_dense(model, Path(temporary) / "dense", seed)
        stored, quantized = quantize(model, dense, generator)
        save(stored, folder / "model.safetensors")
        write_config(model, folder)
        kept, worst, types = compare_with_package(model, quantized)
        save(kept, HERE / "values" / f"quant_{model.name}" / "model.safetensors")
        values = all_values(model, quantized)
        plain = Path(temporary) / "values"
        plain.mkdir()
        (plain / "config.json").write_text(json.dumps(model.config | {"torch_dtype": "float32"}))
        whole = {name: value.float() for name, value in stored.items() if name in dense}
        whole |= {dense_name(m): dense_layout(model, m, value).contiguous() for m, value in values.items()}
        save(join(whole) if model.split_experts else whole, plain / "model.safetensors")
        with base.Widen() as widen:
            reference = Reference(model, plain, torch.float64)
            base.check_no_float32(reference.network)
            assert all(torch.equal(reference.place(m).float(), dense_layout(model, m, v)) for m, v in values.items())
            widen.strict = True
            rng, prompts, logits = base.choose_prompts(reference.network, variant, base.seed_of(variant.name))
            base.write_logits(variant, folder, rng, prompts, logits)
            distinct = base.write_greedy(variant, folder, reference.network)
        narrow = Reference(model, plain, torch.float32)
    difference = base.relative(narrow.logits(prompts), logits)
    if difference >= FLOAT32_MAX:
        raise SystemExit(f"{model.name}: float32 differs by {difference:.1e}")
    least = check_effects(model, narrow, quantized, values, prompts, logits)
    size = (folder / "model.safetensors").stat().st_size
    print(f"{model.name}: {size} bytes; {', '.join(sorted(types))} of the package differs by {worst:.1e}; float32 by "
          f"{difference:.1e}; least effect {least[0]:.3f} of {least[1]}; distinct tokens {distinct}", flush=True)


def main():
    torch.set_num_threads(1)
    base.SEEDS_MAX = 30
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    Packages.folder = Path(sys.argv[1])
    print("torch", torch.__version__, "transformers", transformers.__version__)
    for model in MODELS:
        if model.name in sys.argv[2:] or len(sys.argv) == 2:
            with torch.no_grad():
                make(model)


if __name__ == "__main__":
    main()
