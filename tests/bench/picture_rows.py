"""Rows of text beside rows with pictures on the CPU, and what a picture takes of memory.

    PYTHON tests/bench/picture_rows.py [--minisgl FILE] [--work DIR] [--side 448] [--rounds 3] [--threads 2] [--shared DIR]

PYTHON and the model are those of image_peers.py. Rows of text alone, rows with pictures alone, and both in one file are run in
turns. The two kinds share the processor, so that text keeps its rate if both together take no longer than one after the other:
the ratio says how much longer they take (limit 1.1). Then one row with a picture and one without: the greatest resident memory
of each, and their difference. Prints the lines of a table.
"""
import argparse
import json
import resource
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from image_peers import QUESTION, make_model, make_picture  # noqa: E402

TEXT_ROWS, TEXT_TOKENS, PICTURE_ROWS = 32, 64, 6


def text_row(i):
    return {"id": f"text {i}", "messages": [{"role": "user", "content": f"Write about the number {i} and about rivers."}],
            "max_tokens": TEXT_TOKENS, "ignore_eos": True}


def picture_row(i, picture):
    parts = [{"type": "image", "image": str(picture)}, {"type": "text", "text": QUESTION}]
    return {"id": f"picture {i}", "messages": [{"role": "user", "content": parts}], "max_tokens": 4, "ignore_eos": True}


def run(arguments, folder, rows):
    """Seconds of the run, and the greatest resident bytes of its process."""
    file, summary = arguments.work / "rows.jsonl", arguments.work / "summary.json"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary.unlink(missing_ok=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    subprocess.run([arguments.minisgl, "run", "-m", folder, "--file", file, "--threads", str(arguments.threads), "--device",
                    "cpu", "--num-pages", "1000", "--temperature", "0", "--summary", summary, "--quiet"],
                   check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return json.loads(summary.read_text())["seconds"], after * 1024 if after > before else None


def main():
    root = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minisgl", type=Path, default=root / "build/src/cli/minisgl")
    parser.add_argument("--work", type=Path, default=Path.home() / ".cache/minisgl-bench/images")
    parser.add_argument("--shared", type=Path, default=root / "../shared/models/vision")
    parser.add_argument("--side", type=int, default=448)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    folder = arguments.work / "model"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "model.safetensors").exists():
        make_model(folder, arguments.shared)
    pictures = []
    for i in range(PICTURE_ROWS):
        pictures.append(arguments.work / f"{arguments.side + 32 * i}.png")
        make_picture(pictures[-1], arguments.side + 32 * i)
    texts = [text_row(i) for i in range(TEXT_ROWS)]
    shown = [picture_row(i, picture) for i, picture in enumerate(pictures)]
    mixed = [row for i in range(TEXT_ROWS) for row in [texts[i], *shown[i:i + 1]]]
    # Memory first: the greatest of all children so far is what the system tells.
    small, large = (run(arguments, folder, rows)[1] for rows in ([texts[0]], [shown[-1]]))
    seconds = {"text": [], "pictures": [], "both": []}
    for _ in range(arguments.rounds):
        for name, rows in (("text", texts), ("pictures", shown), ("both", mixed)):
            seconds[name].append(run(arguments, folder, rows)[0])
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    print(f"{TEXT_ROWS} rows of {TEXT_TOKENS} tokens, {PICTURE_ROWS} pictures of {arguments.side} to "
          f"{arguments.side + 32 * (PICTURE_ROWS - 1)} a side, {arguments.threads} threads, {arguments.rounds} rounds")
    for name, value in middle.items():
        print(f"{name:9} {value:7.2f} s ({min(seconds[name]):.2f} to {max(seconds[name]):.2f})")
    print(f"ratio     {middle['both'] / (middle['text'] + middle['pictures']):7.3f}")
    if small and large:
        print(f"memory    {small / 2**20:.0f} MiB for a row of text, {large / 2**20:.0f} MiB with the largest picture")


if __name__ == "__main__":
    main()
