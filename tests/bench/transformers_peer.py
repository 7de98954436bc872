"""What cpu_peers.py runs of transformers: made-up weights in bf16, a prompt and an answer of one row.

    PYTHON tests/bench/transformers_peer.py SHAPE.json THREADS PROMPT_TOKENS OUTPUT_TOKENS

Run by a Python that has torch and transformers, this file measures in a process of its own and prints
{"prompt_s": ..., "token_s": ...}: seconds of a prompt, of which only the last token's logits are computed, and of a
token of a greedy answer after a prompt of 8. Each is the second of two runs in one process; loading does not count.
Keys and values stay in the model's cache, as in generate(), whose own work between two tokens does not count.
"""
import json
import sys
import time
from pathlib import Path

SHORT_PROMPT = 8


def measure(shape, threads, prompt, output):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    config = AutoConfig.for_model(**json.loads(Path(shape).read_text()))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()

    def read(ids, cache=None):
        return model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)

    def answer():
        result, seconds = read(torch.randint(0, config.vocab_size, (1, SHORT_PROMPT))), 0.0
        for _ in range(output):
            token = result.logits[:, -1].argmax(-1, keepdim=True)
            begin = time.perf_counter()
            result = read(token, result.past_key_values)
            seconds += time.perf_counter() - begin
        return seconds / output

    def read_prompt():
        ids = torch.randint(0, config.vocab_size, (1, prompt))
        begin = time.perf_counter()
        read(ids)
        return time.perf_counter() - begin

    with torch.inference_mode():
        return {"prompt_s": [read_prompt() for _ in range(2)][-1], "token_s": [answer() for _ in range(2)][-1]}


if __name__ == "__main__":
    if len(sys.argv) != 5:
        raise SystemExit(__doc__)
    print(json.dumps(measure(sys.argv[1], *map(int, sys.argv[2:]))))
