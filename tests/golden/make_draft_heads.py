"""Makes tests/golden/draft_heads: a tiny target, heads that draft for it in the published layouts (EAGLE-3 as SpecForge and as
speculators write them, DFlash, DSpark), answers, and the tokens that each head proposes after each token of them. Run by hand, never
by the tests.

    pip install torch transformers safetensors
    python3 tests/golden/make_draft_heads.py

The target is transformers' own. The heads are written here from their papers' formulas, in float32, and computed anew over
the whole text for each proposal:
  EAGLE-3: g(i) = fc [states that enter three layers, at token i]; row i reads token i + 1 and g(i), and has position i;
    x = [norm(embedding), norm(g)], r = g + attention(x), or norm(g) + attention(x); y = r + mlp(norm(r)); the logits are
    head norm(y), and y stands for g at the next proposal.
  DFlash: c(i) = norm(fc [states behind some layers, at token i]); a block of the last token and masks attends to keys and
    values of c and of the block itself, in windows causally; place k of the block predicts its own token.
  DSpark: the same with an embedding and an output head of its own, and place k of the block predicts the token behind it, the
    last token the first draft; its logits get W2 W1[the token before], token by token.
"""
import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from torch.nn.functional import silu
from transformers import MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel, Qwen3Config, Qwen3ForCausalLM
from transformers.cache_utils import DFlashCache

OUT = pathlib.Path(__file__).resolve().parent / "draft_heads"
VOCAB, WIDTH, LAYERS, ANSWER, PROPOSALS = 96, 32, 7, 12, 3
HEADS, KV_HEADS, HEAD_DIM, INNER, THETA, EPS = 4, 2, 8, 32, 10000.0, 1e-6
DRAFT_VOCAB, MASK = 64, 95
TARGET = dict(vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
              num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, max_position_embeddings=256, tie_word_embeddings=False,
              rms_norm_eps=EPS)


def random_tensors(shapes, seed):
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator)
        if len(shape) == 1:
            tensors[name] = 1 + 0.3 * noise
        elif "embed" in name:
            tensors[name] = noise
        else:
            tensors[name] = noise * (1.6 / shape[-1] ** 0.5)
    return tensors


def rms(x, weight):
    return weight * x / (x.pow(2).mean(-1, keepdim=True) + EPS).sqrt()


def rotate(x, positions, theta):
    """x [heads, rows, dim]; halves are turned."""
    half = x.shape[-1] // 2
    angles = positions[:, None].double() / theta ** (torch.arange(half).double() / half)
    cos, sin = angles.cos().float(), angles.sin().float()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def heads_of(x, count):
    return x.view(x.shape[0], count, -1).transpose(0, 1)


def attend(q, k, v, visible):
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, 0) for x in (k, v))
    scores = (q @ k.transpose(1, 2)) / q.shape[-1] ** 0.5
    shares = scores.masked_fill(~visible, float("-inf")).softmax(-1)
    return (shares @ v).transpose(0, 1).reshape(q.shape[1], -1)


def mlp(x, t, prefix):
    gate, up = x @ t[prefix + "mlp.gate_proj.weight"].T, x @ t[prefix + "mlp.up_proj.weight"].T
    return (silu(gate) * up) @ t[prefix + "mlp.down_proj.weight"].T


def best(logits):
    """The best id, or null where two nearly tie."""
    top = logits.topk(2)
    return top.indices[0].item(), (top.values[0] - top.values[1]).item() > 1e-3


