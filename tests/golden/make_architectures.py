"""Makes the small model of every architecture and its reference logits. Run by hand, never by the tests:

    python3 tests/golden/make_architectures.py [NAME ...]

Needs torch, transformers, safetensors and numpy. Without names it makes all of architectures.py. Running it twice gives
the same files.

The logits are those of transformers' own models, loaded from the files that are kept, in float64 throughout: float32
that transformers asks for by itself (norms, softmax, angles, routers) is turned into float64, and no float32 tensor may
come up on the way. What each model is to show is checked here: every option named in architectures.py, every norm,
bias and sink changes the logits by far more than the tests' tolerance when it is taken away, no two likeliest tokens
and no two experts at the edge of the choice are so close that float32 could swap them, and both spellings of the
configuration give the same logits.
"""
import json
import math
import re
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.overrides import TorchFunctionMode
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from architectures import VARIANTS as PAGED
from architectures_latent import LATENT
from architectures_states import STATES

# Llama 4's multimodal class reads it of the output of its text.
transformers.modeling_outputs.MoeCausalLMOutputWithPast.image_outputs = None

VARIANTS = PAGED + LATENT + STATES
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SAMPLED_TOKENS = 64
GREEDY_TOKENS = 32
PROMPT_LENGTHS = (2, 19, 90)
GREEDY_LENGTHS = (1, 5, 40)
# The least effect of an option, as a share of the largest logit: a hundred times the tests' tolerance.
EFFECT_MIN = 1e-2
# As a share of the largest logit, more than float32 changes one: closer answers, or experts, would test nothing.
MARGIN_MIN = 1e-4
FLOAT32_MAX = 2e-5  # a plain float32 run stays this close, or the model is too chaotic for a test
SEEDS_MAX = 200


class Widen(TorchFunctionMode):
    """float64 wherever float32 is requested. `strict` after the model is loaded: then nothing may be float32."""

    strict = False

    def __enter__(self):
        torch.set_default_dtype(torch.float64)
        return super().__enter__()

    def __exit__(self, *error):
        torch.set_default_dtype(torch.float32)
        return super().__exit__(*error)

    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        wide = lambda x: torch.float64 if x is torch.float32 else x
        if function is torch.Tensor.float:
            function = torch.Tensor.double
        result = function(*map(wide, args), **{key: wide(value) for key, value in (kwargs or {}).items()})
        if isinstance(result, torch.Tensor):
            assert not self.strict or result.dtype != torch.float32, f"{function} gave float32"
        return result


def seed_of(name):
    return sum(ord(c) * (i + 1) for i, c in enumerate(name))


def away_from_zero(shape, low, high, generator):
    sign = torch.randint(0, 2, shape, generator=generator, dtype=torch.float64) * 2 - 1
    return sign * (low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64))


def weights_of(model):
    """Parameters, and the buffers that checkpoints have."""
    return [*model.named_parameters(), *((name, buffer) for name, buffer in model.named_buffers()
                                         if name.endswith(("bias", "layer_scalar")) or is_of_curve(name))]


def auto_class(variant):
    is_wrapper = variant.config["architectures"][0].endswith("ForConditionalGeneration")
    return AutoModelForImageTextToText if is_wrapper else AutoModelForCausalLM


def is_other_part(name):
    """True for tensors of images or sound, which text never reaches."""
    return re.search(r"(^|\.)(visual|vision_tower|audio_tower|embed_vision|embed_audio|multi_modal_projector|vision_adapter|vision_projection)\.", name)


def is_factor(name):
    return name.endswith(("layer_scalar", "router.scale", "per_expert_scale"))


def is_of_state(name):
    """A decay's rate or a skip, each head's own."""
    return name.endswith(("A_log", "mamba.D", "mixer.D"))


def is_of_curve(name):
    """A number of a layer's activation."""
    return ".act_fn." in name


def is_norm(name):
    return "norm" in name.split(".layers.")[-1] and name.endswith("weight")


