"""Seconds from starting a program on a GGUF file to its first token, beside llama.cpp: runs that take turns, medians.

    python3 tests/bench/first_token.py MINISGL LLAMA_COMPLETION FOLDER SHAPE.json[,...] [ROUNDS [THREADS [FORMAT,...]]]

The files have made-up weights, of each FORMAT (q4_k_m,q4_0,q8_0), and a tokenizer as large as the vocabulary; they are
written into FOLDER and are in the page cache when they are timed. A prompt is words of one letter, a token
each; each side answers with one token, greedily, and the time is that of the whole process. The peer does not warm up
(--no-warmup) and is measured as it comes, where it may reorder weights while it loads, and with --no-repack.
"""
import json
import statistics
import string
import subprocess
import sys
import time
from pathlib import Path

import made_models

WORDS = (8, 64, 128, 512)


def seconds(command):
    begin = time.monotonic()
    subprocess.run([str(part) for part in command], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return time.monotonic() - begin


def prompt_of(words):
    return "".join(" " + string.ascii_letters[i % len(string.ascii_letters)] for i in range(words))


def commands(minisgl, peer, model, prompt, threads):
    ours = [minisgl, "run", "-m", model, "--raw", "-q", "--device", "cpu", "--threads", threads, "--max-tokens", 1,
            "--temperature", 0, "-p", prompt]
    theirs = [peer, "-m", model, "-n", 1, "-t", threads, "-c", 1024, "--temp", 0, "--no-warmup", "-no-cnv", "-p", prompt]
    return {"minisgl": ours, "llama.cpp": theirs, "llama.cpp --no-repack": theirs + ["--no-repack"]}


def main():
    minisgl, peer, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    rounds = int(sys.argv[5]) if len(sys.argv) > 5 else 3
    threads = int(sys.argv[6]) if len(sys.argv) > 6 else 2
    formats = sys.argv[7].split(",") if len(sys.argv) > 7 else ["q4_k_m", "q4_0", "q8_0"]
    for shape in sys.argv[4].split(","):
        config = json.loads(Path(shape).read_text())
        for form in formats:
            model = made_models.write_gguf(config, form, folder / f"{Path(shape).stem}-{form}.gguf", with_tokenizer=True)
            seconds(["cat", model])
            for words in WORDS:
                sides = commands(minisgl, peer, model, prompt_of(words), threads)
                times = {who: [] for who in sides}
                for _ in range(rounds):
                    for who, command in sides.items():
                        times[who].append(seconds(command))
                print(f"{Path(shape).stem} {form:7} {words:4} words  " + "  ".join(
                    f"{who} {statistics.median(of):.2f} ({min(of):.2f}-{max(of):.2f})" for who, of in times.items()), flush=True)


if __name__ == "__main__":
    main()