class Eagle3:
    """`prefix`: of the layer's tensors."""

    def __init__(self, prefix, layers, before_residual, has_embedding, head_dim, theta, seed):
        self.prefix, self.layers, self.before_residual, self.theta = prefix, layers, before_residual, theta
        q, kv = HEADS * head_dim, KV_HEADS * head_dim
        shapes = {"fc.weight": (WIDTH, 3 * WIDTH), "norm.weight": (WIDTH,), "lm_head.weight": (DRAFT_VOCAB, WIDTH),
                  prefix + "hidden_norm.weight": (WIDTH,), prefix + "input_layernorm.weight": (WIDTH,),
                  prefix + "post_attention_layernorm.weight": (WIDTH,), prefix + "self_attn.q_proj.weight": (q, 2 * WIDTH),
                  prefix + "self_attn.k_proj.weight": (kv, 2 * WIDTH), prefix + "self_attn.v_proj.weight": (kv, 2 * WIDTH),
                  prefix + "self_attn.o_proj.weight": (WIDTH, q), prefix + "mlp.gate_proj.weight": (INNER, WIDTH),
                  prefix + "mlp.up_proj.weight": (INNER, WIDTH), prefix + "mlp.down_proj.weight": (WIDTH, INNER)}
        if has_embedding:
            shapes["embed_tokens.weight"] = (VOCAB, WIDTH)
        self.t = random_tensors(shapes, seed)
        chosen = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(seed))[:DRAFT_VOCAB].sort().values
        self.t["d2t"] = chosen - torch.arange(DRAFT_VOCAB)
        self.t["t2d"] = torch.zeros(VOCAB, dtype=torch.bool).index_fill(0, chosen, True)

    def row_states(self, model, tokens, states):
        t, p = self.t, self.prefix
        table = t.get("embed_tokens.weight", model.model.embed_tokens.weight)
        normed = rms(states, t[p + "hidden_norm.weight"])
        x = torch.cat([rms(table[tokens], t[p + "input_layernorm.weight"]), normed], -1)
        positions = torch.arange(x.shape[0])
        q, k = (rotate(heads_of(x @ t[f"{p}self_attn.{name}_proj.weight"].T, count), positions, self.theta)
                for name, count in (("q", HEADS), ("k", KV_HEADS)))
        v = heads_of(x @ t[p + "self_attn.v_proj.weight"].T, KV_HEADS)
        out = attend(q, k, v, torch.ones(x.shape[0], x.shape[0], dtype=torch.bool).tril())
        r = (normed if self.before_residual else states) + out @ t[p + "self_attn.o_proj.weight"].T
        return r + mlp(rms(r, t[p + "post_attention_layernorm.weight"]), t, p)

    def propose(self, model, ids):
        entering = model.model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        states = torch.cat([entering[layer][0] for layer in self.layers], -1)[:-1] @ self.t["fc.weight"].T
        tokens, proposals, is_sure = torch.tensor(ids[1:]), [], True
        for _ in range(PROPOSALS):
            state = self.row_states(model, tokens, states)[-1]
            row, sure = best(self.t["lm_head.weight"] @ rms(state, self.t["norm.weight"]))
            is_sure &= sure
            token = row + self.t["d2t"][row].item()
            proposals.append(token if is_sure else None)
            tokens = torch.cat([tokens, torch.tensor([token])])
            states = torch.cat([states, state[None]])
        return proposals


class DFlash:
    WINDOW = 8

    def __init__(self, layers, seed):
        self.layers = layers
        q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
        shapes = {"fc.weight": (WIDTH, len(layers) * WIDTH), "hidden_norm.weight": (WIDTH,), "norm.weight": (WIDTH,)}
        for i in range(2):
            p = f"layers.{i}."
            shapes |= {p + "input_layernorm.weight": (WIDTH,), p + "post_attention_layernorm.weight": (WIDTH,),
                       p + "self_attn.q_proj.weight": (q, WIDTH), p + "self_attn.k_proj.weight": (kv, WIDTH),
                       p + "self_attn.v_proj.weight": (kv, WIDTH), p + "self_attn.o_proj.weight": (WIDTH, q),
                       p + "self_attn.q_norm.weight": (HEAD_DIM,), p + "self_attn.k_norm.weight": (HEAD_DIM,),
                       p + "mlp.gate_proj.weight": (INNER, WIDTH), p + "mlp.up_proj.weight": (INNER, WIDTH),
                       p + "mlp.down_proj.weight": (WIDTH, INNER)}
        self.t = random_tensors(shapes, seed)

    def propose(self, model, ids):
        x = self.run(model, ids, model.model.embed_tokens.weight[torch.tensor([ids[-1]] + [MASK] * PROPOSALS)])
        found = [best(row) for row in model.lm_head(rms(x, self.t["norm.weight"]))[1:]]
        return [token if sure else None for token, sure in found]

    def run(self, model, ids, x):
        """The block `x` behind the layers."""
        t = self.t
        entering = model.model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        known = len(ids) - 1
        chosen = torch.cat([entering[layer + 1][0] for layer in self.layers], -1)[:known]
        context = rms(chosen @ t["fc.weight"].T, t["hidden_norm.weight"])
        keys, queries = torch.arange(known + x.shape[0]), torch.arange(known, known + x.shape[0])
        for i in range(2):
            p = f"layers.{i}."
            normed = rms(x, t[p + "input_layernorm.weight"])
            rows = torch.cat([context, normed])
            q = rms(heads_of(normed @ t[p + "self_attn.q_proj.weight"].T, HEADS), t[p + "self_attn.q_norm.weight"])
            k = rms(heads_of(rows @ t[p + "self_attn.k_proj.weight"].T, KV_HEADS), t[p + "self_attn.k_norm.weight"])
            v = heads_of(rows @ t[p + "self_attn.v_proj.weight"].T, KV_HEADS)
            visible = torch.ones(x.shape[0], keys.shape[0], dtype=torch.bool)
            if i == 0:  # a window
                distance = queries[:, None] - keys[None]
                visible = (distance >= 0) & (distance < self.WINDOW)
            out = attend(rotate(q, queries, THETA), rotate(k, keys, THETA), v, visible)
            x = x + out @ t[p + "self_attn.o_proj.weight"].T
            x = x + mlp(rms(x, t[p + "post_attention_layernorm.weight"]), t, p)
        return x


