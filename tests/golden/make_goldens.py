"""Makes the small models and the reference logits of this folder. Run by hand, never by the tests:

    python3 tests/golden/make_goldens.py [PROMPTS_DIR]

Needs torch, transformers, safetensors, sentencepiece and numpy. PROMPTS_DIR holds conversations.jsonl and mixed.jsonl;
without it wren_greedy.json is left as it is. Running it twice gives the same files.

The logits are those of transformers' models on the stored weights in float64. Two places where transformers
computes in float32 whatever the model's type (RMSNorm, rotary angles) are widened too, so the values are good to far
more than the tolerance; the difference to plain float32 transformers is printed.
"""
import json
import math
import shutil
import sys
import types
from pathlib import Path

import numpy as np
import sentencepiece
import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WREN = ROOT / "tests/models/wren"
SAMPLED_TOKENS = 64
GREEDY_TOKENS_MAX = 32

COMMON = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "num_hidden_layers": 2,
          "attention_bias": False, "mlp_bias": False, "bos_token_id": 1}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
MODELS = {
    "separate_head": COMMON | {
        "vocab_size": 200, "hidden_size": 48, "intermediate_size": 80, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "rope_scaling": {"type": "linear", "factor": 2.0}, "tie_word_embeddings": False, "eos_token_id": [2, 5],
        "torch_dtype": "float32"},
    "odd_heads": COMMON | {
        "vocab_size": 160, "hidden_size": 42, "intermediate_size": 72, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 96, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
        "rope_theta": 500000.0, "rope_scaling": LLAMA3 | {"rope_type": "llama3"}, "tie_word_embeddings": True,
        "eos_token_id": 2, "torch_dtype": "bfloat16"},
    "f16_sharded": COMMON | {
        "vocab_size": 259, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
        "rope_parameters": LLAMA3 | {"rope_theta": 10000.0, "rope_type": "llama3"}, "tie_word_embeddings": False,
        "eos_token_id": 2, "dtype": "float16"},
}
QWEN = {"vocab_size": 170, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "hidden_act": "silu",
        "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "use_sliding_window": False,
        "sliding_window": 64, "max_window_layers": 1, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16"}
MODELS |= {
    "qwen2": QWEN | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "num_attention_heads": 6,
                     "num_key_value_heads": 2, "tie_word_embeddings": True},
    "qwen3": QWEN | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_attention_heads": 4,
                     "num_key_value_heads": 2, "head_dim": 20, "attention_bias": False, "tie_word_embeddings": False},
}
SHARDS = {"f16_sharded": 3}
PROMPT_LENGTHS = {"separate_head": [1, 7, 65], "odd_heads": [3, 33, 100],
                  "f16_sharded": [2, 17, 130], "qwen2": [2, 19, 90], "qwen3": [2, 19, 90]}
GREEDY = ["qwen2", "qwen3"]  # of the made-up models
# As a share of the largest logit, more than float32 changes one: closer answers would test nothing.
GREEDY_MARGIN_MIN = 1e-4
# A trained model gets prompts it knows: at random ids it is chaotic, and float32 alone reaches the tolerance.
TOWNS = ["Olga lives in Manila.", "Otto lives in Hanoi.", "Petra lives in Tehran.", "Nora lives in Bogota.",
         "Clara lives in Baghdad.", "Ezra lives in Nairobi.", "Walter lives in London.", "Dora lives in Ankara.",
         "Bella lives in Accra.", "Viola lives in Athens.", "Mona lives in Tehran.", "Greta lives in Bern.",
         "Emma lives in Quito.", "Ada lives in Ankara.", "Kai lives in Nairobi.", "Omar lives in Accra.",
         "Karen lives in Accra.", "Milo lives in Manila.", "Hugo lives in Paris.", "Theo lives in Lisbon."]
WREN_PROMPTS = [
    [("user", "Hello!")],
    [("user", "My name is Zack."), ("assistant", "Nice to meet you, Zack!"), ("user", "What is my name?")],
    [("system", "Answer questions about these notes. Notes:\n- " + "\n- ".join(TOWNS)), ("user", "Where does Viola live?"),
     ("assistant", "Viola lives in Athens."), ("user", "And where does Ezra live?")],
]


