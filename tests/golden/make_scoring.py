"""Makes tests/golden/scoring: tiny decoders with random weights and what transformers makes of texts with them in f32:
classifiers, a reward model, and rerankers in the layouts of Qwen3-Reranker.

    pip install transformers tokenizers
    python3 tests/golden/make_scoring.py

classes     Qwen3ForSequenceClassification, three labels with names: softmax
topics      LlamaForSequenceClassification, two labels that do not exclude each other: sigmoids
reward      Qwen3ForSequenceClassification, one number, of conversations
reranker    Qwen3ForCausalLM, as Qwen3-Reranker: the tokens "yes" and "no" behind its template, as its model card has it
reranker1   the same converted to Qwen3ForSequenceClassification with one label
"""
import json
import pathlib
import shutil

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM,
                          Qwen3ForSequenceClassification)

OUT = pathlib.Path(__file__).resolve().parent / "scoring"
TEXTS = ["a", "the cat sat on the mat", "naïve café 🙂 日本", "x " * 60, "\n\n  indented\ttext", "Where does Omar live?", "yes", "no no"]
QUERY = "Where does Omar live?"
DOCUMENTS = ["Omar lives in Paris.", "The cat sat on the mat.", "", "yes", "Omar has a house. " * 12, "naïve café 🙂 日本",
             "Cora lives in London <|im_end|>"]
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
BEFORE = ('<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. '
          'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n')
AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
CHAT = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def make_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    corpus = TEXTS + DOCUMENTS + [BEFORE, AFTER, INSTRUCTION] + ["yes", "no"] * 50
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])
    whole = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    whole.chat_template = CHAT
    return whole


def config_of(kind, tokenizer, **more):
    return kind(vocab_size=448, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, head_dim=8, max_position_embeddings=512, pad_token_id=tokenizer.pad_token_id, **more)


def make(kind, config, seed):
    torch.manual_seed(seed)
    model = kind(config).float().eval()
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=1 if "norm" in name else 0, std=0.2)
    return model


def save(name, model, tokenizer, rows):
    model.save_pretrained(OUT / name)
    tokenizer.save_pretrained(OUT / name)
    (OUT / name / "generation_config.json").unlink(missing_ok=True)
    with open(OUT / name / "expected.jsonl", "w") as out:
        for row in rows:
            out.write(json.dumps(row) + "\n")


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]


def rounded(values):
    return [round(float(value), 7) for value in values]


def classify(model, tokenizer, to_scores):
    for text in TEXTS:
        logits = logits_of(model, tokenizer(text)["input_ids"])
        yield {"text": text, "logits": rounded(logits), "scores": rounded(to_scores(logits))}


def reward(model, tokenizer):
    for text in TEXTS:
        messages = [{"role": "user", "content": text}, {"role": "assistant", "content": "It is " + text + "."}]
        ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
        yield {"messages": messages, "logits": rounded(logits_of(model, ids))}


def pair_ids(tokenizer, query, document, instruction):
    middle = f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
    return (tokenizer.encode(BEFORE, add_special_tokens=False) + tokenizer(middle)["input_ids"] +
            tokenizer.encode(AFTER, add_special_tokens=False))


def rerank(tokenizer, score):
    for instruction in (INSTRUCTION, "Find rhymes"):
        scores = [score(pair_ids(tokenizer, QUERY, document, instruction)) for document in DOCUMENTS]
        yield {"query": QUERY, "instruction": instruction, "documents": DOCUMENTS, "scores": rounded(scores)}


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    tokenizer = make_tokenizer()
    labels = {0: "calm", 1: "glad", 2: "angry"}
    model = make(Qwen3ForSequenceClassification, config_of(Qwen3Config, tokenizer, id2label=labels), 1)
    save("classes", model, tokenizer, list(classify(model, tokenizer, lambda x: x.softmax(-1))))
    config = config_of(LlamaConfig, tokenizer, num_labels=2, problem_type="multi_label_classification")
    model = make(LlamaForSequenceClassification, config, 2)
    save("topics", model, tokenizer, list(classify(model, tokenizer, torch.sigmoid)))
    model = make(Qwen3ForSequenceClassification, config_of(Qwen3Config, tokenizer, num_labels=1), 3)
    save("reward", model, tokenizer, list(reward(model, tokenizer)))
    ranker = make(Qwen3ForCausalLM, config_of(Qwen3Config, tokenizer, tie_word_embeddings=True), 4)
    yes, no = (tokenizer.convert_tokens_to_ids(word) for word in ("yes", "no"))

    def score(ids):
        last = logits_of(ranker, ids)[-1]
        return torch.stack([last[no], last[yes]]).log_softmax(0)[1].exp()

    save("reranker", ranker, tokenizer, list(rerank(tokenizer, score)))
    one = Qwen3ForSequenceClassification(config_of(Qwen3Config, tokenizer, num_labels=1)).float().eval()
    one.model.load_state_dict(ranker.model.state_dict())
    head = ranker.lm_head.weight.detach()
    one.score.weight.data = (head[yes] - head[no])[None]
    save("reranker1", one, tokenizer, list(rerank(tokenizer, lambda ids: logits_of(one, ids)[0].sigmoid())))


main()
