"""Vectors of 1,000 texts of 10 to 300 tokens: `minisgl embed` beside sentence-transformers, in turns, on the CPU.

    python3 tests/bench/embed_peer.py MINISGL MODEL_DIR [--rows 1000] [--rounds 3] [--threads 2]

MODEL_DIR is a model of sentence-transformers, as all-MiniLM-L6-v2 is. Prints for each round the seconds and the processor
seconds of both, without loading, and the largest difference of a vector. Other work on the machine changes the seconds of
both; the processor seconds less.
"""
import argparse
import json
import os
import random
import resource
import subprocess
import tempfile
import time

WORDS = ("time year people way day man thing woman life child world school state family student group country problem hand "
         "part place case week company system program question work government number night point home water room mother "
         "area money story fact month lot right study book eye job word business issue side kind head house service friend "
         "internationally unbelievable characteristics misunderstanding photosynthesis").split()


def make_texts(tokenizer, count):
    draw = random.Random(5)
    texts = []
    for _ in range(count):
        length = draw.randint(10, 300)
        words = [draw.choice(WORDS) for _ in range(length)]
        while len(tokenizer.encode(" ".join(words)).ids) > length:
            words.pop()
        texts.append(" ".join(words))
    return texts


def run_minisgl(program, model, path, threads):
    """Seconds, processor seconds, vectors. Loading is what a run of one text takes."""
    def once(file):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.perf_counter()
        done = subprocess.run([program, "embed", "-m", model, "--device", "cpu", "--threads", str(threads), "-q", "--file", file],
                              capture_output=True, text=True, check=True)
        seconds = time.perf_counter() - begin
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return seconds, used, done.stdout
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as one:
        one.write('"a"\n')
        one.flush()
        load = once(one.name)
    whole = once(path)
    vectors = [json.loads(line)["embedding"] for line in whole[2].splitlines()]
    return whole[0] - load[0], whole[1] - load[1], vectors


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("minisgl")
    parser.add_argument("model")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    import torch
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer
    torch.set_num_threads(options.threads)
    tokenizer = Tokenizer.from_file(os.path.join(options.model, "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    texts = make_texts(tokenizer, options.rows)
    peer = SentenceTransformer(options.model, device="cpu")
    peer.encode(texts[:32])
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as rows:
        for text in texts:
            rows.write(json.dumps({"text": text}) + "\n")
        rows.flush()
        for number in range(options.rounds):
            begin, used = time.perf_counter(), time.process_time()
            wanted = peer.encode(texts, batch_size=32)
            seconds, used = time.perf_counter() - begin, time.process_time() - used
            own, own_used, found = run_minisgl(options.minisgl, options.model, rows.name, options.threads)
            worst = max(abs(a - float(b)) for x, y in zip(found, wanted) for a, b in zip(x, y))
            print(f"round {number}: sentence-transformers {seconds:.1f} s ({used:.1f} s of processors), minisgl {own:.1f} s "
                  f"({own_used:.1f} s): {seconds / own:.2f} times ({used / own_used:.2f}); largest difference {worst:.1e}",
                  flush=True)


main()
