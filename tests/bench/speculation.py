"""Measures the gain of drafted tokens: the same prompts with and without drafts, in turns on one machine.

    python3 tests/bench/speculation.py [--binary PATH] [--rounds N] [--drafts K]

For answers that repeat their prompt (notes.jsonl) and open text (stories.jsonl), one request at a time and eight at once.
Prints steps and median seconds of each, and their ratio; fails if an answer differs.
"""
import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(binary, prompts, running, speculate, folder):
    summary = folder / "summary.json"
    command = [binary, "run", "-m", ROOT / "tests/models/wren", "--file", prompts, "--quiet", "--max-running-requests",
               str(running), "--speculate", speculate, "--summary", summary, "--force"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    for row in rows:
        row["usage"].pop("cached_tokens")
    return rows, json.loads(summary.read_text())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default=ROOT / "build/src/cli/minisgl")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--drafts", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        for prompts in ("notes", "stories"):
            for running in (1, 8):
                figures = {"none": [], f"ngram:{options.drafts}": []}
                expected = None
                for _ in range(options.rounds):
                    for speculate, seen in figures.items():
                        rows, summary = run(options.binary, ROOT / f"prompts/{prompts}.jsonl", running, speculate,
                                            Path(name))
                        expected = expected or rows
                        if rows != expected:
                            raise SystemExit(f"{prompts}: the answers differ with --speculate {speculate}")
                        seen.append(summary)
                plain, drafted = figures.values()
                seconds = [statistics.median(s["seconds"] for s in seen) for seen in (plain, drafted)]
                print(f"{prompts}, {running} at once: {plain[0]['scheduler']['steps']} steps and {seconds[0]:.2f} s without, "
                      f"{drafted[0]['scheduler']['steps']} steps and {seconds[1]:.2f} s with "
                      f"({drafted[0]['draft_acceptance_percent'] or 0:.0f} % accepted): {seconds[0] / seconds[1]:.2f} times")


main()