class DSpark:
    """`rank`: of the transitions; 0: none."""

    def __init__(self, layers, rank, seed):
        self.body, self.layers = DFlash(layers, seed), layers
        shapes = {"embed_tokens.weight": (VOCAB, WIDTH), "lm_head.weight": (VOCAB, WIDTH)}
        if rank > 0:
            shapes |= {"markov_head.markov_w1.weight": (VOCAB, rank), "markov_head.markov_w2.weight": (VOCAB, rank),
                       "confidence_head.proj.weight": (1, WIDTH + rank), "confidence_head.proj.bias": (1,)}
        self.t = self.body.t | random_tensors(shapes, seed + 1)

    def propose(self, model, ids):
        t = self.t
        x = t["embed_tokens.weight"][torch.tensor([ids[-1]] + [MASK] * (PROPOSALS - 1))]
        logits = rms(self.body.run(model, ids, x), t["norm.weight"]) @ t["lm_head.weight"].T
        proposals, is_sure, before = [], True, ids[-1]
        for row in logits:
            if "markov_head.markov_w1.weight" in t:
                row = row + t["markov_head.markov_w2.weight"] @ t["markov_head.markov_w1.weight"][before]
            before, sure = best(row)
            is_sure &= sure
            proposals.append(before if is_sure else None)
        return proposals


class Glimmer:
    """transformers' own assistant of Muse Glimmer: DFlash under other names, whose windows are not causal."""

    def __init__(self, layers, seed):
        self.layers = layers
        self.config = MuseGlimmerAssistantConfig(
            hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=2, num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, max_position_embeddings=256, rms_norm_eps=EPS,
            layer_types=["sliding_attention", "full_attention"], sliding_window=8, target_layer_ids=layers, block_size=8,
            mask_token_id=MASK, attn_implementation="eager")
        self.model = MuseGlimmerAssistantModel(self.config).float().eval()
        fill(self.model, seed)
        self.t = {name: t.detach() for name, t in self.model.named_parameters()}

    def propose(self, model, ids):
        entering = model.model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        known = len(ids) - 1
        context = torch.cat([entering[layer + 1] for layer in self.layers], -1)[:, :known]
        noise = model.model.embed_tokens.weight[torch.tensor([[ids[-1]] + [MASK] * PROPOSALS])]
        cache = DFlashCache(config=self.config)  # knows where the block begins
        cache.activate_past_recording()
        cache.set_previous_accepted_tokens(known)
        out = self.model(noise_embeds=noise, context_hidden_states=context, cache=cache, use_cache=True,
                         position_ids=torch.arange(known + noise.shape[1])[None])
        found = [best(row) for row in model.lm_head(out.last_hidden_state[0])[1:]]
        return [token if sure else None for token, sure in found]


def fill(module, seed):
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in module.named_parameters():
        noise = torch.randn(tensor.shape, generator=generator)
        if "norm" in name:
            tensor.data.copy_(1 + 0.3 * noise)
        elif "embed_tokens" in name:
            tensor.data.copy_(noise)
        else:
            tensor.data.copy_(noise * (1.6 / tensor.shape[-1] ** 0.5))


