"""Vectors of 1,000 texts of 10 to 300 tokens: `minisgl embed` beside sentence-transformers and llama.cpp, in turns, on the CPU.

    python3 tests/bench/embed_peer.py MINISGL MODEL_DIR [--gguf FILE] [--rows 1000] [--rounds 3] [--threads 2]

MODEL_DIR is a model of sentence-transformers, as all-MiniLM-L6-v2 is, or as make_embed_model.py makes one of a shape. FILE is
the same model as llama.cpp's convert_hf_to_gguf.py makes it, for the package llama-cpp-python; without it that peer is left out.
Prints for each round the seconds and the processor seconds of each, without loading, how often the seconds of the better peer
are those of minisgl, and the largest differences of a vector, and first the load of the machine. Other work on it changes the
seconds of all; the processor seconds less.
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


class SentenceTransformers:
    """torch, in f32 unless `dtype` says otherwise."""
    name = "sentence-transformers"

    def __init__(self, options):
        import torch
        from sentence_transformers import SentenceTransformer
        torch.set_num_threads(options.threads)
        self.model = SentenceTransformer(options.model, device="cpu", model_kwargs={"torch_dtype": getattr(torch, options.dtype)})

    def vectors(self, texts):
        return self.model.encode(texts, batch_size=32)


class LlamaCpp:
    name = "llama.cpp"

    def __init__(self, options):
        import llama_cpp
        self.model = llama_cpp.Llama(options.gguf, embedding=True, n_ctx=4096, n_batch=4096, n_ubatch=4096, verbose=False,
                                     n_threads=options.threads, n_threads_batch=options.threads)

    def vectors(self, texts):
        return self.model.embed(texts, normalize=True)


def timed(peer, texts):
    begin, used = time.perf_counter(), time.process_time()
    vectors = peer.vectors(texts)
    return time.perf_counter() - begin, time.process_time() - used, vectors


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("minisgl")
    parser.add_argument("model")
    parser.add_argument("--gguf")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--dtype", default="float32", help="of sentence-transformers")
    options = parser.parse_args()
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(os.path.join(options.model, "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    texts = make_texts(tokenizer, options.rows)
    peers = [SentenceTransformers(options)] + ([LlamaCpp(options)] if options.gguf else [])
    for peer in peers:
        peer.vectors(texts[:32])
    print(f"load {', '.join(f'{load:.1f}' for load in os.getloadavg())}", flush=True)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as rows:
        for text in texts:
            rows.write(json.dumps({"text": text}) + "\n")
        rows.flush()
        for number in range(options.rounds):
            found = [(peer.name, *timed(peer, texts)) for peer in peers]
            own, own_used, vectors = run_minisgl(options.minisgl, options.model, rows.name, options.threads)
            parts = [f"minisgl {own:.1f} s ({own_used:.1f} s of processors)"]
            for name, seconds, used, others in found:
                worst = max(abs(a - float(b)) for x, y in zip(vectors, others) for a, b in zip(x, y))
                parts.append(f"{name} {seconds:.1f} s ({used:.1f} s), differs by {worst:.1e}")
            best, best_used = min(seconds for _, seconds, _, _ in found), min(used for _, _, used, _ in found)
            print(f"round {number}: {'; '.join(parts)}: {best / own:.2f} times ({best_used / own_used:.2f})", flush=True)


main()
