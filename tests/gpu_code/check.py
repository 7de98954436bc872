"""Checks the GPU code of a build, as TAP: rules of rules.py, and costs against costs.json.

    python3 tests/gpu_code/check.py SOURCE_ROOT [--toolkit RELEASE] [--renew] [OBJECT...]

OBJECT: nvcc's output for each file of cuda/kernels, not compressed (meson's -Dgpu_compress=false). Without any, every case is
skipped. Checked are the machine code for compute capability 9.0, if the build has it, and the PTX, which is for the build's last
architecture.
--renew: writes the costs of this build to costs.json, as those of its toolkit.
"""
import argparse
import json
import re
import sys
from pathlib import Path

import code_object
import costs
import layout
import ptx
import rules

FIGURES = Path(__file__).resolve().parent / "costs.json"
SM90 = 90


class Skipped(Exception):
    """A case that this build cannot check; says why."""


class Code:
    """The code of all objects: entries (PTX), resources and costs by name of the kernel."""

    def __init__(self, root, objects):
        if not objects:
            raise Skipped("this build has no GPU code (no nvcc)")
        texts, cubins = [], []
        for path in objects:
            for kind, arch, contents in code_object.images(path):
                if kind == code_object.PTX and arch >= SM90:
                    texts.append(code_object.ptx_text(contents))
                elif kind == code_object.CUBIN and arch == SM90:
                    cubins.append(contents)
        if not texts:
            raise Skipped("the build's PTX is for compute capability 8")
        modules = [list(ptx.entries(text)) for text in texts]
        used = [code_object.resources(cubin) for cubin in cubins]
        mangled = {entry.name for module in modules for entry in module} | {name for part in used for name in part}
        self.names = code_object.readable_names(sorted(mangled))
        self.entries = {self.names[entry.name]: entry for module in modules for entry in module}
        self.resources = {self.names[name]: numbers for part in used for name, numbers in part.items()}
        # Instances for f16 cost what those for bf16 do.
        self.costs = {self.names[name]: found for cubin in cubins for name, found in costs.of_cubin(cubin).items()
                      if not re.search(r"\bf16\b", self.names[name])}
        self.behind_wait = {self.names[name.removeprefix(".text.")]: costs.behind_wait(text) for cubin in cubins
                            for name, (text, _) in code_object.sections(cubin).items() if name.startswith(".text.")}
        self.symbols = [(set(code_object.symbol_names(cubin)), [self.names[name] for name in part]) for cubin, part in zip(cubins, used)]
        self.kernels = root / "cuda/kernels"
        sources = [*self.kernels.glob("*.cu"), *self.kernels.glob("*.cuh"), *self.kernels.glob("*.h"), *(root / "include").rglob("*.h")]
        self.structs = layout.Structs("\n".join(path.read_text() for path in sorted(sources)))

    def need_machine_code(self):
        if not self.resources:
            raise Skipped("the build has no machine code for compute capability 9.0")


def each_entry(rule):
    return lambda code: (fault for name, entry in sorted(code.entries.items()) for fault in rule(entry, name))


def each_entry_and_structs(rule):
    return lambda code: (fault for name, entry in sorted(code.entries.items()) for fault in rule(entry, name, code.structs))


def divisions(code):
    for name, entry in sorted(code.entries.items()):
        yield from rules.check_divisions(entry, name)
    for symbols, names in code.symbols:
        yield from rules.check_division_calls(symbols, names)


def resources(code):
    code.need_machine_code()
    for name, used in sorted(code.resources.items()):
        yield from rules.check_resources(name, used, code.entries.get(name))


def promises(code):
    code.need_machine_code()
    yield from rules.check_promises(code.resources, {name: entry.max_threads for name, entry in code.entries.items()}, code.kernels)


def behind_wait(code):
    code.need_machine_code()
    yield from rules.check_behind_wait(code.behind_wait)


def all_kernels_are_seen(code):
    """A kernel of the sources whose code was not found would pass every rule."""
    known = {rules.base(name) for name in code.entries}
    for path in sorted(code.kernels.iterdir()):
        for name in set(re.findall(r"\b(\w+Kernel)\((?:const )?\w", path.read_text())):
            if "MINISGL_KERNEL" in path.read_text() and name not in known:
                yield f"{path.name}: {name} is in no object"


def compare_costs(toolkit):
    def compare(code):
        code.need_machine_code()
        committed = json.loads(FIGURES.read_text()).get(toolkit) if FIGURES.exists() else None
        if committed is None:
            raise Skipped(f"no figures of toolkit {toolkit} in tests/gpu_code/costs.json (--renew writes them)")
        for name in sorted(set(committed) - set(code.costs)):
            yield f"{name} has figures and no code (--renew)"
        for name, found in sorted(code.costs.items()):
            if name not in committed:
                yield f"{name} has no figures (--renew)"
                continue
            for is_rise, message in costs.compare(name, found, committed[name]):
                if is_rise:
                    yield message
                else:
                    print(f"# lower: {message}")

    return compare


def renew(code, toolkit):
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    figures[toolkit] = code.costs
    lines = []
    for release, kernels in sorted(figures.items()):
        rows = [f'  "{name}": {json.dumps(found)}' for name, found in sorted(kernels.items())]
        lines.append(f' "{release}": {{\n' + ",\n".join(rows) + "\n }")
    FIGURES.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--toolkit", default="unknown")
    parser.add_argument("--renew", action="store_true")
    parser.add_argument("objects", type=Path, nargs="*")
    options = parser.parse_intermixed_args()
    cases = [("every kernel of the sources is seen", all_kernels_are_seen),
             ("each kernel waits once, in every thread", each_entry(rules.check_waits_once)),
             ("kernels that release late do", each_entry(rules.check_releases_late)),
             ("no thread ends before the wait", each_entry(rules.check_ends_after_wait)),
             ("only constants are read before the wait", each_entry_and_structs(rules.check_reads_before_wait)),
             ("no read-only loads of memory that changes", each_entry_and_structs(rules.check_no_cached_reads)),
             ("only weights are fetched ahead", each_entry_and_structs(rules.check_prefetches)),
             ("no divisions of 64 bits", divisions),
             ("no spills, and the blocks that launch bounds promise", resources),
             ("registers as the sources say, and blocks by the shared memory that they state", promises),
             ("few instructions from the wait to the first store", behind_wait),
             ("costs do not rise", compare_costs(options.toolkit))]
    print(f"1..{len(cases)}")
    all_pass, code, why = True, None, ""
    try:
        code = Code(options.root, options.objects)
        if options.renew:
            renew(code, options.toolkit)
    except (Skipped, code_object.NotReadable) as reason:
        why = str(reason)
    for number, (name, check) in enumerate(cases, 1):
        faults, skipped = [], why
        if code:
            try:
                faults = list(check(code))
            except Skipped as reason:
                skipped = str(reason)
        for fault in faults[:50]:
            print(f"# {fault}")
        all_pass &= not faults
        print(f"{'not ' if faults else ''}ok {number} - {name}{f' # SKIP {skipped}' if skipped else ''}", flush=True)
    return 0 if all_pass else 1


if __name__ == "__main__":
    sys.exit(main())
