"""Tiny encoders with random weights in their published layouts, and their vectors (make_pooling.py).

bert          BertModel, a tokenizer.json of type WordPiece, the mean of the states, normalised
bert_old      the same weights as BertForMaskedLM of old files: names begin with "bert.", norms have gamma and beta, the
              pieces are in vocab.txt; no modules.json
distilbert    DistilBertModel: as BERT, without types, its names its own
mpnet         MPNetModel: numbers of distances; texts of up to 200 tokens
roberta       RobertaModel, bytes, texts in lower case and cut to 48 tokens, the first state, a product
xlm_roberta   XLMRobertaModel, a tokenizer.json of type Unigram with its table of normalisation
nomic_bert    NomicBertModel with the keys of its published config.json: rotary, gated, no biases
jina_bert     JinaBertModel, which transformers lacks: its formulas are in jina_bert.py; jina_bert_normed is another class of the name
modernbert    ModernBertModel with the keys of transformers 4: norms before parts, windows in two of three layers

pooling_gguf/bert.gguf, nomic_bert.gguf and jina_bert.gguf are some of them as GGUF files.
"""
import io
import json
import shutil

import jina_bert
import sentencepiece
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Dense, Normalize, Pooling, Transformer
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (BertConfig, BertModel, DistilBertConfig, DistilBertModel, MPNetConfig, MPNetModel,
                          ModernBertConfig, ModernBertModel, NomicBertConfig, NomicBertModel, RobertaConfig, RobertaModel, XLMRobertaConfig, XLMRobertaModel)

CORPUS = [
    "The quick brown fox jumps over the lazy dog. Hello world, hello there! It's what they're saying, isn't it?",
    "Where does Omar live? She lives in Paris, near the river; the cat sat on the mat and read the news in 2023.",
    "Ça déjà vu, naïve café. Привет мир, как дела? 你好世界 日本語のテキスト 한국어 문장 नमस्ते दुनिया مرحبا بالعالم",
] * 4
TEXTS = [
    "", " ", "a", "the cat sat on the mat", "Naïve CAFÉ Ångström İstanbul", "日本語のテキスト 你好，世界", "한국어 문장입니다",
    "👩‍👩‍👧‍👦 🎉 emoji", "tab\tnew\nline\r\n\x00\x01\x7f\u200b\ufeff\ufffd", "Привет, мир!", "नमस्ते दुनिया", "مرحبا بالعالم",
    "the cat " * 60, "w" * 120, "[CLS] a [SEP] <s> b </s>", "e\u0301 o\u0308 ﬁ Å ① ｆｕｌｌ", "it's don't -- http://a.b/c?d=e#f",
    "\u0378 \U000e0041 x",
]
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


def fill(model, seed):
    torch.manual_seed(seed)
    for name, parameter in model.named_parameters():
        is_norm = "norm" in name.lower() and name.endswith("weight")
        torch.nn.init.normal_(parameter, mean=1 if is_norm else 0, std=0.3)
    return model.float().eval()


def word_pieces():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=320, special_tokens=special, show_progress=False))
    # Training breaks ties as it likes: the order of the pieces is fixed here.
    pieces = special + sorted(set(tokenizer.get_vocab()) - set(special))
    file = json.loads(tokenizer.to_str())
    file["model"]["vocab"] = {piece: i for i, piece in enumerate(pieces)}
    for token in file["added_tokens"]:
        token["id"] = pieces.index(token["content"])
    tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer, pieces


def added(content, token_id, **flags):
    return {"id": token_id, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True, **flags}


# A few rules of NFKC, and spaces: the whole table has 240 kB.
RULES = "".join(f"{ord(a):X}\t{' '.join(f'{ord(c):X}' for c in b)}\n" for a, b in [
    ("ﬁ", "fi"), ("\u212b", "\u00c5"), ("①", "1"), ("\t", " "), ("\n", " "), ("\r", " "), ("\u200b", " "), ("\x01", ""),
    ("ｆ", "f"), ("ｕ", "u"), ("ｌ", "l"), ("，", ",")]) + "65 301\tE9\n6F 308\tF6\n"


