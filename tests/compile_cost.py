"""Holds what the README's first command has to compile against a budget. Prints TAP.

    python3 tests/compile_cost.py BUILD_FOLDER

BUILD_FOLDER is a release build with the CPU kernels of all instruction sets. Time is noisy; what it is spent on is not: the compiler's
time for a room follows the code that it makes of it, instances of templates and copies for each instruction set included. So the bytes
of the functions in the objects of each room are added up. A room that grows past its budget by intention gets a new one here, with the
sum in mind. The demo's build has one instruction set and the fallback: the largest set counts, and the fallback. The job-seconds in
ninja's log are printed for information.
"""
import pathlib
import re
import subprocess
import sys

BUILD = pathlib.Path(sys.argv[1])
SETS = ("AVX3_DL", "AVX3", "AVX2", "SSE4", "SCALAR", "EMU128")

# Upper bounds in KiB, a tenth above the sizes when they were written.
BUDGET = {
    "base": 172, "batch": 900, "bench": 220,
    "chat": 375, "cpu": 640, "engine": 570, "gguf": 73, "grammar": 730, "hub": 102, "kv": 58, "load": 565,
    "model": 560, "plan": 34, "report": 82, "runtime": 280, "sched": 240, "store": 85, "tensor": 108, "term": 77,
    "text": 1120, "vision": 92, "weights": 945, "cli": 510, "kernels, largest set": 750, "kernels, fallback": 197,
}


def functions(library):
    """Yields (object, mangled name, bytes) of each function that the objects of a static library define."""
    done = subprocess.run(["nm", "-A", "--defined-only", "--print-size", str(library)], capture_output=True, text=True, check=True)
    for member, size, name in re.findall(r"^(\S+):[0-9a-f]+ ([0-9a-f]+) [tTwW] (\S+)", done.stdout, re.M):
        yield member, name, int(size, 16)


def set_of(name):
    found = re.search(r"\dN_(" + "|".join(SETS) + ")", name)
    return found[1] if found else ""


def largest_set(of_object):
    """The bytes of the instruction set with most of them. Processors with AVX3_DL run AVX3 in the files that have no other."""
    avx512 = sum(of_set["AVX3_DL"] or of_set["AVX3"] for of_set in of_object.values())
    return max(avx512, *(sum(of_set[name] for of_set in of_object.values()) for name in ("AVX2", "SSE4")))


def kib_of_rooms():
    rooms, of_object = {}, {}
    for library in sorted(BUILD.glob("libminisgl_*.a")) + sorted(BUILD.glob("src/cli/libminisgl_*.a")):
        room = library.stem.split("_")[1]
        for member, name, size in functions(library):
            if set_of(name):
                of_object.setdefault(member, dict.fromkeys(SETS, 0))[set_of(name)] += size
            else:
                rooms[room] = rooms.get(room, 0) + size
    rooms["kernels, largest set"] = largest_set(of_object)
    rooms["kernels, fallback"] = sum(of_set["SCALAR"] + of_set["EMU128"] for of_set in of_object.values())
    return {room: size // 1024 for room, size in rooms.items()}


def job_seconds():
    ends = {}
    for line in (BUILD / ".ninja_log").read_text().splitlines()[1:]:
        begin, end, _, output, _ = line.split("\t")
        if re.match(r"(src/cli/)?libminisgl_", output) and output.endswith(".o"):
            ends[output] = (int(end) - int(begin)) / 1000
    return sum(ends.values())


def main():
    compiler = subprocess.run(["c++", "-dumpversion"], capture_output=True, text=True).stdout
    rooms = kib_of_rooms()
    print(f"1..{len(rooms)}")
    print(f"# {job_seconds():.0f} job-seconds for the objects of the program; {sum(rooms.values())} KiB of code count")
    for number, (room, kib) in enumerate(rooms.items(), 1):
        if not compiler.startswith("12"):
            print(f"ok {number} - {room} # SKIP the budget is that of GCC 12")
            continue
        bound = BUDGET.get(room, 0)
        if kib > bound:
            print(f"# {room}: {kib} KiB of code to compile, budget {bound}: find what has grown, or raise it in tests/compile_cost.py")
        print(f"{'ok' if kib <= bound else 'not ok'} {number} - {room}")


main()
