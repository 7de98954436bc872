"""Vectors of 1,000 texts of 10 to 300 tokens: `minisgl embed` beside sentence-transformers and llama.cpp, in turns, on the CPU.

    python3 tests/bench/embed_peer.py MINISGL MODEL_DIR [--gguf FILE] [--rows 1000] [--rounds 3] [--threads 2]
    python3 tests/bench/embed_peer.py MINISGL tests/bench/shapes/qwen3-0.6b.json --work FOLDER [...]

MODEL_DIR is a model of sentence-transformers, as all-MiniLM-L6-v2 is. FILE is the same model as llama.cpp's
convert_hf_to_gguf.py makes it, for the package llama-cpp-python; without it that peer is left out. Of a shape (Qwen3-Embedding-0.6B
has that of Qwen3-0.6B) a GGUF file in bf16 is made up in FOLDER, which minisgl and llama.cpp read, and a directory for
transformers, which gets the same numbers of tokens, sorted and in batches as sentence-transformers makes them.
Prints for each round the seconds and the processor seconds of each, without loading, how often the seconds of the better peer
are those of minisgl, and the largest differences of a vector, and first the load of the machine. Other work on it changes the
seconds of all; the processor seconds less.
"""
import argparse
import json
import os
import pathlib
import random
import resource
import subprocess
import tempfile
import time

import made_models

WORDS = ("time year people way day man thing woman life child world school state family student group country problem hand "
         "part place case week company system program question work government number night point home water room mother "
         "area money story fact month lot right study book eye job word business issue side kind head house service friend "
         "internationally unbelievable characteristics misunderstanding photosynthesis").split()


def make_texts(count_tokens, count):
    draw = random.Random(5)
    texts = []
    for _ in range(count):
        length = draw.randint(10, 300)
        words = [draw.choice(WORDS) for _ in range(length)]
        while len(words) > 1 and (found := count_tokens(" ".join(words))) > length:
            del words[max(1, len(words) * length // found - 1):]  # few steps, also if words have many tokens
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


class Transformers:
    """The model of a shape, whose tokens are made up: only their numbers count."""
    name = "transformers"

    def __init__(self, options, count_tokens):
        import torch
        from transformers import AutoModel
        torch.set_num_threads(options.threads)
        self.count_tokens = count_tokens
        self.model = AutoModel.from_pretrained(options.model, dtype=getattr(torch, options.dtype)).eval()

    def vectors(self, texts):
        import torch
        lengths = sorted((self.count_tokens(text) for text in texts), reverse=True)
        with torch.inference_mode():
            for first in range(0, len(lengths), 32):
                batch = lengths[first:first + 32]
                mask = torch.tensor([[1] * n + [0] * (batch[0] - n) for n in batch])
                self.model(input_ids=torch.full_like(mask, 300), attention_mask=mask)
        return None


class LlamaCpp:
    """In batches of at most 512 tokens: in larger ones every token of a batch is multiplied with every other."""
    name = "llama.cpp"

    def __init__(self, options):
        import llama_cpp
        self.model = llama_cpp.Llama(options.gguf, embedding=True, n_ctx=512, n_batch=512, n_ubatch=512, verbose=False,
                                     n_threads=options.threads, n_threads_batch=options.threads)

    def count_tokens(self, text):
        return len(self.model.tokenize(text.encode(), add_bos=False))

    def vectors(self, texts):
        return self.model.embed(texts, normalize=True)


def timed(peer, texts):
    begin, used = time.perf_counter(), time.process_time()
    vectors = peer.vectors(texts)
    return time.perf_counter() - begin, time.process_time() - used, vectors


def make_peers(options):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(os.path.join(options.model, "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    options.count_tokens, options.own = lambda text: len(tokenizer.encode(text).ids), options.model
    return [SentenceTransformers(options)] + ([LlamaCpp(options)] if options.gguf else [])


def make_shape(options):
    path = pathlib.Path(options.model)
    config, work = json.loads(path.read_text()), pathlib.Path(options.work)
    last = {f"{config['model_type']}.pooling_type": (made_models.GGUF_UINT32, 3)}
    options.model = str(made_models.write_model_dir(config, work / path.stem))
    options.gguf = str(made_models.write_gguf(config, "bf16", work / f"{path.stem}-embed.gguf", with_tokenizer=True, more=last))
    peer = LlamaCpp(options)
    options.count_tokens, options.own = peer.count_tokens, options.gguf
    return [Transformers(options, peer.count_tokens), peer]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("minisgl")
    parser.add_argument("model")
    parser.add_argument("--gguf")
    parser.add_argument("--work", help="folder of the models of a shape")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--dtype", default="float32", help="of sentence-transformers")
    options = parser.parse_args()
    peers = make_shape(options) if options.model.endswith(".json") else make_peers(options)
    texts = make_texts(options.count_tokens, options.rows)
    for peer in peers:
        peer.vectors(texts[:32])
    print(f"load {', '.join(f'{load:.1f}' for load in os.getloadavg())}", flush=True)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as rows:
        for text in texts:
            rows.write(json.dumps({"text": text}) + "\n")
        rows.flush()
        for number in range(options.rounds):
            found = [(peer.name, *timed(peer, texts)) for peer in peers]
            own, own_used, vectors = run_minisgl(options.minisgl, options.own, rows.name, options.threads)
            parts = [f"minisgl {own:.1f} s ({own_used:.1f} s of processors)"]
            for name, seconds, used, others in found:
                parts.append(f"{name} {seconds:.1f} s ({used:.1f} s)")
                if others is not None:
                    worst = max(abs(a - float(b)) for x, y in zip(vectors, others) for a, b in zip(x, y))
                    parts[-1] += f", differs by {worst:.1e}"
            best, best_used = min(seconds for _, seconds, _, _ in found), min(used for _, _, used, _ in found)
            print(f"round {number}: {'; '.join(parts)}: {best / own:.2f} times ({best_used / own_used:.2f})", flush=True)


main()