def random_parameter(name, shape, variant, generator):
    """Large enough that attention, routers and the head are far from uniform, and no norm or bias is idle."""
    normal = lambda scale: scale * torch.randn(shape, generator=generator, dtype=torch.float64)
    if is_norm(name):
        size = variant.query_norm if "q_norm" in name else 1
        return size * ((0 if variant.norms_add_one else 1) + away_from_zero(shape, 0.2, 0.6, generator))
    if is_factor(name):
        return 1 + away_from_zero(shape, 0.1, 0.4, generator)
    if is_of_curve(name):
        return -away_from_zero(shape, 0.3, 0.5, generator).abs() if name.endswith("eps") else away_from_zero(
            shape, 0.3, 0.9, generator)
    if is_of_state(name):
        return away_from_zero(shape, 0.3, 0.9, generator)
    if name.endswith("embed_tokens_per_layer.weight"):
        return normal(0.4)
    if name.endswith("sinks"):
        return away_from_zero(shape, 0.5, 2.0, generator)
    if name.endswith("bias"):
        return away_from_zero(shape, 0.2, 0.8, generator)
    if name.endswith("embed_tokens.weight"):
        return normal(variant.embedding)
    if re.search(r"(router|router\.proj|gate\.wg|\.gate|shared_expert_gate)\.weight$", name):
        return normal(3 / math.sqrt(shape[-1]))
    fan_in = shape[-2] if variant.experts_in_first and ".experts." in name else shape[-1]
    return normal(1.2 / math.sqrt(fan_in))


@torch.no_grad()
def make_model(variant, folder):
    """Writes the model, with the other spelling of its configuration beside it, which is returned too."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(variant.config, indent=2) + "\n")
    config = AutoConfig.from_pretrained(folder)
    assert type(config).model_type == variant.config["model_type"]
    model = auto_class(variant).from_config(config, dtype=torch.float32)
    assert type(model).__name__ == variant.config["architectures"][0]
    generator = torch.Generator().manual_seed(seed_of(variant.name))
    for name, parameter in weights_of(model):
        value = random_parameter(name, parameter.shape, variant, generator)
        assert value.abs().min() > 0, name
        parameter.copy_(value)
    model.to(variant.dtype).save_pretrained(folder, safe_serialization=True)
    if variant.transpose != "$^":
        path = folder / "model.safetensors"
        turned = lambda name, x: x.transpose(-1, -2).contiguous() if re.fullmatch(variant.transpose, name) else x
        save_file({name: turned(name, x) for name, x in load_file(path).items()}, path, metadata={"format": "pt"})
    if variant.fuse_experts:
        path = folder / "model.safetensors"
        save_file(fused(load_file(path)), path, metadata={"format": "pt"})
    split_convolutions(folder / "model.safetensors")
    if variant.rename:
        path = folder / "model.safetensors"
        tensors = {}
        for name, tensor in load_file(path).items():
            for pattern, replacement in variant.rename:
                name = re.sub(pattern, replacement, name)
            tensors[name] = tensor
        save_file(tensors, path, metadata={"format": "pt"})
    if variant.unused:
        path = folder / "model.safetensors"
        tensors = load_file(path) | {name: torch.zeros(shape, dtype=variant.dtype) for name, shape in variant.unused.items()}
        save_file(tensors, path, metadata={"format": "pt"})
    for path in folder.iterdir():
        if path.name not in ("config.json", "model.safetensors"):
            path.unlink()
    new_spelling = json.loads((folder / "config.json").read_text())
    new_spelling.pop("name_or_path", None)
    kept, other = (variant.config, new_spelling) if variant.old_spelling else (new_spelling, variant.config)
    (folder / "config.json").write_text(json.dumps(kept, indent=2) + "\n")
    (folder / "other_spelling.json").write_text(json.dumps(other, indent=2) + "\n")
    (folder / "model.safetensors").chmod(0o644)
    check_names(variant, folder)
    return other


def split_convolutions(path):
    """Gives the convolutions of queries, keys and values the sizes of their products; transformers stores equal parts."""
    tensors = load_file(path)
    queries = [name for name in tensors if name.endswith("q_conv1d.weight")]
    for name in queries:
        names = [name.replace("q_conv1d", f"{part}_conv1d") for part in "qkv"]
        sizes = [tensors[part.replace("_conv1d", "_proj")].shape[0] for part in names]
        whole = torch.cat([tensors[part] for part in names])
        tensors |= {part: x.contiguous() for part, x in zip(names, whole.split(sizes))}
    if queries:
        save_file(tensors, path, metadata={"format": "pt"})


def fused(tensors):
    """With the matrices of a layer's experts as two tensors, gates above the rest of the first."""
    experts = {}
    for name in [name for name in tensors if re.search(r"\.experts\.\d+\.", name)]:
        prefix, number, part = re.fullmatch(r"(.*\.experts)\.(\d+)\.(\w+)\.weight", name).groups()
        experts.setdefault(prefix, {}).setdefault(part, {})[int(number)] = tensors.pop(name)
    for prefix, parts in experts.items():
        stacked = {part: torch.stack([of[i] for i in range(len(of))]) for part, of in parts.items()}
        tensors[f"{prefix}.gate_up_proj"] = torch.cat([stacked["gate_proj"], stacked["up_proj"]], dim=1).contiguous()
        tensors[f"{prefix}.down_proj"] = stacked["down_proj"].contiguous()
    return tensors