def make_weights(config, generator):
    """Random weights large enough that attention and the head are far from uniform."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim", hidden // heads)
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
    linear = lambda rows, columns: normal(rows, columns) * 1.2 / math.sqrt(columns)
    norm = lambda width=hidden: 1 + 0.2 * normal(width)
    weights = {"model.embed_tokens.weight": normal(config["vocab_size"], hidden), "model.norm.weight": norm()}
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        weights |= {
            layer + "input_layernorm.weight": norm(),
            layer + "self_attn.q_proj.weight": linear(heads * head_dim, hidden),
            layer + "self_attn.k_proj.weight": linear(kv_heads * head_dim, hidden),
            layer + "self_attn.v_proj.weight": linear(kv_heads * head_dim, hidden),
            layer + "self_attn.o_proj.weight": linear(hidden, heads * head_dim),
            layer + "post_attention_layernorm.weight": norm(),
            layer + "mlp.gate_proj.weight": linear(inner, hidden),
            layer + "mlp.up_proj.weight": linear(inner, hidden),
            layer + "mlp.down_proj.weight": linear(hidden, inner),
        }
        if config["model_type"] == "qwen2":
            weights |= {layer + f"self_attn.{name}_proj.bias": 0.5 * normal(count * head_dim)
                        for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))}
        if config["model_type"] == "qwen3":
            weights |= {layer + f"self_attn.{name}_norm.weight": norm(head_dim) for name in "qk"}
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = linear(config["vocab_size"], hidden)
    dtype = getattr(torch, config.get("torch_dtype") or config.get("dtype"))
    return {name: value.to(dtype) for name, value in weights.items()}


def save(weights, path):
    save_file(weights, path, metadata={"format": "pt"})
    path.chmod(0o644)


def make_model(name):
    config, folder = MODELS[name], HERE / "models" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    weights = make_weights(config, torch.Generator().manual_seed(sum(name.encode())))
    count = SHARDS.get(name, 1)
    if count == 1:
        save(weights, folder / "model.safetensors")
        return
    names = sorted(weights)
    files = [f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]
    weight_map = {n: files[i * count // len(names)] for i, n in enumerate(names)}
    for file in files:
        save({n: weights[n] for n in names if weight_map[n] == file}, folder / file)
    total = sum(w.numel() * w.element_size() for w in weights.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def norm_in_own_type(self, x):
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def rotary_frequencies(config):
    """Inverse frequencies in float64, from the published formulas."""
    rope = config.rope_parameters
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    frequencies = rope["rope_theta"] ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    if rope["rope_type"] == "linear":
        return frequencies / rope["factor"]
    if rope["rope_type"] == "llama3":
        # Long waves are slowed by `factor`, short ones kept, those between blended.
        turns = rope["original_max_position_embeddings"] * frequencies / (2 * math.pi)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        keep = ((turns - low) / (high - low)).clamp(0, 1)
        return keep * frequencies + (1 - keep) * frequencies / rope["factor"]
    return frequencies


def widen_rotary(model):
    rotary = model.model.rotary_emb
    frequencies = rotary_frequencies(model.config)
    torch.testing.assert_close(frequencies, rotary.inv_freq.double(), rtol=1e-6, atol=0)

    def forward(x, position_ids):
        angles = position_ids[..., None].double() * frequencies
        angles = torch.cat((angles, angles), -1)
        return angles.cos(), angles.sin()

    rotary.forward = forward


def load(folder, dtype):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").to(dtype).eval()
    if dtype == torch.float64:
        widen_rotary(model)
        for module in model.modules():
            if type(module).__name__.endswith("RMSNorm"):
                module.forward = types.MethodType(norm_in_own_type, module)
    return model


@torch.no_grad()
def logits_of(model, ids):
    return model(torch.tensor([ids]), use_cache=False).logits[0]


def write_logits(name, folder):
    narrow_model = load(folder, torch.float32)
    rng = np.random.default_rng(sum(name.encode()))
    vocab = narrow_model.config.vocab_size
    if name == "wren":
        tokenizer = load_tokenizer()
        prompts = [render(tokenizer, messages) for messages in WREN_PROMPTS]
    else:
        prompts = [[1] + rng.integers(3, vocab, size=n - 1).tolist() for n in PROMPT_LENGTHS[name]]
    narrow = [logits_of(narrow_model, ids).double() for ids in prompts]
    model = load(folder, torch.float64)
    cases, worst = [], 0.0
    for ids, narrow_logits in zip(prompts, narrow):
        wide = logits_of(model, ids)
        assert wide.dtype == torch.float64
        scale = wide.abs().amax(-1, keepdim=True)
        worst = max(worst, ((narrow_logits - wide).abs() / scale).max().item())
        positions = []
        last = len(ids) - 1
        for p in sorted({0, last // 3, 2 * last // 3, last}):
            chosen = range(vocab) if p == last else sorted(rng.choice(vocab, SAMPLED_TOKENS, replace=False).tolist())
            positions.append({"position": p, "max_abs": short(scale[p].item()), "token_ids": list(chosen),
                              "logits": [short(wide[p, t].item()) for t in chosen]})
        cases.append({"ids": ids, "positions": positions})
    write_json(HERE / f"{name}.json", {"model": str(folder.relative_to(ROOT)), "cases": cases})
    print(f"{name}: {[len(ids) for ids in prompts]} tokens; float32 transformers differs by at most {worst:.2e} of the largest logit")


def load_tokenizer():
    return sentencepiece.SentencePieceProcessor(model_file=str(WREN / "tokenizer.model"))


def render(tokenizer, messages):
    """The ids of wren's chat template, with the opening of the answer."""
    ids = [1]
    for role, content in messages:
        ids += tokenizer.encode(f"<|{role}|>\n") + tokenizer.encode(content) + [2] + tokenizer.encode("\n")
    return ids + tokenizer.encode("<|assistant|>\n")


