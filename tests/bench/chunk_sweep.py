"""Measures what the size of a step does: time to first token and throughput by --max-step-tokens.

    python3 tests/bench/chunk_sweep.py [--binary PATH] [--work FOLDER] [--tokens N] [--steps N ...] [--rounds N]

On a small made-up model (the demo model's sizes, fewer layers, a long context), on the CPU. Of each size of a step:
one prompt of N tokens (32k by default) alone; and the same prompt beside eight answers that are being written, whose gaps
between two tokens are the price. Prints a table of medians; fails if an answer differs.
"""
import argparse
import json
import random
import statistics
import subprocess
import tempfile
from pathlib import Path

import made_models

ROOT = Path(__file__).resolve().parents[2]
ANSWERS, ANSWER_TOKENS = 8, 160


def write_rows(path, tokens, beside):
    dice = random.Random(1)
    ids = [dice.randrange(300, 2000) for _ in range(tokens)]
    rows = [{"id": "long", "prompt_token_ids": ids, "max_tokens": 8, "ignore_eos": True, "priority": 1}]
    if beside:
        rows = [{"id": f"short{i}", "prompt_token_ids": [300 + i] * 8, "max_tokens": ANSWER_TOKENS, "ignore_eos": True}
                for i in range(ANSWERS)] + rows
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(options, model, rows, step, folder):
    summary = folder / "summary.json"
    command = [options.binary, "run", "-m", model, "--device", "cpu", "--file", rows, "--quiet", "--raw", "--row-metrics",
               "--max-running-requests", 16, "--max-step-tokens", step, "--long-prefill-threshold", step, "--num-pages",
               (options.tokens + 4096) // 16, "--max-seq-len", options.tokens + 1024, "--summary", summary, "--force"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    metrics = {answer["id"]: answer.pop("metrics") for answer in answers}
    for answer in answers:
        answer["usage"].pop("cached_tokens")
    return answers, metrics, json.loads(summary.read_text())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default=ROOT / "build/src/cli/minisgl")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--steps", type=int, nargs="+", default=[128, 512, 2048, 8192, 32768])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    config = json.loads((ROOT / "tests/models/wren/config.json").read_text())
    config.update(num_hidden_layers=options.layers, max_position_embeddings=options.tokens + 2048)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = made_models.write_model_dir(config, (options.work or folder) / "sweep")
        print(f"| step | {options.tokens} tokens alone: first token, s | prompt tok/s | beside {ANSWERS} answers: first token, s "
              "| theirs, s | their longest gap, s | all, s |")
        print("|---|---|---|---|---|---|---|")
        expected = {}
        figures = {step: [] for step in options.steps}
        for _ in range(options.rounds):  # in turns: what else runs on the machine changes
            for step in options.steps:
                row = []
                for beside in (False, True):
                    rows = folder / "rows.jsonl"
                    write_rows(rows, options.tokens, beside)
                    answers, metrics, summary = run(options, model, rows, step, folder)
                    if expected.setdefault(beside, answers) != answers:
                        raise SystemExit(f"the answers differ with --max-step-tokens {step}")
                    first = metrics["long"]["time_to_first_token_ms"] / 1e3
                    others = [times["time_to_first_token_ms"] / 1e3 for name, times in metrics.items() if name != "long"]
                    row += [first, max(others, default=0), summary["between_tokens_s"]["max"], summary["seconds"]]
                figures[step].append(row)
        for step, seen in figures.items():
            alone, _, _, _, first, theirs, gap, seconds = (statistics.median(column) for column in zip(*seen))
            print(f"| {step} | {alone:.2f} | {options.tokens / alone:,.0f} | {first:.2f} | {theirs:.2f} | {gap:.2f} | "
                  f"{seconds:.2f} |", flush=True)


main()