def unigrams(folder):
    import base64
    rules = folder.with_suffix(".tsv")
    rules.write_text(RULES)
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=written, vocab_size=260, model_type="unigram",
        normalization_rule_tsv=str(rules), hard_vocab_limit=False, minloglevel=2)
    rules.unlink()
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(written.getvalue())
    vocab = [["<s>", 0.0], ["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0]]
    vocab += [[piece.piece, piece.score] for piece in list(proto.pieces)[3:]] + [["<mask>", 0.0]]
    table = base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    template = {"type": "TemplateProcessing", "single": [
        {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "</s>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in [("<s>", 0), ("</s>", 2)]}}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [added("<s>", 0), added("<pad>", 1), added("</s>", 2), added("<unk>", 3),
                             added("<mask>", len(vocab) - 1, lstrip=True)],
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Precompiled", "precompiled_charsmap": table},
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]},
            "post_processor": template, "decoder": space,
            "model": {"type": "Unigram", "unk_id": 3, "vocab": vocab, "byte_fallback": False}}


def byte_level():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {t: i for i, t in enumerate(["<s>", "<pad>", "</s>", "<unk>"] + alphabet + ["Ġt", "he", "Ġthe", "<mask>"])}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [added(t, vocab[t], lstrip=t == "<mask>") for t in ("<s>", "<pad>", "</s>", "<unk>", "<mask>")],
            "normalizer": None, "pre_tokenizer": level, "decoder": level,
            "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True,
                               "add_prefix_space": False},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                      "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "vocab": vocab,
                      "merges": ["Ġ t", "h e", "Ġt he"]}}


def write_expected(whole, folder):
    with open(folder / "expected.jsonl", "w") as out:
        for text in TEXTS:
            vector = whole.encode([text])[0]
            out.write(json.dumps({"text": text, "embedding": [round(float(x), 7) for x in vector]}) + "\n")


def save(model, tokenizer, tokenizer_config, modules, folder, sentence=None):
    """`tokenizer`: the content of a tokenizer.json, `sentence` of sentence_bert_config.json."""
    source = folder.with_suffix(".source")
    model.save_pretrained(source)
    (source / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    (source / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    whole = SentenceTransformer(modules=[Transformer(str(source)), *modules], device="cpu")
    whole.save(str(folder), create_model_card=False)
    shutil.rmtree(source)
    # The package writes the tokenizer anew, with changes of its own: as published, the file stays.
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    if sentence is not None:
        (folder / "sentence_bert_config.json").write_text(json.dumps(sentence))
    write_expected(SentenceTransformer(str(folder), device="cpu"), folder)


def make_bert(out):
    tokenizer, pieces = word_pieces()
    file = json.loads(tokenizer.to_str())
    model = fill(BertModel(BertConfig(vocab_size=len(pieces), max_position_embeddings=64, **SIZES)), 1)
    config = {"tokenizer_class": "BertTokenizer", "model_max_length": 64}
    save(model, file, config, [Pooling(32, pooling_mode="mean"), Normalize()], out / "bert")
    old = out / "bert_old"
    old.mkdir()
    shutil.copy(out / "bert/config.json", old)
    config = json.loads((out / "bert/config.json").read_text())
    (old / "config.json").write_text(json.dumps({**config, "architectures": ["BertForMaskedLM"]}, indent=1))
    (old / "vocab.txt").write_text("".join(piece + "\n" for piece in pieces))
    (old / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "model_max_length": 64}))
    tensors = load_file(out / "bert/model.safetensors")
    renamed = {f"bert.{n}".replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t
               for n, t in tensors.items()}
    renamed["bert.embeddings.position_ids"] = torch.arange(64)[None]
    renamed["cls.predictions.bias"] = torch.zeros(len(pieces))
    save_file(renamed, old / "model.safetensors", {"format": "pt"})
    whole = SentenceTransformer(modules=[Transformer(str(out / "bert")), Pooling(32, pooling_mode="mean")], device="cpu")
    write_expected(whole, old)


