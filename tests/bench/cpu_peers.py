"""Whole models on the CPU against llama.cpp and transformers, on one machine in one run: runs in turn, medians, ratios.

    python3 tests/bench/cpu_peers.py [--minisgl FILE] [--work DIR] [--rounds 5] [--shapes NAME,...] [--shapes-dir DIR]
        [--formats bf16,int8,int4,q8_0,q4_0,q4_k_m,iq3_s] [--workloads NAME,...] [--threads 2] [--isa native|avx2] [--llama-bin DIR]
        [--transformers-python FILE] [--json FILE]

Installs the peers. llama.cpp: the source package of llama-cpp-python (below) carries llama.cpp; it is downloaded with
pip, its checksum is compared, and llama-bench and llama-batched-bench are built natively into --work (default:
minisgl-bench in the user's cache), with GGUF files of the same shapes beside them. --llama-bin takes another build.
--isa avx2 builds the peer for AVX2, FMA and F16C alone and gives this program --cpu-target avx2. transformers
(transformers_peer.py): an environment in --work with it and torch, by pip, for the workload of its name alone;
--transformers-python takes a Python that has both. Needs cmake, ninja, pip; Python's standard library alone. The shapes
are NAME.json in --shapes-dir (default: ../shared/shapes beside the project) or in tests/bench/shapes, which has three of
models with states (lfm2-1.2b, qwen3.5-0.8b, and 8 of the 40 layers of qwen3.6-35b-a3b, for formats of GGUF files).

Weights are made up on both sides: bf16 against BF16, --quantize int8 against Q8_0, --quantize int4 against Q4_0, both
with embedding and head in 8 bits; of the formats q8_0, q4_0, q4_k_m and iq3_s both read the same GGUF file. Prompts are random
token ids. On a processor with AMX llama.cpp multiplies quantized weights with --repack 0, without which it ends by a
fault in prompts.
Neither side's loading counts, except for notes and start. llama.cpp keeps keys and values in f16 (its default), this
program in its default type, in a cache as large as the work takes; both sides' cache was written before the
clock runs: the peer clears its own, this program's timed run follows another. This program samples greedily; the peer's
tools do not sample. If prompts are shared, the peer is measured with one KV buffer for all rows and with one for
each, and the faster counts. Every figure is the median over rounds (three of rows, scaling, spinner and transformers);
a ratio is of two medians, followed by the least and the largest of single rounds. All of it takes about an hour and a
half on two cores; --workloads and --shapes choose. A run that is ended (Ctrl-C, SIGTERM) prints what it has measured.

workload   rows of the table, and the goal: times the peer unless it says otherwise
prefill    pp512: tokens/s of a prompt of 512 tokens (goal 1: below)
decode     tg64, tg128: tokens/s of one row, 64 and 128 tokens after an empty (here 8-token) prompt (goal 2: below)
rows       8 rows / 1 row: tokens/s of decoding, 64 tokens after prompts of 16 (6 x one row)
shared     32 rows that share 512 tokens, 16 tokens each: tokens/s of decoding (3 x; in bf16 with AMX 6 x); and of all of it
scaling    pp512 with all threads, as a multiple of one thread (1.8 x one thread)
spinner    pp512 and tg32 beside a process that holds one core: times slower than without (at most 1.7 x)
transformers
           pp512, tg64: as in prefill and decode, in bf16, against transformers (with AMX 2 x for pp512)
notes      prompts/notes.jsonl on the demo model, the whole process, against llama-batched-bench -pps -npp 428 -ntg 16
           -npl 60 on a GGUF of its shape: its whole process, and what it counts itself (1 x)
start      from starting `minisgl run` to the first byte of an answer: the demo model (60 ms), TinyLlama's shape in
           bf16 safetensors with a warm page cache (2 s)

If the processor has AVX-512 with BF16, goal 1 is 1.2 x in bf16 and 2.2 x in int8, goal 2 1.05 x and 1.2 x; otherwise
1.5 x and 1.8 x, 1.3 x and 1.3 x. On a machine that does other work the figures mean little: llama.cpp's threads wait
for each other by spinning, so that it is slowed down much more than this program.
"""
import argparse
import contextlib
import hashlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import made_models