def check_names(variant, folder):
    with safe_open(folder / "model.safetensors", "pt") as file:
        names = list(file.keys())
    for pattern in variant.names:
        assert any(re.fullmatch(pattern, name) for name in names), f"no tensor is called {pattern}: {names}"
    tied = variant.tied
    assert tied == (not any(name.endswith("lm_head.weight") for name in names))


def load(folder, dtype, variant, config=None):
    """The model of `folder`; with `config`, that instead of its config.json."""
    if config is None:
        model = auto_class(variant).from_pretrained(folder, dtype=dtype, attn_implementation="eager",
                                                    experts_implementation="eager")
        return prepare(model, variant)
    with tempfile.TemporaryDirectory() as other:
        (Path(other) / "config.json").write_text(json.dumps(config))
        (Path(other) / "model.safetensors").symlink_to(folder / "model.safetensors")
        return load(Path(other), dtype, variant)


def prepare(model, variant):
    if variant.long_rotary:
        # transformers takes the short factors for short prompts; the choice here is the longest sequence's.
        rotary = model.model.rotary_emb
        original = model.config.rope_parameters.get("original_max_position_embeddings")
        if original is not None and model.config.max_position_embeddings > original:
            rotary.original_inv_freq = ROPE_INIT_FUNCTIONS["longrope"](model.config, seq_len=original + 1)[0]
    return model.eval()


@torch.no_grad()
def logits_of(model, ids):
    return model(torch.tensor([ids]), use_cache=False).logits[0]


def check_no_float32(model):
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        assert tensor.dtype != torch.float32, name


def edge(values, count):
    """The distance between the last of the `count` largest values and the next, as a share of the largest."""
    best = values.topk(count + 1, dim=-1).values
    return ((best[..., -2] - best[..., -1]) / values.abs().amax(-1)).min().item()