def make_distilbert(out):
    tokenizer, pieces = word_pieces()
    sizes = {"dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4}
    model = fill(DistilBertModel(DistilBertConfig(vocab_size=len(pieces), max_position_embeddings=64, **sizes)), 7)
    save(model, json.loads(tokenizer.to_str()), {"tokenizer_class": "BertTokenizer", "model_max_length": 64},
         [Pooling(32, pooling_mode="mean")], out / "distilbert")


def make_mpnet(out):
    tokenizer, pieces = word_pieces()
    tokenizer.post_processor = processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2), add_prefix_space=False)
    file = json.loads(tokenizer.to_str())
    # The reference takes the token 1 for padding, whatever the files say.
    file["model"]["vocab"].update({"[UNK]": 0, "[PAD]": 1})
    for token in file["added_tokens"]:
        token["id"] = file["model"]["vocab"][token["content"]]
    model = fill(MPNetModel(MPNetConfig(vocab_size=len(pieces), max_position_embeddings=202, bos_token_id=2, eos_token_id=3,
                                        **SIZES)), 8)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 200, "pad_token": "[PAD]"}
    save(model, file, config, [Pooling(32, pooling_mode="mean"), Normalize()], out / "mpnet")


def make_roberta(out):
    file = byte_level()
    model = fill(RobertaModel(RobertaConfig(vocab_size=len(file["model"]["vocab"]), max_position_embeddings=66,
                                            type_vocab_size=1, layer_norm_eps=1e-5, **SIZES)), 2)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64, "pad_token": "<pad>"}
    dense = Dense(32, 20, activation_function=torch.nn.Tanh())
    torch.manual_seed(5)
    save(model, file, config, [Pooling(32, pooling_mode="cls"), dense], out / "roberta",
         {"max_seq_length": 48, "do_lower_case": True})


def make_xlm_roberta(out):
    file = unigrams(out / "xlm_roberta")
    model = fill(XLMRobertaModel(XLMRobertaConfig(vocab_size=len(file["model"]["vocab"]), max_position_embeddings=66,
                                                  type_vocab_size=1, layer_norm_eps=1e-5, **SIZES)), 3)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64, "pad_token": "<pad>"}
    save(model, file, config, [Pooling(32, pooling_mode="mean"), Normalize()], out / "xlm_roberta")


def replace_keys(folder, added, dropped):
    path = folder / "config.json"
    config = {key: value for key, value in json.loads(path.read_text()).items() if key not in dropped}
    path.write_text(json.dumps({**config, **added}, indent=1))


def make_nomic_bert(out):
    tokenizer, pieces = word_pieces()
    model = fill(NomicBertModel(NomicBertConfig(vocab_size=len(pieces), max_position_embeddings=64, **SIZES)), 4)
    config = {"tokenizer_class": "BertTokenizer", "model_max_length": 64}
    folder = out / "nomic_bert"
    save(model, json.loads(tokenizer.to_str()), config, [Pooling(32, pooling_mode="mean")], folder)
    published = {
        "n_embd": 32, "n_inner": 48, "n_layer": 2, "n_head": 4, "n_positions": 64, "layer_norm_epsilon": 1e-12,
        "activation_function": "swiglu", "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False,
        "rotary_emb_scale_base": None, "rotary_scaling_factor": None, "max_trained_positions": 2048, "causal": False,
        "prenorm": False, "use_rms_norm": False, "parallel_block": False, "qkv_proj_bias": False, "mlp_fc1_bias": False,
        "mlp_fc2_bias": False, "num_experts": 0}
    replace_keys(folder, published, {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "head_dim",
                                     "max_position_embeddings", "layer_norm_eps", "hidden_act", "rope_parameters"})