ROOT = Path(__file__).resolve().parents[2]
WREN = ROOT / "tests/models/wren"
SHAPES = ROOT / "tests/bench/shapes"
PEER = "llama-cpp-python==0.3.36"
PEER_ARCHIVE = "llama_cpp_python-0.3.36.tar.gz"
PEER_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
PEER_OPTIONS = ["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF",
                "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_SERVER=OFF", "-DLLAMA_BUILD_TOOLS=ON"]
PEER_ISA = {"native": ["-DGGML_NATIVE=ON"],
            "avx2": ["-DGGML_NATIVE=OFF",
                     *(f"-DGGML_{name}=ON" for name in ("SSE42", "AVX", "AVX2", "FMA", "F16C", "BMI2"))]}
TRANSFORMERS = ("torch==2.15.0", "transformers==5.24.0")
TORCH_AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
WORKLOADS = ("prefill", "decode", "rows", "shared", "scaling", "spinner", "transformers", "notes", "start")
FORMATS = {"bf16": "bf16", "int8": "q8_0", "int4": "q4_0",  # ours: the peer's file
           "q8_0": "q8_0", "q4_0": "q4_0", "q4_k_m": "q4_k_m", "iq3_s": "iq3_s"}  # the same file
SHARED_ROWS, SHARED_PREFIX, SHARED_OUT = 32, 512, 16
# Rounds of measurements that compare no single figure, or take long; the others take all rounds.
ROUNDS_MAX = {"rows": 3, "scaling": 3, "spinner": 3, "transformers": 3}
TIMEOUT_S = 300  # of one run: beside a spinner the peer may take minutes, and a lower rate is as good as none
LOST_OUTPUT_MAX = 8  # llama-batched-bench may end before its last line is written


def cache_folder():
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "minisgl-bench"


def say(text):
    print(text, file=sys.stderr, flush=True)


# --- the peer ---------------------------------------------------------------------------------------------------------


def logged(command, log):
    with open(log, "ab") as file:
        if subprocess.run(command, stdout=file, stderr=file).returncode != 0:
            raise SystemExit(f"{' '.join(map(str, command))} failed; see {log}")


def fetch_peer(work):
    """The unpacked sources of llama.cpp."""
    archive, log = work / PEER_ARCHIVE, work / "peer.log"
    if not archive.exists():
        say(f"downloading {PEER}")
        logged([sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "llama-cpp-python", "-d", str(work), PEER],
               log)
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != PEER_SHA256:
        raise SystemExit(f"{archive}: its sha256 is {found}, not {PEER_SHA256}")
    source = work / archive.name.removesuffix(".tar.gz") / "vendor/llama.cpp"
    if not (source / "CMakeLists.txt").exists():
        logged(["tar", "-xzf", str(archive), "-C", str(work)], log)
    return source


def build_peer(work, isa):
    """The folder of the peer's programs."""
    build, log = work / f"llama-{isa}", work / "peer.log"
    tools = ("llama-bench", "llama-batched-bench")
    if not all((build / "bin" / tool).exists() for tool in tools):
        source = fetch_peer(work)
        say(f"building {' and '.join(tools)} in {build}: some minutes")
        logged(["cmake", "-G", "Ninja", "-S", str(source), "-B", str(build), *PEER_OPTIONS, *PEER_ISA[isa]], log)
        logged(["cmake", "--build", str(build), "--target", *tools], log)
    return build / "bin"


def run_text(command, timeout=TIMEOUT_S, **more_environment):
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL, env={**os.environ, **more_environment})
    except OSError as error:
        raise SystemExit(f"{command[0]}: {error.strerror}") from None
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}: {done.stderr[-500:]}")
    return done.stdout


def has_tiles():
    return "amx_tile" in Path("/proc/cpuinfo").read_text()


