"""Measures the processor time of tokenizing text: this program against the tokenizers library.

    python3 tests/bench/tokenizing.py PROGRAM MODEL_DIR TEXT_FILE [REPEAT]

Needs the tokenizers package, and a MODEL_DIR with a tokenizer.json. TEXT_FILE is cut into prompts of about 64 KiB at
line ends. The program's time is that of `minisgl tokenize` over all prompts minus that over none (start and loading); the
library's time is one thread's encode(). The ids of both are compared. The best of REPEAT runs (default 3) counts.
"""
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROMPT_BYTES = 64 << 10


def prompts_of(path):
    prompts, lines, size = [], [], 0
    for line in path.read_text(errors="replace").splitlines(keepends=True):
        lines.append(line)
        size += len(line.encode())
        if size >= PROMPT_BYTES:
            prompts.append("".join(lines))
            lines, size = [], 0
    return prompts + (["".join(lines)] if lines else [])


def program_seconds(program, model, prompts, out):
    """The seconds of user and system time, and the ids."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as rows:
        for prompt in prompts:
            rows.write(json.dumps({"prompt": prompt, "add_special_tokens": False}) + "\n")
        rows.flush()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with open(out, "w") as answers:
            subprocess.run([program, "tokenize", "-m", model, "--file", rows.name], stdout=answers, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, [json.loads(line)["prompt_token_ids"] for line in open(out)]


def main():
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer
    program, model, text = sys.argv[1:4]
    repeat = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    prompts = prompts_of(Path(text))
    megabytes = sum(len(prompt.encode()) for prompt in prompts) / 1e6
    library = Tokenizer.from_file(str(Path(model) / "tokenizer.json"))
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "ids.jsonl"
        for _ in range(repeat):
            loading, _ = program_seconds(program, model, [], out)
            whole, ids = program_seconds(program, model, prompts, out)
            ours.append(whole - loading)
            begin = time.process_time()
            reference = [library.encode(prompt, add_special_tokens=False).ids for prompt in prompts]
            theirs.append(time.process_time() - begin)
    same = "the same ids" if ids == reference else "DIFFERENT ids"
    print(f"{megabytes:.1f} MB, {sum(map(len, ids))} tokens, {same}")
    print(f"program {megabytes / min(ours):.1f} MB/s (reading and writing JSON too), library "
          f"{megabytes / min(theirs):.1f} MB/s: ratio {min(theirs) / min(ours):.1f}")


main()