class Margins:
    """Watches the routers: the least distance between the last expert (or group) chosen and the first that is not."""

    def __init__(self, model):
        self.least = math.inf
        self.hooks = [module.register_forward_hook(self.watch) for module in model.modules()
                      if type(module).__name__.lower().endswith(("topkrouter", "textrouter", "moev1gate"))]
        config = model.config.to_dict()
        has_experts = "n_routed_experts" in config and "moe" in config.get("layers_block_type", ["moe"])
        assert self.hooks or not has_experts

    def watch(self, module, inputs, outputs):
        values = outputs[0]
        bias = getattr(module, "e_score_correction_bias", inputs[1] if len(inputs) > 1 else None)
        if hasattr(module, "moe_statics"):
            values = values.softmax(-1) + module.moe_statics.e_score_correction_bias
        elif bias is not None:
            values = values.sigmoid() + bias
        grouped = getattr(module, "topk_method", "group_limited_greedy") == "group_limited_greedy"
        if grouped and getattr(module, "topk_group", 1) < getattr(module, "num_group", 1):
            members = values.unflatten(-1, (module.num_group, -1))
            sums = members.topk(1 if hasattr(module, "topk_method") else 2, dim=-1).values.sum(-1)
            self.least = min(self.least, edge(sums, module.topk_group))
            best = sums.topk(module.topk_group, dim=-1).indices
            values = members.gather(-2, best.unsqueeze(-1).expand(*best.shape, members.shape[-1])).flatten(-2)
        top_k = module.top_k if hasattr(module, "top_k") else module.config.top_k_experts
        if top_k < values.shape[-1]:
            self.least = min(self.least, edge(values, top_k))

    def remove(self):
        for hook in self.hooks:
            hook.remove()
        return self.least


def text_vocab(model):
    """Token ids that stand for images or sound come last, and are in no prompt."""
    size = model.config.get_text_config().vocab_size
    return size if model.config.get_text_config() is model.config else min(size, 140)


def make_prompts(rng, lengths, vocab):
    return [rng.integers(3, vocab, size=n).tolist() for n in lengths]


def choose_prompts(model, variant, seed):
    """Prompts at which every router decides clearly, and their logits."""
    for attempt in range(SEEDS_MAX):
        rng = np.random.default_rng(seed + attempt)
        prompts = make_prompts(rng, PROMPT_LENGTHS, text_vocab(model))
        margins = Margins(model)
        logits = [logits_of(model, ids) for ids in prompts]
        if margins.remove() > MARGIN_MIN:
            return rng, prompts, logits
    raise SystemExit(f"{variant.name}: no seed gives clear experts")


def relative(found, wanted):
    return max(((a.double() - b.double()).abs() / b.double().abs().amax(-1, keepdim=True)).max().item()
               for a, b in zip(found, wanted))


def short(value):
    return float(f"{value:.9g}")


def write_json(path, value):
    path.write_text(json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace('{"', '\n{"').lstrip() + "\n")


