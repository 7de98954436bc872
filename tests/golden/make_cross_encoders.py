"""Makes tests/golden/scoring/cross_NAME: tiny encoders with heads of ...ForSequenceClassification and random weights, and what
transformers and sentence-transformers (CrossEncoder) make of texts and pairs with them in f32.

    pip install sentence-transformers
    python3 tests/golden/make_cross_encoders.py

bert        BertForSequenceClassification, one label, token types 0 and 1: as ms-marco-MiniLM, whose scores are logits
xlm         XLMRobertaForSequenceClassification, one label: as bge-reranker
roberta     RobertaForSequenceClassification, three labels
modernbert  ModernBertForSequenceClassification, one label, mean pooling
distilbert  DistilBertForSequenceClassification, two labels

Tokenizers are those of tests/golden/pooling.
"""
import json
import pathlib
import shutil

import torch
from encoders import SIZES, TEXTS, byte_level, fill, unigrams, word_pieces
from sentence_transformers import CrossEncoder
from transformers import (AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertForSequenceClassification, DistilBertConfig,
                          DistilBertForSequenceClassification, ModernBertConfig, ModernBertForSequenceClassification,
                          RobertaConfig, RobertaForSequenceClassification, XLMRobertaConfig,
                          XLMRobertaForSequenceClassification)

OUT = pathlib.Path(__file__).resolve().parent / "scoring"
QUERIES = ["Where does Omar live?", "", "the cat " * 40]
DOCUMENTS = ["Omar lives in Paris.", "the cat sat on the mat", "", "naïve café 🙂 日本", "[SEP] a </s> b", "the news " * 30,
             "x y " * 13]


def rounded(values):
    return [round(float(value), 7) for value in values]


def save(name, model, tokenizer, tokenizer_config, more=None):
    """`tokenizer`: the content of a tokenizer.json; `more` is added to config.json."""
    folder = OUT / f"cross_{name}"
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **(more or {})}, indent=1))
    encoder = CrossEncoder(str(folder), device="cpu")
    reader = AutoTokenizer.from_pretrained(folder)
    has_one = model.config.num_labels == 1
    with open(folder / "expected.jsonl", "w") as out:
        for text in TEXTS:
            ids = reader(text, truncation=True, return_tensors="pt")
            with torch.no_grad():
                logits = model(**ids).logits[0]
            scores = torch.sigmoid(logits) if has_one else logits.softmax(-1)
            out.write(json.dumps({"text": text, "logits": rounded(logits), "scores": rounded(scores)}) + "\n")
        for query in QUERIES if has_one else []:
            # One pair at a time: the tokens of a batch are padded.
            scores = [encoder.predict([(query, document)])[0] for document in DOCUMENTS]
            row = {"query": query, "documents": DOCUMENTS, "scores": rounded(scores),
                   "lengths": [len(reader([[query, document]], truncation=True)["input_ids"][0]) for document in DOCUMENTS]}
            out.write(json.dumps(row) + "\n")


def write_pairs(name):
    """What a saved model with several labels makes of pairs."""
    folder = OUT / f"cross_{name}"
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    reader = AutoTokenizer.from_pretrained(folder)
    with open(folder / "expected_pairs.jsonl", "w") as out:
        for first in QUERIES:
            for second in DOCUMENTS:
                with torch.no_grad():
                    logits = model(**reader([[first, second]], truncation=True, return_tensors="pt")).logits[0]
                row = {"text": first, "text_pair": second, "scores": rounded(logits.softmax(-1))}
                out.write(json.dumps(row) + "\n")


def make_xlm():
    file = unigrams(OUT / "cross_xlm")
    special = {"<s>": 0, "</s>": 2}
    # As published: <s> A </s> </s> B </s>, all of type 0.
    names = ["<s>", "A", "</s>", "</s>", "B", "</s>"]
    file["post_processor"]["pair"] = [{"SpecialToken" if name in special else "Sequence": {"id": name, "type_id": 0}}
                                      for name in names]
    config = XLMRobertaConfig(vocab_size=len(file["model"]["vocab"]), max_position_embeddings=66, type_vocab_size=1,
                              layer_norm_eps=1e-5, num_labels=1, **SIZES)
    save("xlm", fill(XLMRobertaForSequenceClassification(config), 12), file,
         {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64, "pad_token": "<pad>"})


def main():
    tokenizer, pieces = word_pieces()
    words = json.loads(tokenizer.to_str())
    of_bert = {"tokenizer_class": "BertTokenizer", "model_max_length": 64}
    config = BertConfig(vocab_size=len(pieces), max_position_embeddings=64, num_labels=1, **SIZES)
    identity = {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity", "version": "4.1.0"}}
    save("bert", fill(BertForSequenceClassification(config), 11), words, of_bert, identity)
    make_xlm()
    file = byte_level()
    vocab_size = len(file["model"]["vocab"])
    of_bytes = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64, "pad_token": "<pad>"}
    config = RobertaConfig(vocab_size=vocab_size, max_position_embeddings=66, type_vocab_size=1, layer_norm_eps=1e-5,
                           id2label={0: "contradiction", 1: "entailment", 2: "neutral"}, **SIZES)
    save("roberta", fill(RobertaForSequenceClassification(config), 13), file, of_bytes)
    config = ModernBertConfig(vocab_size=vocab_size, max_position_embeddings=128, local_attention=16, pad_token_id=1,
                              bos_token_id=0, eos_token_id=2, cls_token_id=0, sep_token_id=2, num_labels=1,
                              classifier_pooling="mean", **SIZES)
    save("modernbert", fill(ModernBertForSequenceClassification(config), 14), file, {**of_bytes, "model_max_length": 128})
    sizes = {"dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4}
    config = DistilBertConfig(vocab_size=len(pieces), max_position_embeddings=64, id2label={0: "NEGATIVE", 1: "POSITIVE"},
                              **sizes)
    save("distilbert", fill(DistilBertForSequenceClassification(config), 15), words, of_bert)
    write_pairs("roberta")
    write_pairs("distilbert")


if __name__ == "__main__":
    main()