def save(name, head, config, model):
    folder = OUT / name
    folder.mkdir()
    save_file({key: tensor.contiguous() for key, tensor in head.t.items()}, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    generator = torch.Generator().manual_seed(11)
    with open(folder / "proposals.jsonl", "w") as out:
        for length in (1, 3, 19):
            prompt = torch.randint(0, VOCAB, (length,), generator=generator).tolist()
            ids, drafts = list(prompt), []
            for _ in range(ANSWER):
                ids.append(model(torch.tensor([ids])).logits[0, -1].argmax().item())
                drafts.append(head.propose(model, ids))
            out.write(json.dumps({"prompt": prompt, "answer": ids[length:], "drafts": drafts}) + "\n")


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    model = Qwen3ForCausalLM(Qwen3Config(**TARGET, attn_implementation="eager")).float().eval()
    fill(model, 5)
    model.save_pretrained(OUT / "target")
    (OUT / "target" / "generation_config.json").unlink(missing_ok=True)
    layer = dict(hidden_act="silu", hidden_size=WIDTH, intermediate_size=INNER, num_attention_heads=HEADS,
                 num_key_value_heads=KV_HEADS, max_position_embeddings=256, rms_norm_eps=EPS, num_hidden_layers=1,
                 vocab_size=VOCAB, attention_bias=False, mlp_bias=False, model_type="llama", tie_word_embeddings=False)
    with torch.no_grad():
        # Without layer ids in the file: those that enter layers 2, L / 2 and L - 3.
        save("eagle3", Eagle3("midlayer.", [2, LAYERS // 2, LAYERS - 3], False, False, HEAD_DIM, THETA, 21),
             layer | {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": DRAFT_VOCAB, "head_dim": HEAD_DIM,
                      "rope_theta": THETA, "torch_dtype": "float32"}, model)
        # SGLang's ids are those of the layers whose outputs are read.
        save("eagle3_ids", Eagle3("midlayer.", [1, 3, 6], False, False, 16, 500000.0, 22),
             layer | {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": DRAFT_VOCAB, "head_dim": 16,
                      "rope_theta": 500000.0, "torch_dtype": "float32",
                      "eagle_config": {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [0, 2, 5]}}, model)
        save("eagle3_speculators", Eagle3("layers.0.", [2, 4, 5], True, True, HEAD_DIM, THETA, 23),
             {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "draft_vocab_size": DRAFT_VOCAB,
              "norm_before_residual": True, "eagle_aux_hidden_state_layer_ids": [2, 4, 5], "target_hidden_size": None,
              "torch_dtype": "float32", "tie_word_embeddings": False,
              "transformer_layer_config": layer | {"head_dim": HEAD_DIM, "rope_theta": THETA}}, model)
        save("dflash", DFlash([1, 3, 5], 24),
             layer | {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "num_hidden_layers": 2, "head_dim": HEAD_DIM,
                      "layer_types": ["sliding_attention", "full_attention"], "sliding_window": DFlash.WINDOW,
                      "use_sliding_window": True, "rope_theta": THETA, "torch_dtype": "float32", "block_size": 8,
                      "num_target_layers": LAYERS, "dflash_config": {"target_layer_ids": [1, 3, 5], "mask_token_id": MASK}},
             model)
        spark = layer | {"architectures": ["Qwen3DSparkModel"], "model_type": "qwen3", "num_hidden_layers": 2,
                         "head_dim": HEAD_DIM, "layer_types": ["sliding_attention", "full_attention"],
                         "sliding_window": DFlash.WINDOW, "use_sliding_window": True, "rope_theta": THETA,
                         "torch_dtype": "float32", "block_size": 4, "num_target_layers": LAYERS, "target_layer_ids": [1, 3, 5],
                         "mask_token_id": MASK, "markov_head_type": "vanilla"}
        save("dspark", DSpark([1, 3, 5], 16, 26),
             spark | {"markov_rank": 16, "enable_confidence_head": True, "confidence_head_with_markov": True}, model)
        save("dspark_plain", DSpark([1, 3, 5], 0, 28), spark | {"markov_rank": 0, "enable_confidence_head": False}, model)
        glimmer = Glimmer([1, 3, 5], 25)
        config = json.loads(glimmer.config.to_json_string(use_diff=False))
        save("glimmer", glimmer, config | {"architectures": ["MuseGlimmerAssistantModel"]}, model)


main()
