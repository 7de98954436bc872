"""Measures the gain of the prefix cache on prompts with a long common prefix: computed tokens, and time against --cache naive.

    python3 tests/bench/prefix_sharing.py [MINISGL] [--rounds N]

Runs prompts/notes.jsonl through the demo model with the default options and with --cache naive in turn, and prints the
medians and their ratio. Times are those of the program, from the first submitted row to the last answer, without the
start.
"""
import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(binary, *options):
    with tempfile.TemporaryDirectory() as folder:
        summary = Path(folder) / "summary.json"
        subprocess.run([binary, "run", "-m", str(ROOT / "tests/models/wren"), "--file", str(ROOT / "prompts/notes.jsonl"),
                        "-o", str(Path(folder) / "answers.jsonl"), "--summary", str(summary), "--quiet", *options],
                       check=True)
        return json.loads(summary.read_text())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", nargs="?", default=str(ROOT / "build/src/cli/minisgl"))
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    radix, naive = [], []
    for _ in range(args.rounds):
        radix.append(run(args.binary))
        naive.append(run(args.binary, "--cache", "naive"))
    share = (radix[0]["prompt_tokens"] - radix[0]["cached_tokens"]) / radix[0]["prompt_tokens"]
    seconds = [statistics.median(one["seconds"] for one in runs) for runs in (radix, naive)]
    print(f"prompt tokens {radix[0]['prompt_tokens']}, computed {share:.1%} of them with the radix cache")
    print(f"radix {seconds[0]:.3f} s, naive {seconds[1]:.3f} s (medians of {args.rounds}): {seconds[1] / seconds[0]:.2f} times faster")


main()