class Peer:
    def __init__(self, folder):
        self.folder = folder
        self.has_tiles = has_tiles()

    def must_not_repack(self, model):
        return self.has_tiles and "bf16" not in Path(model).name

    def bench(self, model, threads, prompt=0, output=0):
        """Tokens/s by llama-bench, of one prompt or one answer; at most that where it does not end in time."""
        repack = ["--repack", 0] if self.must_not_repack(model) else []
        try:
            rows = json.loads(run_text([self.folder / "llama-bench", "-m", model, "-p", prompt, "-n", output, "-t",
                                        threads, "-r", 1, "-o", "json", *repack]))
        except subprocess.TimeoutExpired:
            say(f"llama-bench took more than {TIMEOUT_S} s")
            return (prompt + output) / TIMEOUT_S
        return rows[0]["avg_ts"]

    def batched(self, model, threads, prompt, output, rows, shared=False, unified=True):
        """The counts of llama-batched-bench for one batch, and seconds of the whole process."""
        context = prompt + rows * output if unified and shared else rows * (prompt + output)
        context = -(-context // (256 * (1 if unified else rows))) * 256 * (1 if unified else rows)
        command = [self.folder / "llama-batched-bench", "-m", model, "-npp", prompt, "-ntg", output, "-npl", rows, "-t",
                   threads, "-tb", threads, "-c", context, "--output-format", "jsonl", *(["-pps"] if shared else []),
                   *(["-kvu"] if unified else []), *(["--no-repack"] if self.must_not_repack(model) else [])]
        for _ in range(LOST_OUTPUT_MAX):
            begin = time.perf_counter()
            out = run_text(command)
            seconds = time.perf_counter() - begin
            for line in out.splitlines():
                if line.startswith("{"):
                    return json.loads(line), seconds
        raise SystemExit(f"{' '.join(map(str, command))} gave no figures in {LOST_OUTPUT_MAX} runs")


def make_transformers(work):
    """The Python of an environment that has TRANSFORMERS."""
    folder, log = work / "transformers", work / "peer.log"
    if not (folder / "complete").exists():
        say(f"installing {' and '.join(TRANSFORMERS)} in {folder}: some minutes")
        logged([sys.executable, "-m", "venv", folder], log)
        logged([folder / "bin/python", "-m", "pip", "install", *TRANSFORMERS], log)
        (folder / "complete").touch()
    return folder / "bin/python"


class Transformers:
    def __init__(self, python, isa):
        self.python, self.limits = python, TORCH_AVX2 if isa == "avx2" else {}
        names = "transformers.__version__ + ', torch', torch.__version__"
        self.version = run_text([python, "-c", f"import torch, transformers; print('transformers', {names})"]).strip()

    def rates(self, shape, threads, prompt, output):
        """Tokens/s of a prompt, and of an answer of one row."""
        script = ROOT / "tests/bench/transformers_peer.py"
        # It makes up its weights first.
        out = run_text([self.python, script, shape, threads, prompt, output], 3 * TIMEOUT_S, **self.limits)
        seconds = json.loads(out.splitlines()[-1])
        return prompt / seconds["prompt_s"], 1 / seconds["token_s"]


# --- this program -----------------------------------------------------------------------------------------------------


def pages_of(rows, shared, own):
    """Pages of 16 tokens for rows that share a prefix, and one more each, as the scheduler takes them ahead."""
    return -(-shared // 16) + rows * (-(-own // 16) + 1)


class Program:
    def __init__(self, binary, isa):
        self.binary = binary
        self.target = ["--cpu-target", "avx2"] if isa == "avx2" else []

    def options(self, command):
        return run_text([self.binary, *command, "--help-all"])

    def bench(self, what, model, threads, quantize, pages=None):
        """`model`: a shape, whose weights are made up, or a GGUF file. `pages`: what the workload takes of the cache, so that the timed run takes those of the run before it."""
        # A shape may not say its type.
        weights = ["-m", model] if model.suffix == ".gguf" else ["--shape", model, "--dummy-weights", "--dtype", "bf16"]
        # The ceilings that bench measures are not asked for: as small as they get.
        return json.loads(run_text([
            self.binary, "bench", *what, *weights, "--device", "cpu", "--threads", threads,
            "--repeat", 1, "--copy-mib", 1, "--matrix-size", 16, "--quiet", "--json", "-", *quantize, *self.target,
            *(["--num-pages", pages] if pages else [])]))

    def prefill(self, *model):
        figures = self.bench(["uniform", 1, 512, 1, "--temperature", 0], *model, pages=pages_of(1, 0, 513))
        return 512 / figures["median"]["seconds"]

    def decode(self, tokens, *model):
        figures = self.bench(["bs1", "--prompt-tokens", 8, "--output-tokens", tokens + 1], *model)
        return 1 / figures["result"]["mean_between_tokens_s"]

    def shared(self, rows, prefix, own, output, *model):
        """Tokens/s of decoding, and of the whole batch."""
        figures = self.bench(["shared", rows, prefix, own, output, "--temperature", 0], *model,
                             pages=pages_of(rows, prefix, own + output))
        return figures["decoding"]["tokens_per_s"], figures["median"]["output_tokens_per_s"]

    def notes(self, threads):
        """Seconds of the whole process."""
        with tempfile.TemporaryDirectory() as folder:
            begin = time.perf_counter()
            run_text([self.binary, "run", "-m", WREN, "--file", ROOT / "prompts/notes.jsonl", "-o",
                      Path(folder) / "answers.jsonl", "--quiet", "--device", "cpu", "--threads", threads, *self.target])
            return time.perf_counter() - begin

    def start(self, model, threads, raw):
        """Seconds from starting the process to the first byte of its answer."""
        command = [self.binary, "run", "-m", model, "-p", "Name three rivers.", "--max-tokens", 4, "--ignore-eos",
                   "--quiet", "--device", "cpu", "--threads", threads, *(["--raw"] if raw else []), *self.target]
        begin = time.perf_counter()
        with subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as run:
            first = os.read(run.stdout.fileno(), 1)
            seconds = time.perf_counter() - begin
            run.stdout.read()
        if run.returncode != 0 or not first:
            raise SystemExit(f"{' '.join(map(str, command))} ended with {run.returncode}")
        return seconds


@contextlib.contextmanager
def spinner():
    """A process that holds the last core of this process's."""
    core = max(os.sched_getaffinity(0))
    code = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        time.sleep(0.5)
        try:
            yield
        finally:
            process.kill()


# --- what is measured -------------------------------------------------------------------------------------------------


class Samples:
    """A list of every figure for each side, in the order of rounds."""

    def __init__(self):
        self.figures = {}

    def add(self, key, side, value):
        self.figures.setdefault(key, {"ours": [], "theirs": []})[side].append(value)

    def get(self, key, side):
        return self.figures.get(key, {}).get(side, [])


class ModelCase:
    """One shape in one format on both sides: `measure(workload, side)` gives {figure: value}."""

    def __init__(self, args, name, form, program, peer):
        self.args, self.name, self.form, self.program, self.peer = args, name, form, program, peer
        self.shape = args.shapes_dir / f"{name}.json"
        if not self.shape.exists():
            self.shape = SHAPES / f"{name}.json"
        self.gguf = args.work / f"{name}-{FORMATS[form]}.gguf"
        made_models.write_gguf(json.loads(self.shape.read_text()), FORMATS[form], self.gguf)
        self.quantize = ["--quantize", form] if form in ("int8", "int4") else []

    def ours(self, threads=None):
        model = self.gguf if self.form in ("q8_0", "q4_0", "q4_k_m", "iq3_s") else self.shape
        return model, threads or self.args.threads, self.quantize

    def measure(self, workload, side):
        return getattr(self, f"{workload}_{side}")()

    def prefill_ours(self):
        return {"pp512": self.program.prefill(*self.ours())}

    def prefill_theirs(self):
        return {"pp512": self.peer.bench(self.gguf, self.args.threads, prompt=512)}

    def decode_ours(self):
        return {f"tg{n}": self.program.decode(n, *self.ours()) for n in (64, 128)}

    def decode_theirs(self):
        return {f"tg{n}": self.peer.bench(self.gguf, self.args.threads, output=n) for n in (64, 128)}

    def rows_ours(self):
        return {f"rows{n}": self.program.shared(n, 8, 8, 65, *self.ours())[0] for n in (1, 8)}

    def rows_theirs(self):
        return {f"rows{n}": self.peer.batched(self.gguf, self.args.threads, 16, 64, n)[0]["speed_tg"] for n in (1, 8)}

    def shared_ours(self):
        decode, whole = self.program.shared(SHARED_ROWS, SHARED_PREFIX, 1, SHARED_OUT, *self.ours())
        return {"shared32": decode, "shared32 whole": whole}

    def shared_theirs(self):
        sizes = self.gguf, self.args.threads, SHARED_PREFIX, SHARED_OUT, SHARED_ROWS
        runs = [self.peer.batched(*sizes, shared=True, unified=unified)[0] for unified in (True, False)]
        return {"shared32": max(run["speed_tg"] for run in runs),
                "shared32 whole": max(SHARED_ROWS * SHARED_OUT / run["t"] for run in runs)}

    def scaling_ours(self):
        return {"pp512 all": self.program.prefill(*self.ours()), "pp512 one": self.program.prefill(*self.ours(1))}

    def scaling_theirs(self):
        return {"pp512 all": self.peer.bench(self.gguf, self.args.threads, prompt=512),
                "pp512 one": self.peer.bench(self.gguf, 1, prompt=512)}

    def spinner_ours(self):
        def both():
            return self.program.prefill(*self.ours()), self.program.decode(32, *self.ours())
        return self.beside(both)

    def spinner_theirs(self):
        def both():
            return (self.peer.bench(self.gguf, self.args.threads, prompt=512),
                    self.peer.bench(self.gguf, self.args.threads, output=32))
        return self.beside(both)

    def transformers_ours(self):
        return {"pp512": self.program.prefill(*self.ours()), "tg64": self.program.decode(64, *self.ours())}

    def transformers_theirs(self):
        prompt, answer = self.args.transformers.rates(self.shape, self.args.threads, 512, 64)
        return {"pp512": prompt, "tg64": answer}

    @staticmethod
    def beside(both):
        prefill, decode = both()
        with spinner():
            slow_prefill, slow_decode = both()
        return {"pp512 alone": prefill, "pp512 beside": slow_prefill, "tg32 alone": decode, "tg32 beside": slow_decode}


class DemoCase:
    """The demo model, and how soon a first token comes."""

    def __init__(self, args, program, peer):
        self.args, self.program, self.peer = args, program, peer
        self.gguf = made_models.write_gguf(json.loads((WREN / "config.json").read_text()), "bf16",
                                           args.work / "wren-bf16.gguf")
        self.large = None
        if "start" in args.workloads:
            config = json.loads((args.shapes_dir / "tinyllama-1.1b.json").read_text())
            self.large = made_models.write_model_dir(config, args.work / "tinyllama-1.1b")
            self.program.start(self.large, args.threads, raw=True)  # its pages are in the cache from here on

    def measure(self, workload, side):
        if workload == "start":
            return self.start_ours() if side == "ours" else {}
        if side == "ours":
            seconds = self.program.notes(self.args.threads)
            return {"process": seconds, "counted": seconds}
        runs = [self.peer.batched(self.gguf, self.args.threads, 428, 16, 60, shared=True, unified=unified)
                for unified in (True, False)]
        return {"process": min(seconds for _, seconds in runs), "counted": min(figures["t"] for figures, _ in runs)}

    def start_ours(self):
        return {"wren": self.program.start(WREN, self.args.threads, raw=False),
                "1.1b": self.program.start(self.large, self.args.threads, raw=True)}


def measure_all(args, cases, samples):
    for turn in range(args.rounds):
        for (name, form), case in cases.items():
            for workload in args.workloads:
                of_demo = workload in ("notes", "start")
                if of_demo != (name == "demo") or turn >= ROUNDS_MAX.get(workload, args.rounds):
                    continue
                if workload == "transformers" and form != "bf16":
                    continue
                begin = time.perf_counter()
                try:
                    sides = {side: case.measure(workload, side)
                             for side in (("ours", "theirs") if turn % 2 == 0 else ("theirs", "ours"))}
                except subprocess.TimeoutExpired as error:
                    say(f"{name} {form} {workload}, left out of round {turn + 1}: {error}")
                    continue
                for side, figures in sides.items():
                    for figure, value in figures.items():
                        samples.add((name, form, workload, figure), side, value)
                say(f"round {turn + 1} of {args.rounds}: {name} {form} {workload}, {time.perf_counter() - begin:.0f} s")


# --- the table --------------------------------------------------------------------------------------------------------


def goals(isa):
    if isa == "native" and "avx512_bf16" in Path("/proc/cpuinfo").read_text():
        return {("prefill", "bf16"): 1.2, ("prefill", "int8"): 2.2, ("prefill", "int4"): 2,
                ("decode", "bf16"): 1.05, ("decode", "int8"): 1.2, ("decode", "int4"): 1.05,
                ("transformers", "bf16"): 2 if has_tiles() else None}
    return {("prefill", "bf16"): 1.5, ("prefill", "int8"): 1.8, ("prefill", "int4"): 1.3,
            ("decode", "bf16"): 1.3, ("decode", "int8"): 1.3, ("decode", "int4"): 1.05}


def spread(values, digits):
    if not values:
        return "-"
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def verdict(value, goal, at_most=False):
    if goal is None or value is None:
        return ""
    met = value <= goal if at_most else value >= goal
    return f"{'<=' if at_most else '>='} {goal:g}: {'met' if met else 'not met'}"


class Table:
    def __init__(self, samples):
        self.samples, self.rows = samples, []

    def against(self, key, label, goal=None, lower=False, digits=1):
        """A figure of both sides; the ratio says how many times better ours is."""
        ours, theirs = self.samples.get(key, "ours"), self.samples.get(key, "theirs")
        if not ours or not theirs:
            return
        def better(a, b):
            return b / a if lower else a / b
        ratio = better(statistics.median(ours), statistics.median(theirs))
        single = [better(a, b) for a, b in zip(ours, theirs)]
        self.rows.append((key[0], key[1], label, spread(ours, digits), spread(theirs, digits),
                          f"{ratio:.2f} ({min(single):.2f}..{max(single):.2f})", verdict(ratio, goal)))

    def within(self, over, under, label, goal, at_most=False):
        """A ratio of two figures of one side, for each side."""
        texts, median = [], None
        for side in ("ours", "theirs"):
            values = [a / b for a, b in zip(self.samples.get(over, side), self.samples.get(under, side))]
            if side == "ours" and values:
                median = statistics.median(values)
            texts.append(spread(values, 2))
        if median is not None:
            self.rows.append((over[0], over[1], label, *texts, "", verdict(median, goal, at_most)))

    def alone(self, key, label, goal):
        values = self.samples.get(key, "ours")
        if values:
            self.rows.append((key[0], key[1], label, spread(values, 3), "-", "",
                              verdict(statistics.median(values), goal, True)))

    def print(self):
        head = ("shape", "format", "figure", "minisgl", "peer", "times better", "goal")
        widths = [max(len(row[i]) for row in [head, *self.rows]) for i in range(len(head))]
        for row in [head, tuple("-" * width for width in widths), *self.rows]:
            print("| " + " | ".join(text.ljust(width) for text, width in zip(row, widths)) + " |")


def make_table(samples, names, isa):
    table, goal = Table(samples), goals(isa)
    for name, form in names:
        def key(workload, figure, name=name, form=form):
            return name, form, workload, figure
        table.against(key("prefill", "pp512"), "pp512, tok/s", goal.get(("prefill", form)))
        for n in (64, 128):
            table.against(key("decode", f"tg{n}"), f"tg{n}, tok/s", goal.get(("decode", form)))
        for n in (1, 8):
            table.against(key("rows", f"rows{n}"), f"{n} rows decode, tok/s")
        table.within(key("rows", "rows8"), key("rows", "rows1"), "8 rows / 1 row", 6 if form == "bf16" else None)
        table.against(key("shared", "shared32"), "32 rows share 512: decode, tok/s",
                      6 if form == "bf16" and isa == "native" and has_tiles() else 3)
        table.against(key("shared", "shared32 whole"), "32 rows share 512: all, tok/s")
        table.within(key("scaling", "pp512 all"), key("scaling", "pp512 one"), "pp512 all threads / 1", 1.8)
        for figure in ("pp512", "tg32"):
            table.within(key("spinner", f"{figure} alone"), key("spinner", f"{figure} beside"),
                         f"{figure} times slower beside", 1.7, at_most=True)
        table.against(key("transformers", "pp512"), "pp512 beside transformers, tok/s", goal.get(("transformers", form)))
        table.against(key("transformers", "tg64"), "tg64 beside transformers, tok/s")
        table.against(key("notes", "process"), "notes, whole process, s", 1, lower=True, digits=3)
        table.against(key("notes", "counted"), "notes against its own count, s", 1, lower=True, digits=3)
        table.alone(key("start", "wren"), "start to first byte, wren, s", 0.06)
        table.alone(key("start", "1.1b"), "start to first byte, 1.1B, s", 2)
    return table


# --- the command line -------------------------------------------------------------------------------------------------


def list_of(known):
    def parse(text):
        names = text.split(",")
        for name in names:
            if known and name not in known:
                raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(known)}")
        return names
    return parse


def parse_options():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--minisgl", type=Path, default=ROOT / "build/src/cli/minisgl")
    parser.add_argument("--work", type=Path, default=cache_folder())
    parser.add_argument("--llama-bin", type=Path)
    parser.add_argument("--transformers-python", type=Path)
    parser.add_argument("--isa", choices=sorted(PEER_ISA), default="native")
    parser.add_argument("--shapes-dir", type=Path, default=ROOT.parent / "shared/shapes")
    parser.add_argument("--shapes", type=list_of(()), default=["qwen3-0.6b", "llama-3.2-1b"])
    parser.add_argument("--formats", type=list_of(FORMATS), default=list(FORMATS))
    parser.add_argument("--workloads", type=list_of(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def describe(args, program, folder):
    head = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True)
    version = subprocess.run([folder / "llama-bench", "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True)
    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), "unknown")
    peer = f"{PEER}, sha256 {PEER_SHA256[:16]}..., {args.isa}" if args.llama_bin is None else f"the build in {folder}"
    lines = [f"minisgl: {run_text([program.binary, '--version']).strip()} ({head.stdout.strip() or 'no git'})",
             f"llama.cpp: {peer}; {version.stdout.splitlines()[0] if version.stdout else 'no version'}",
             *([args.transformers.version] if args.transformers else []),
             f"processor: {model}, {len(os.sched_getaffinity(0))} cores, {args.threads} threads",
             f"load before: {os.getloadavg()[0]:.2f}"]
    print("\n".join(lines), flush=True)
    return lines


def main():
    args = parse_options()
    args.work.mkdir(parents=True, exist_ok=True)
    program = Program(args.minisgl, args.isa)
    folder = args.llama_bin or build_peer(args.work, args.isa)
    peer = Peer(folder)
    args.transformers = None
    if "transformers" in args.workloads:
        args.transformers = Transformers(args.transformers_python or make_transformers(args.work), args.isa)
    lines = describe(args, program, folder)
    if "int8" in args.formats and "--quantize" not in program.options(["bench", "uniform"]):
        say("int8 is passed over: this program has no --quantize")
        args.formats.remove("int8")
    cases = {}
    if set(args.workloads) - {"notes", "start"}:
        for name in args.shapes:
            for form in args.formats:
                cases[name, form] = ModelCase(args, name, form, program, peer)
    if set(args.workloads) & {"notes", "start"}:
        cases["demo", "bf16"] = DemoCase(args, program, peer)
    samples = Samples()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        measure_all(args, cases, samples)
    finally:  # an interrupted run shows its measurements
        make_table(samples, cases, args.isa).print()
        print(f"load after: {os.getloadavg()[0]:.2f}")
        if args.json:
            figures = [{"shape": key[0], "format": key[1], "workload": key[2], "figure": key[3], **sides}
                       for key, sides in samples.figures.items()]
            args.json.write_text(json.dumps({"about": lines, "figures": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
