"""Rules of the tree that no compiler checks, one TAP line each.

    python3 tests/tidy/tidy.py SOURCE_ROOT [MINISGL_BINARY]

With the program given, its --help and the man pages are held against each other too.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(sys.argv[1])
BINARY = sys.argv[2] if len(sys.argv) > 2 else None

# Which room may include which, its own aside (the table of rooms in README.md). A name with a slash is one header.
MAY_INCLUDE = {
    "base": [],
    "tensor": ["base"],
    "plan": ["base"],
    "ops": ["plan", "tensor", "base"],
    "weights": ["ops", "tensor", "base"],
    "text": ["base"],
    "cpu": ["ops", "plan", "tensor", "base"],
    "cuda": ["ops", "plan", "tensor", "base"],
    "kv": ["base"],
    "model": ["weights", "ops", "plan", "tensor", "base"],
    "engine": ["model", "weights", "ops", "plan", "tensor", "base"],
    "sched": ["kv", "engine/engine.h", "plan", "base"],
    "runtime": ["sched", "engine", "text", "kv", "plan", "base"],
    "term": ["runtime", "sched", "text", "base"],
    "load": ["term", "runtime", "engine", "weights", "text", "ops", "plan", "tensor", "base"],
    "batch": ["load", "term", "runtime", "engine", "text", "plan", "base"],
    "report": ["batch", "load", "term", "runtime", "engine", "sched", "plan", "base"],
    "chat": ["report", "batch", "load", "term", "runtime", "weights", "text", "plan", "base"],
    "bench": ["load", "term", "runtime", "engine", "model", "weights", "ops", "plan", "tensor", "base"],
    "cli": ["chat", "bench", "report", "batch", "load", "term", "weights", "base"],
}
# Headers of include/minisgl that stand in no folder.
LOOSE = {"ops.h": "ops", "ops_params.h": "ops", "device_ops.h": "ops", "batch_plan.h": "plan"}
# A library's headers, and the only places that may know it.
LIBRARIES = {
    r"nlohmann/": ["src/base/"],
    r"sentencepiece": ["src/text/"],
    r"pcre2": ["src/text/"],
    r"CLI/|CLI11": ["src/load/option_table.cc"],
    r"hwy/": ["src/cpu/"],
    r"histedit|editline": ["src/chat/line_editor.cc"],
    r"utf8proc": ["src/text/", "src/chat/line_editor.cc"],
    r"^(cuda|cuda_runtime(_api)?|cuda_bf16|cuda_fp16|cublas\w*)\.h$": ["cuda/", "tests/cuda/"],
}
BANNED = {
    r"\bstd::regex\b": "a linear scanner (it overflows the stack on long input)",
    r"\bstd::sto[ild]\b|\batoi\(|\batof\(": "std::from_chars (these throw, or take what is no number)",
    r"\busing namespace std;": "names with std::",
    r"\b(TODO|FIXME|XXX|HACK)\b": "the work, or an issue",
    r"\brand\(\)|\bstd::random_device\b": "base/random.h or a seeded generator (src/load may draw a seed)",
    r"^(TYPED_)?TEST(_[FP])?\(.*\{\}$": "a test that can fail",
    r"#include <fmt/format\.h>": "<fmt/core.h>, which compiles faster, or <fmt/ranges.h> for fmt::join",
}
PRINTS = r"\bstd::(cout|cerr)\b|\bfmt::print\b|\bstd::printf\b|\bstd::puts\b"
MAY_PRINT = ["src/term/messages.cc", "src/base/check.cc", "tests/"]

BENCHMARKS = ("nano", "uniform", "shared", "bs1", "attn-decode", "attn-prefill", "cascade", "prefix", "spec")

COLUMNS_MAX = 100
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70


def sources(*folders):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".h", ".cc", ".cu", ".cuh", ".cpp"):
                yield path


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def room_of(path):
    parts = path.relative_to(ROOT).parts
    if parts[:2] == ("include", "minisgl"):
        return LOOSE.get(parts[2], parts[2])
    return "cuda" if parts[0] == "cuda" else parts[1] if parts[0] == "src" else None


def included_room(include):
    parts = include.split("/")
    if parts[0] == "minisgl":
        return LOOSE.get(parts[1], parts[1])
    return parts[0] if parts[0] in MAY_INCLUDE else None


def check_rooms():
    for path in sources("src", "include", "cuda"):
        room = room_of(path)
        if room not in MAY_INCLUDE:
            yield f"{name_of(path)}: no room of that name"
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*#include "([^"]+)"', line)
            if not match:
                continue
            other = included_room(match[1])
            if room != "cuda" and (ROOT / "cuda" / match[1]).exists():
                other = "cuda"
            header = match[1].removeprefix("minisgl/")
            if other and other != room and other not in MAY_INCLUDE[room] and header not in MAY_INCLUDE[room]:
                yield f"{name_of(path)}:{number}: {room} may not include {match[1]}"


def check_libraries():
    for path in sources("src", "include", "tests", "cuda"):
        name = name_of(path)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*#include [<"]([^>"]+)[>"]', line)
            for library, places in LIBRARIES.items():
                if match and not match[1].startswith("minisgl/") and re.search(library, match[1], re.I):
                    inside = match[1].split("/")[0] in MAY_INCLUDE
                    if not inside and not any(name.startswith(place) for place in places):
                        yield f"{name}:{number}: only {', '.join(places)} may include {match[1]}"


def check_spelling():
    for path in sources("src", "include", "tests", "cuda"):
        in_tests = name_of(path).startswith("tests/")
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for pattern, instead in BANNED.items():
                if re.search(pattern, line) and not (in_tests and "std::sto" in pattern) and not (
                        "random_device" in pattern and name_of(path).startswith("src/load/")):
                    yield f"{name_of(path)}:{number}: instead of {line.strip()[:60]}: {instead}"
            if re.search(PRINTS, line) and not any(name_of(path).startswith(p) for p in MAY_PRINT):
                yield f"{name_of(path)}:{number}: only src/term/messages.cc prints"


def check_sizes():
    for path in sources("src", "include", "tests", "cuda"):
        lines = path.read_text().splitlines()
        if len(lines) > FILE_LINES_MAX:
            yield f"{name_of(path)}: {len(lines)} lines (at most {FILE_LINES_MAX})"
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS_MAX:
                yield f"{name_of(path)}:{number}: {len(line)} columns (at most {COLUMNS_MAX})"


def check_functions():
    """A function begins at a line in column 0 (or one level in) that opens a brace and ends at its closing one."""
    for path in sources("src", "include", "cuda"):
        lines = path.read_text().splitlines()
        for indent in ("", "  "):
            begin = None
            for number, line in enumerate(lines, 1):
                if re.match(rf"{indent}[A-Za-z~].*\)( const)?( noexcept)?( override)?( \{{| : .*\{{)$", line) and not re.match(
                        rf"{indent}(namespace|class|struct|enum|union|extern)\b", line):
                    begin = number
                elif line == indent + "}" and begin is not None:
                    if number - begin + 1 > FUNCTION_LINES_MAX:
                        yield f"{name_of(path)}:{begin}: a function of {number - begin + 1} lines (at most {FUNCTION_LINES_MAX})"
                    begin = None


def check_headers():
    for path in sources("src", "include"):
        text = path.read_text()
        if path.suffix == ".h":
            if "#pragma once" not in text and not path.name.endswith("-inl.h"):
                yield f"{name_of(path)}: no #pragma once"
            if not text.startswith("//"):
                yield f"{name_of(path)}: opens without saying what it is"


def types_of(text):
    """(namespace, type, line) of each class, struct, union or enum that `text` defines outside of functions, other types and
    unnamed namespaces."""
    blank = lambda match: re.sub(r"[^\n]", " ", match[0])  # noqa: E731: lines keep their numbers
    text = re.sub(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'',
                  blank, text, flags=re.S)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, text, flags=re.M)
    scopes, begin = [], 0  # of each open brace: a namespace's name, or None
    for brace in re.finditer(r"[{};]", text):
        head = text[begin:brace.start()]
        begin = brace.end()
        if brace[0] == "}" and scopes:
            scopes.pop()
        if brace[0] != "{":
            continue
        name = re.search(r"\bnamespace\s*([\w:]*)\s*$", head)
        defined = re.search(r"\b(?:class|struct|union|enum)\s+(?:class\s+|struct\s+)?(?:alignas\([^)]*\)\s*)?(?:\[\[\w+\]\]\s*)?"
                            r"(\w+)\s*(?:final\s*)?(?::[^:].*)?$", head, re.S)
        if name is None and defined and None not in scopes and "" not in scopes:
            yield "::".join(scopes), defined[1], text.count("\n", 0, begin) + 1
        scopes.append(name[1] if name else None)


def check_types_have_one_name():
    """Two types of one name in one namespace share their inline functions, and the linker keeps those of one of them."""
    seen = {}
    # device.h includes one of the two headers for one device.
    files = [path for path in [*sources("src", "include", "cuda"), *sources("tests")] if path.name != "device_emulated.h"]
    for path in files:
        for namespace, name, line in types_of(path.read_text()):
            first = seen.setdefault((namespace, name), path)
            if first != path:
                yield f"{name_of(path)}:{line}: {namespace}::{name} is defined in {name_of(first)} too"


def check_sources_are_built():
    """Every source file stands in some meson.build."""
    built = "\n".join(path.read_text() for path in [ROOT / "meson.build", *sorted((ROOT / "src").rglob("meson.build")),
                                                   *sorted((ROOT / "tests").rglob("meson.build"))])
    for path in sources("src", "tests"):
        names = (path.name, f"'{path.stem.removeprefix('fuzz_')}'")
        if path.suffix == ".cc" and not any(name in built for name in names):
            yield f"{name_of(path)}: no meson.build names it"


def check_machine_paths():
    pattern = re.compile("/" + r"(work|root|home)/[a-z]|https?://[a-z.]*(pypi|debian)\b", re.I)
    for path in ROOT.rglob("*"):
        if path.is_file() and path.suffix in (".h", ".cc", ".py", ".sh", ".md", ".build", ".1", ".7", ".json") and not any(
                part.startswith("build") or part == ".git" for part in path.relative_to(ROOT).parts):
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                if pattern.search(line):
                    yield f"{name_of(path)}:{number}: a path of one machine: {line.strip()[:80]}"


def check_readme_map():
    readme = (ROOT / "README.md").read_text()
    rooms = sorted(p.name for p in (ROOT / "src").iterdir() if p.is_dir())
    folders = sorted(p.name for p in (ROOT / "tests").iterdir() if p.is_dir() and any(p.iterdir()))
    for room in rooms:
        if f"`src/{room}`" not in readme:
            yield f"README.md: its map lacks src/{room}"
    for folder in folders:
        if f"`tests/{folder}`" not in readme and f"`{folder}/`" not in readme:
            yield f"README.md: its map lacks tests/{folder}"
    for named in re.findall(r"`((?:src|tests|include|prompts|man|cuda)/[A-Za-z0-9_./-]*)`", readme):
        if not (ROOT / named).exists():
            yield f"README.md: names {named}, which is not there"


def options_of(command):
    done = subprocess.run([BINARY, *command, "--help"], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} --help ended with {done.returncode}")
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", done.stdout))


def manual(name):
    path = ROOT / "man" / name
    text = path.read_text().replace("\\-", "-") if path.exists() else ""
    # mdoc writes --option as `Fl Fl option`.
    return text + "".join(f" --{option} " for option in re.findall(r"Fl (?:Fl |-)([a-z][a-z0-9-]+)", text))


def check_manual():
    shared = manual("minisgl-options.7")
    for command in ("run", "chat", "bench", "info", "plan", "report", "tokenize"):
        page = manual(f"minisgl-{command}.1")
        options = options_of([command])
        for benchmark in BENCHMARKS if command == "bench" else ():
            options |= options_of([command, benchmark])
        for option in sorted(options):
            if not re.search(re.escape(option) + r"(?![\w-])", page + shared):
                yield f"minisgl {command} {option}: in --help, not in its man page"
        for option in sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", page))):
            if option not in options and option not in options_of([]) and f"see {option}" not in page:
                yield f"minisgl-{command}.1: names {option}, which --help does not"


def check_man_pages_lint():
    for page in sorted((ROOT / "man").glob("*.[17]")):
        done = subprocess.run(["mandoc", "-Tlint", "-Wwarning", str(page)], capture_output=True, text=True, timeout=60)
        for line in done.stdout.splitlines():
            if "outdated mandoc.db" not in line:
                yield line


def main():
    rules = [check_rooms, check_libraries, check_spelling, check_sizes, check_functions, check_headers, check_types_have_one_name,
             check_sources_are_built, check_machine_paths, check_readme_map, check_man_pages_lint]
    if BINARY:
        rules.append(check_manual)
    print(f"1..{len(rules)}")
    for number, rule in enumerate(rules, 1):
        try:
            faults = list(rule())
        except (OSError, RuntimeError) as error:
            faults = [str(error)]
        for fault in faults[:200]:
            print(f"# {fault}", flush=True)
        name = rule.__name__.removeprefix("check_").replace("_", " ")
        print(f"{'not ok' if faults else 'ok'} {number} - {name}", flush=True)


main()