def write_logits(variant, folder, rng, prompts, logits):
    cases = []
    for ids, wide in zip(prompts, logits):
        scale = wide.abs().amax(-1)
        positions = []
        last = len(ids) - 1
        for p in sorted({0, last // 3, 2 * last // 3, last}):
            vocab = wide.shape[-1]
            chosen = range(vocab) if p == last else sorted(rng.choice(vocab, SAMPLED_TOKENS, replace=False).tolist())
            positions.append({"position": p, "max_abs": short(scale[p].item()), "token_ids": list(chosen),
                              "logits": [short(wide[p, t].item()) for t in chosen]})
        cases.append({"ids": ids, "positions": positions})
    write_json(HERE / f"{variant.name}.json", {"model": str(folder.relative_to(ROOT)), "cases": cases})


def greedy_answer(model, ids):
    """None if two answers or two experts are too close."""
    answer = []
    margins = Margins(model)
    while len(answer) < GREEDY_TOKENS:
        logits = logits_of(model, ids + answer)[-1]
        best = logits.topk(2).values
        if best[0] - best[1] <= MARGIN_MIN * logits.abs().max():
            margins.remove()
            return None
        answer.append(int(logits.argmax()))
    return answer if margins.remove() > MARGIN_MIN else None


def write_greedy(variant, folder, model):
    cases = []
    for length in GREEDY_LENGTHS:
        for attempt in range(SEEDS_MAX):
            rng = np.random.default_rng(seed_of(variant.name) + 1000 * length + attempt)
            ids = rng.integers(3, text_vocab(model), size=length).tolist()
            answer = greedy_answer(model, ids)
            # A model that repeats one token would hide errors.
            if answer is not None and len(set(answer)) >= variant.distinct_min:
                break
        else:
            raise SystemExit(f"{variant.name}: no seed gives a clear answer")
        cases.append({"id": f"{variant.name}_{length}", "prompt_token_ids": ids, "token_ids": answer})
    write_json(HERE / f"{variant.name}_greedy.json", {"model": str(folder.relative_to(ROOT)), "cases": cases})
    return [len(set(case["token_ids"])) for case in cases]


def changed(config, changes):
    """A copy of `config` with the keys of `changes` set; "a.b" is key b of the dictionary a."""
    config = json.loads(json.dumps(config))
    for key, value in changes.items():
        *path, last = key.split(".")
        at = config
        for step in path:
            at = at[step]
        at[last] = value
    return config


@torch.no_grad()
def check_options(variant, folder, prompts, logits):
    """Every option, and every norm, bias and sink, must matter."""
    least = (math.inf, "nothing")
    for changes in variant.without:
        model = load(folder, torch.float32, variant, changed(variant.config, changes))
        effect = relative([logits_of(model, ids) for ids in prompts], logits)
        assert effect > EFFECT_MIN, f"{variant.name}: {changes} changes only {effect:.1e}"
        least = min(least, (effect, str(changes)))
    model = load(folder, torch.float32, variant)
    idle = variant.idle.replace("LAST", str(model.config.get_text_config().num_hidden_layers - 1))
    for name, parameter in weights_of(model):
        if is_other_part(name) or re.search(idle, name):
            continue
        if not (is_norm(name) or is_factor(name) or is_of_state(name) or is_of_curve(name) or
                name.endswith(("bias", "sinks"))):
            continue
        kept = parameter.clone()
        neutral = -1e4 if name.endswith("sinks") else 1.0 if is_factor(name) or is_norm(name) and not variant.norms_add_one else 0.0
        parameter.fill_(neutral)
        effect = relative([logits_of(model, ids) for ids in prompts], logits)
        assert effect > EFFECT_MIN, f"{variant.name}: {name} changes only {effect:.1e}"
        least = min(least, (effect, name))
        parameter.copy_(kept)
    return least


def make(variant):
    folder = HERE / "models" / variant.name
    other_spelling = make_model(variant, folder)
    with Widen() as widen:
        model = load(folder, torch.float64, variant)
        same = load(folder, torch.float64, variant, other_spelling)
        check_no_float32(model)
        widen.strict = True
        rng, prompts, logits = choose_prompts(model, variant, seed_of(variant.name))
        assert all(x.dtype == torch.float64 for x in logits)
        assert all(torch.equal(logits_of(same, ids), x) for ids, x in zip(prompts, logits)), "the spellings differ"
    narrow = relative([logits_of(load(folder, torch.float32, variant), ids) for ids in prompts], logits)
    assert narrow < FLOAT32_MAX, f"{variant.name}: float32 differs by {narrow:.1e}"
    least = check_options(variant, folder, prompts, logits)
    write_logits(variant, folder, rng, prompts, logits)
    with Widen() as widen:
        widen.strict = True
        distinct = write_greedy(variant, folder, model)
    size = (folder / "model.safetensors").stat().st_size
    print(f"{variant.name}: {size} bytes, {'old' if variant.old_spelling else 'new'} spelling; float32 differs by "
          f"{narrow:.1e}; least effect {least[0]:.3f} of {least[1]}; distinct tokens {distinct}", flush=True)


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print("torch", torch.__version__, "transformers", transformers.__version__)
    names = sys.argv[1:] or [variant.name for variant in VARIANTS]
    for variant in VARIANTS:
        if variant.name in names:
            make(variant)


if __name__ == "__main__":
    main()
