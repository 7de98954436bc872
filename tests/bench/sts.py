"""The figure of the STS benchmark: how the cosines of a model's vectors follow the scores that people gave to pairs of sentences
(Spearman's rank correlation), by `minisgl embed` and by sentence-transformers.

    python3 tests/bench/sts.py MINISGL MODEL_DIR PAIRS.csv      # rows of two sentences and a score

PAIRS.csv: as stsb-en-test.csv of the repository PhilipMay/stsb-multi-mt. Needs sentence-transformers and scipy.
"""
import csv
import json
import subprocess
import sys

import numpy
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer


def cosines(vectors, count):
    vectors = vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors[:count] * vectors[count:]).sum(axis=1)


def main():
    program, model, pairs = sys.argv[1:]
    with open(pairs, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    texts = [row[0] for row in rows] + [row[1] for row in rows]
    scores = [float(row[2]) for row in rows]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    done = subprocess.run([program, "embed", "-q", "-m", model, "--file", "-", "--device", "cpu"], input=lines, capture_output=True,
                          text=True, check=True)
    own = numpy.array([json.loads(line)["embedding"] for line in done.stdout.splitlines()])
    peer = SentenceTransformer(model, device="cpu").encode(texts, batch_size=32).astype(float)
    for name, vectors in (("minisgl", own), ("sentence-transformers", peer)):
        print(f"{name}: {100 * spearmanr(cosines(vectors, len(rows)), scores).statistic:.3f} of {len(rows)} pairs")
    least = min(float((a * b).sum() / numpy.linalg.norm(a) / numpy.linalg.norm(b)) for a, b in zip(own, peer))
    print(f"largest difference {abs(own - peer).max():.1e}, least cosine {least:.7f}")


main()
