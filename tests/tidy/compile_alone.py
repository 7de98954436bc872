"""Compiles each source and each header of the tree by itself, for its errors alone (-fsyntax-only).

    python3 tests/tidy/compile_alone.py BUILD_FOLDER [FILE...]

BUILD_FOLDER is a configured build folder, whose flags are used. Without a FILE: all sources that it builds, and all headers. Takes a
second or two of processor time a file, which is why only the long form of the tests does it; includes.py finds most faults from the
text. Prints the compiler's errors and ends with 1 if a file has some.
"""
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(sys.argv[1]).resolve()


def flags_of(command):
    """The preprocessor's and the language's flags of a compiler's command line."""
    kept, words = [], iter(shlex.split(command)[1:])
    for word in words:
        if word in ("-I", "-isystem", "-D"):
            kept += [word, next(words)]
        elif word.startswith(("-I", "-isystem", "-D", "-std=", "-pthread", "-f")) and not word.startswith("-fsanitize"):
            kept.append(word)
    return kept


def commands():
    """Yields (file, flags) for each C++ source that the folder builds by itself."""
    entries = json.loads((BUILD / "compile_commands.json").read_text())
    for entry in entries:
        path = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if path.suffix == ".cc" and ROOT in path.parents and BUILD not in path.parents:
            yield path, flags_of(entry["command"])


def compile_one(path, flags):
    compiler = os.environ.get("CXX", "c++").split()
    with tempfile.NamedTemporaryFile("w", suffix=".cc") as source:
        source.write(f'#include "{path}"\n')
        source.flush()
        done = subprocess.run([*compiler, *flags, "-fsyntax-only", source.name], cwd=BUILD, capture_output=True, text=True)
    return done.stderr if done.returncode else ""


def main():
    wanted = {pathlib.Path(name).resolve() for name in sys.argv[2:]}
    work = dict(commands())
    if not work:
        sys.exit(f"{BUILD}: builds no file by itself; configure it with -Dunity=off")
    # A header has the flags of a source beside it, or of the first source of the tree.
    by_folder = {path.parent: flags for path, flags in work.items()}
    any_flags = next(iter(work.values()))
    for folder in ("include", "src", "tests"):
        for path in (ROOT / folder).rglob("*.h"):
            # Parts of the files that include them, and sources of CUDA.
            if not path.name.endswith("-inl.h") and "kernels/emulator" not in str(path):
                work[path] = by_folder.get(path.parent, any_flags)
    if wanted:
        work = {path: flags for path, flags in work.items() if path in wanted}
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, errors in zip(work, pool.map(compile_one, work, work.values())):
            if errors:
                failures += 1
                print(f"{path.relative_to(ROOT)} does not compile by itself:\n{errors}", flush=True)
    print(f"{len(work)} files, {failures} do not compile by themselves")
    sys.exit(failures > 0)


main()
