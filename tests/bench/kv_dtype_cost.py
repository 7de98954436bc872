#!/usr/bin/env python3
"""What keys and values in 8 bits cost the demo model: perplexity, answers to questions about notes, log-probabilities.

    python3 tests/bench/kv_dtype_cost.py [--minisgl build/src/cli/minisgl] [--min-prompt 1500]

The same texts are scored with --kv-dtype auto and with fp8. Fails if the perplexity is more than 1 % higher, or if fewer
of the notes' questions have the right answer. --min-prompt N puts copies of the notes in front until a prompt has about
N words, so that the keys asked for are far behind.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WREN = ROOT / "tests/models/wren"
LIMIT = 0.01
KINDS = ("auto", "fp8")


def rows_of(name):
    return [json.loads(line) for line in (ROOT / f"prompts/{name}.jsonl").open()]


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(program, command, kind, rows, folder, *options):
    """The rows that `command` writes for a file of rows, and its summary."""
    out, summary = folder / "out.jsonl", folder / "summary.json"
    summary.unlink(missing_ok=True)
    subprocess.run([program, command, "-m", WREN, "--file", write_lines(folder / "in.jsonl", rows), "-o", out, "--force",
                    "-q", "--device", "cpu", "--kv-dtype", kind, "--summary", summary, *options], check=True)
    return [json.loads(line) for line in out.open()], json.loads(summary.read_text())


def find(value, key):
    if isinstance(value, dict):
        return value[key] if key in value else next((f for f in (find(v, key) for v in value.values()) if f is not None), None)
    return None


def texts_of(program, folder):
    """Answers to the demo's prompts with 16 bits, to be scored behind them."""
    asked = rows_of("stories") + rows_of("notes")
    answers, _ = run(program, "run", "auto", asked, folder)
    prompts = folder / "prompts.jsonl"
    subprocess.run([program, "tokenize", "-m", WREN, "--file", write_lines(folder / "in.jsonl", asked), "-o", prompts, "-q"],
                   check=True)
    found = {row["id"]: row["text"] for row in answers}
    return [{"id": row["id"], "prompt": row["prompt"].removeprefix("<s>"), "text": found[row["id"]]}
            for row in map(json.loads, prompts.open())]


def lengthened(rows, words):
    """Rows whose notes stand behind copies of other rows' notes."""
    out = []
    for i, row in enumerate(rows):
        system = row["messages"][0]
        head, _, notes = system["content"].partition("Notes:\n")
        text, at = notes, i
        while len(text.split()) < words:
            at += 1
            other = rows[at % len(rows)]["messages"][0]["content"].partition("Notes:\n")[2]
            text = text + "\n" + other if at % 2 else other + "\n" + text
        out.append(row | {"messages": [system | {"content": head + "Notes:\n" + text}] + row["messages"][1:]})
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minisgl", type=Path, default=ROOT / "build/src/cli/minisgl")
    parser.add_argument("--min-prompt", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = texts_of(options.minisgl, folder)
        notes = lengthened(rows_of("notes"), options.min_prompt)
        perplexity, logprobs, right, tokens = {}, {}, {}, 0
        for kind in KINDS:
            scored, summary = run(options.minisgl, "score", kind, texts, folder, "--logprobs", "0")
            perplexity[kind] = find(summary, "perplexity")
            logprobs[kind] = [token["logprob"] for row in scored for token in row["logprobs"]["content"]]
            answers, _ = run(options.minisgl, "run", kind, notes, folder)
            right[kind] = sum(row["text"] == row["metadata"]["expected"] for row in answers)
            tokens = max(row["usage"]["prompt_tokens"] for row in answers)
    change = perplexity["fp8"] / perplexity["auto"] - 1
    errors = sorted(abs(a - b) for a, b in zip(*logprobs.values(), strict=True))
    print(f"perplexity {perplexity['auto']:.4f} {perplexity['fp8']:.4f} ({100 * change:+.2f} %), {len(errors)} tokens")
    print(f"log-probabilities: mean |difference| {sum(errors) / len(errors):.4f}, "
          f"99 % within {errors[len(errors) * 99 // 100]:.3f}, most {errors[-1]:.3f}")
    print(f"notes: {right['auto']} and {right['fp8']} of {len(notes)} right, prompts of up to {tokens} tokens")
    return int(change > LIMIT or right["fp8"] < right["auto"])


if __name__ == "__main__":
    sys.exit(main())
