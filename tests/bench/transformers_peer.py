"""transformers as a peer of cpu_peers.py: made-up weights in bf16, prompts and answers of one row.

    PYTHON tests/bench/transformers_peer.py SHAPE.json THREADS PROMPT_TOKENS OUTPUT_TOKENS

Run by a Python that has torch and transformers, this file measures in a process of its own and prints
{"prompt_s": ..., "token_s": ...}: seconds of a prompt, of which only the last token's logits are computed, and of a
token of a greedy answer after a prompt of 8. Each is the second of two runs in one process; loading does not count.
Keys and values stay in the model's cache, as in generate(), whose own work between two tokens does not count.
"""
import json
import os
import subprocess
import sys
import time
from pathlib import Path

PACKAGES = ("torch==2.15.0", "transformers==5.24.0")
SHORT_PROMPT = 8
TIMEOUT_S = 900  # of one process: it makes up its weights first
# What limits both of torch's libraries of kernels to AVX2.
AVX2_ONLY = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}


def make_python(work, say):
    """The Python of an environment in `work` that has PACKAGES; they are installed if it does not exist."""
    folder = work / "transformers"
    python = folder / "bin/python"
    if not (folder / "complete").exists():
        say(f"installing {' and '.join(PACKAGES)} in {folder}: some minutes")
        with open(work / "transformers.log", "ab") as log:
            for command in ([sys.executable, "-m", "venv", folder], [python, "-m", "pip", "install", *PACKAGES]):
                if subprocess.run(command, stdout=log, stderr=log).returncode != 0:
                    raise SystemExit(f"{' '.join(map(str, command))} failed; see {log.name}")
        (folder / "complete").touch()
    return python


class Transformers:
    def __init__(self, python, isa):
        self.python, self.limits = python, AVX2_ONLY if isa == "avx2" else {}

    def run(self, *arguments):
        command = [str(part) for part in (self.python, __file__, *arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL,
                              env={**os.environ, **self.limits})
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-500:]}")
        return json.loads(done.stdout.splitlines()[-1])

    def version(self):
        code = "import torch, transformers; print('transformers', transformers.__version__ + ', torch', torch.__version__)"
        try:
            found = subprocess.run([self.python, "-c", code], capture_output=True, text=True)
        except OSError as error:
            raise SystemExit(f"--transformers-python: {error}") from None
        if found.returncode != 0:
            raise SystemExit(f"--transformers-python: {self.python} has not both packages: {found.stderr.strip()[-200:]}")
        return found.stdout.strip()

    def rates(self, shape, threads, prompt, output):
        """Tokens/s of a prompt, and of an answer of one row."""
        seconds = self.run(shape, threads, prompt, output)
        return prompt / seconds["prompt_s"], 1 / seconds["token_s"]


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
