"""Prints the resources of every instance of every CUDA kernel as a table: registers, shared memory, stack, spills.

    python3 tests/bench/kernel_resources.py [--arch sm_90a] [--cuobjdump PATH] [NAME...]

Compiles cuda/kernels/*.cu (or those named) with nvcc for one architecture and reads what ptxas reports. With a
cuobjdump (part of the CUDA toolkit and of PyPI's triton) it also counts instructions: 16-byte loads from memory,
asynchronous 16-byte copies, matrix loads from shared memory, tensor-core products, local-memory accesses. Exits with 1 if
a kernel spills.
"""
import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/gpu_code"))
from code_object import readable_names  # noqa: E402

COUNTED = [("16-byte loads", r"\bLDG\.E(?:\.\w+)*\.128"), ("16-byte copies", r"\bLDGSTS(?:\.\w+)*\.128"),
           ("matrix loads", r"\bLDSM\b"), ("tensor products", r"\bHMMA\b"), ("local", r"\b(?:LDL|STL)\b")]


def compile_one(source, arch, out):
    virtual = arch.replace("sm_", "compute_")
    command = ["nvcc", "-std=c++20", "-O3", "-DNDEBUG", "--expt-relaxed-constexpr", f"-gencode=arch={virtual},code={arch}",
               "-I", str(ROOT / "cuda"), "-I", str(ROOT / "include"), "-Xptxas", "-v", "-c", str(source), "-o", str(out)]
    run = subprocess.run(command, text=True, capture_output=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    return run.stderr


def parse(report):
    """(mangled name, registers, stack, spill stores, spill loads, static shared bytes) of each kernel."""
    name, stack, stores, loads = None, 0, 0, 0
    for line in report.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            name = match[1]
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            stack, stores, loads = map(int, match.groups())
        elif (match := re.search(r"Used (\d+) registers", line)) and name:
            shared = re.search(r"(\d+) bytes smem", line)
            yield name, int(match[1]), stack, stores, loads, int(shared[1]) if shared else 0
            name = None


def instructions(cuobjdump, binary):
    """Counts of COUNTED by mangled name."""
    text = subprocess.run([cuobjdump, "--dump-sass", str(binary)], text=True, capture_output=True, check=True).stdout
    counts = {}
    for part in text.split("Function : ")[1:]:
        name, body = part.split("\n", 1)
        counts[name.strip()] = [len(re.findall(pattern, body)) for _, pattern in COUNTED]
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--cuobjdump")
    parser.add_argument("names", nargs="*", help="of files in cuda/kernels, without .cu (default: all)")
    options = parser.parse_args()
    header = ["kernel", "registers", "stack", "spills"] + ([title for title, _ in COUNTED] if options.cuobjdump else [])
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    spilled = 0
    with tempfile.TemporaryDirectory() as folder:
        for source in sorted((ROOT / "cuda" / "kernels").glob("*.cu")):
            if options.names and source.stem not in options.names:
                continue
            out = Path(folder) / (source.stem + ".o")
            rows = sorted(parse(compile_one(source, options.arch, out)))
            counts = instructions(options.cuobjdump, out) if options.cuobjdump else {}
            names = readable_names(row[0] for row in rows)
            for row in rows:
                mangled, registers, stack, stores, loads, _ = row
                spilled += stores + loads > 0
                cells = [f"`{names[mangled]}`", registers, stack, stores + loads] + counts.get(mangled, [])
                print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)
    return 1 if spilled else 0


if __name__ == "__main__":
    sys.exit(main())
