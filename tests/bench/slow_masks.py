"""Tokens a second of 16 plain rows, alone and beside one row whose masks take long.

    python3 tests/bench/slow_masks.py build/src/cli/minisgl tests/models/wren [TOKENS]

TOKENS (default 600) is the length of the plain answers. The row beside them goes on until the last of them has ended.
"""
import json
import subprocess
import sys
import tempfile
import time

SCHEMAS = {
    "multiples of 9973": {"type": "integer", "multipleOf": 9973},
    # Which letters are under way makes about 2^17 states, and a mask passes thousands.
    "two patterns": {"allOf": [{"type": "string", "pattern": "[a-m].{8}[a-m]"}, {"pattern": "[f-z].{9}[g-z]"}]},
}


def seconds(binary, model, schema, tokens):
    rows = [{"id": f"plain {i}", "prompt": f"Once upon a time {i}", "max_tokens": tokens, "min_tokens": tokens, "seed": i,
             "temperature": 1} for i in range(16)]
    if schema is not None:
        rows.insert(0, {"id": "slow", "prompt": "A text:", "max_tokens": 400, "temperature": 1, "seed": 3,
                        "structured_outputs": {"json": schema}})
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))
        file.flush()
        begin = time.monotonic()
        run = subprocess.Popen([binary, "run", "-f", file.name, "-m", model, "--raw", "-q", "--max-running-requests", "17"],
                               stdout=subprocess.PIPE, text=True)
        left = 16
        while left > 0:
            left -= json.loads(run.stdout.readline())["id"] != "slow"
        took = time.monotonic() - begin
        run.kill()
        run.wait()
    return took


def main():
    binary, model = sys.argv[1:3]
    tokens = int(sys.argv[3]) if len(sys.argv) > 3 else 600
    start = min(seconds(binary, model, None, 1) for _ in range(3))
    for name, schema in {"alone": None, **SCHEMAS}.items():
        took = min(seconds(binary, model, schema, tokens) for _ in range(3)) - start
        print(f"{name:20} {16 * tokens / took:8.0f} tokens/s", flush=True)


main()