def make_modernbert(out):
    file = byte_level()
    sizes = {**SIZES, "num_hidden_layers": 4}
    model = fill(ModernBertModel(ModernBertConfig(vocab_size=len(file["model"]["vocab"]), max_position_embeddings=128,
                                                  local_attention=16, pad_token_id=1, bos_token_id=0, eos_token_id=2,
                                                  cls_token_id=0, sep_token_id=2, **sizes)), 6)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 128, "pad_token": "<pad>"}
    folder = out / "modernbert"
    save(model, file, config, [Pooling(32, pooling_mode="cls"), Normalize()], folder)
    older = {"global_rope_theta": 160000.0, "local_rope_theta": 10000.0, "global_attn_every_n_layers": 3}
    replace_keys(folder, older, {"rope_parameters", "layer_types"})


GGUF_NAMES = {
    "embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm", "emb_ln": "token_embd_norm",
    "attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm", "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm", "attn.Wqkv": "attn_qkv",
    "attn.out_proj": "attn_output", "norm1": "attn_output_norm", "norm2": "layer_output_norm", "mlp.fc11": "ffn_up",
    "mlp.gated_layers": "ffn_up", "mlp.wo": "ffn_down", "mlp.layernorm": "layer_output_norm", "mlp.fc12": "ffn_gate", "mlp.fc2": "ffn_down"}


def make_gguf(folder, kind, pooling, path):
    """The model of `folder` as llama.cpp's converter writes it."""
    import gguf
    pieces = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    writer = gguf.GGUFWriter(str(path), kind)
    config = json.loads((folder / "config.json").read_text())
    writer.add_context_length(config.get("max_position_embeddings", 64))
    writer.add_embedding_length(config.get("hidden_size", 32))
    writer.add_feed_forward_length(config.get("intermediate_size", 48))
    writer.add_block_count(2)
    writer.add_head_count(config.get("num_attention_heads", 4))
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(pooling)
    if kind == "nomic-bert":
        writer.add_rope_freq_base(1000.0)
    writer.add_tokenizer_model("bert")
    writer.add_token_type_count(2)

    def stored(piece):
        if piece.startswith("[") and piece.endswith("]"):
            return piece
        return piece[2:] if piece.startswith("##") else "\u2581" + piece
    writer.add_token_list([stored(piece) for piece in pieces])
    writer.add_token_types([3 if piece.startswith("[") and piece.endswith("]") else 1 for piece in pieces])
    writer.add_bos_token_id(2)
    writer.add_sep_token_id(3)
    writer.add_unk_token_id(1)
    for name, tensor in load_file(folder / "model.safetensors").items():
        module, kind_of = name.rsplit(".", 1)
        layer = ""
        for prefix in ("encoder.layer.", "encoder.layers."):
            if module.startswith(prefix):
                number, module = module[len(prefix):].split(".", 1)
                layer = f"blk.{number}."
        if module.startswith("pooler"):
            continue
        writer.add_tensor(f"{layer}{GGUF_NAMES[module]}.{kind_of}", tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_gguf_encoders(out):
    import gguf
    folder = out.parent / "pooling_gguf"
    folder.mkdir(exist_ok=True)
    make_gguf(out / "bert", "bert", gguf.PoolingType.MEAN, folder / "bert.gguf")
    make_gguf(out / "jina_bert", "jina-bert-v2", gguf.PoolingType.MEAN, folder / "jina_bert.gguf")
    make_gguf(out / "nomic_bert", "nomic-bert", gguf.PoolingType.NONE, folder / "nomic_bert.gguf")


def make_encoders(out):
    make_bert(out)
    make_distilbert(out)
    make_mpnet(out)
    make_roberta(out)
    make_xlm_roberta(out)
    make_nomic_bert(out)
    make_modernbert(out)
    jina_bert.make(out / "jina_bert", out / "bert", TEXTS)
    jina_bert.make(out / "jina_bert_normed", out / "bert", TEXTS, is_normed=True)
    make_gguf_encoders(out)