def short(value):
    return float(f"{value:.9g}")


def write_json(path, value):
    path.write_text(json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace('{"', '\n{"').lstrip() + "\n")


@torch.no_grad()
def write_greedy(prompts_dir):
    tokenizer = load_tokenizer()
    model = load(WREN, torch.float32)
    cases = []
    for file, count in (("conversations.jsonl", 6), ("mixed.jsonl", 6)):
        for line in (prompts_dir / file).read_text().splitlines()[:count]:
            row = json.loads(line)
            ids = render(tokenizer, [(message["role"], message["content"]) for message in row["messages"]])
            answer = []
            while len(answer) < GREEDY_TOKENS_MAX and answer[-1:] != [2]:
                answer.append(int(logits_of(model, ids + answer)[-1].argmax()))
            text = tokenizer.decode([t for t in answer if t != 2])
            print(f"{row['id']}: {'as expected' if text == row['metadata']['expected'] else 'NOT as expected'}")
            cases.append({"id": row["id"], "prompt_token_ids": ids, "token_ids": answer, "text": text})
    write_json(HERE / "wren_greedy.json", {"model": str(WREN.relative_to(ROOT)), "cases": cases})


@torch.no_grad()
def write_made_up_greedy(name):
    """The answers of float64 greedy decoding to random prompts; end tokens count like any other."""
    folder = HERE / "models" / name
    model = load(folder, torch.float64)
    rng = np.random.default_rng(sum(name.encode()) + 1)
    cases = []
    for length in (1, 5, 40):
        ids = rng.integers(3, model.config.vocab_size, size=length).tolist()
        answer = []
        while len(answer) < GREEDY_TOKENS_MAX:
            logits = logits_of(model, ids + answer)[-1]
            best = logits.topk(2).values
            assert best[0] - best[1] > GREEDY_MARGIN_MIN * logits.abs().max(), "two answers are too close"
            answer.append(int(logits.argmax()))
        cases.append({"id": f"{name}_{length}", "prompt_token_ids": ids, "token_ids": answer})
    write_json(HERE / f"{name}_greedy.json", {"model": str(folder.relative_to(ROOT)), "cases": cases})


def main():
    torch.set_num_threads(1)
    print("torch", torch.__version__, "transformers", transformers.__version__)
    for name in MODELS:
        make_model(name)
        write_logits(name, HERE / "models" / name)
    for name in GREEDY:
        write_made_up_greedy(name)
    write_logits("wren", WREN)
    if len(sys.argv) > 1:
        write_greedy(Path(sys.argv[1]))


main()
