"""Checks rules of the tree that no compiler checks; prints one TAP line for each.

    python3 tests/tidy/tidy.py SOURCE_ROOT [MINISGL_BINARY]

With MINISGL_BINARY, also compares the program's --help-all with the manual pages.
"""
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import includes
import joined_names
import openings

ROOT = Path(sys.argv[1])
BINARY = sys.argv[2] if len(sys.argv) > 2 else None

ARCHITECTURE = ROOT / "src/README.md"


def read_rooms():
    """The table of rooms in src/README.md: which room may include which besides itself (a name with a slash is one header),
    and the headers of include/minisgl that stand in no folder, each with its room."""
    may_include, loose = {}, {}
    for line in ARCHITECTURE.read_text().splitlines():
        match = re.fullmatch(r"\| \d+ \| (?:`(?:src/)?(\w+)`|(\w+): (.*?)) \|.*\| ([\w/., ]*) ?\|", line)
        if match:
            room = match[1] or match[2]
            may_include[room] = [name.strip() for name in match[4].split(",") if name.strip()]
            loose |= {header: room for header in re.findall(r"`minisgl/([\w.]+)`", match[3] or "")}
    return may_include, loose


MAY_INCLUDE, LOOSE = read_rooms()
# The headers of each library, and the only places that may include them.
LIBRARIES = {
    r"nlohmann/": ["src/base/"],
    r"sentencepiece": ["src/text/"],
    r"pcre2": ["src/text/"],
    r"xxh": ["src/store/"],
    r"^(zlib|zstd|zstd_errors)\.h$": ["src/batch/decompressor.cc", "tests/batch/"],
    r"^curl/": ["src/hub/http_client.cc"],
    r"^png\.h$": ["src/vision/decode_png.cc"],
    r"^(jpeglib|jerror)\.h$": ["src/vision/decode_jpeg.cc"],
    r"^webp/": ["src/vision/decode_webp.cc"],
    r"^gif_lib\.h$": ["src/vision/decode_gif.cc"],
    r"CLI/|CLI11": ["src/load/option_table.cc"],
    r"hwy/": ["src/cpu/"],
    r"histedit|editline": ["src/chat/line_editor.cc"],
    r"utf8proc": ["src/text/", "src/grammar/unicode_categories.cc", "src/chat/line_editor.cc"],
    r"^(cuda|cuda_runtime(_api)?|cuda_bf16|cuda_fp16|cublas\w*)\.h$": ["cuda/", "tests/cuda/"],
}
BANNED = {
    r"\bstd::regex\b": "a linear scanner (it overflows the stack on long input)",
    r"\bstd::sto[ild]\b|\batoi\(|\batof\(": "std::from_chars (these throw, or accept text that is not a number)",
    r"\busing namespace std;": "names with std::",
    r"\b(TODO|FIXME|XXX|HACK)\b": "the work, or an issue",
    r"\brand\(\)|\bstd::random_device\b": "base/random.h or a seeded generator (src/load may draw a seed)",
    r"^(TYPED_)?TEST(_[FP])?\(.*\{\}$": "a test that can fail",
    r"#include <fmt/format\.h>": "<fmt/core.h>, which compiles faster, or <fmt/ranges.h> for fmt::join",
}
PRINTS = r"\bstd::(cout|cerr)\b|\bfmt::print\b|\bstd::printf\b|\bstd::puts\b"
MAY_PRINT = ["src/term/messages.cc", "src/base/check.cc", "tests/"]

SUBCOMMANDS = {
    "bench": ("nano", "uniform", "shared", "bs1", "attn-decode", "attn-prefill", "cascade", "prefix", "spec"),
    "cache": ("ls", "verify", "clear"),
}

# Commands that stand in the page of another one.
ALSO_IN_PAGE = {"info": ("models",)}

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
            yield f"{name_of(path)}: src/README.md has no room {room}"
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
    for room, others in MAY_INCLUDE.items():
        for other in others:
            if "/" not in other and other not in MAY_INCLUDE:
                yield f"src/README.md: {room} may include {other}, which is not a room"


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


def check_option_names():
    """Only the rooms of the command line spell its options; the others name a minisgl/base/setting.h."""
    above = {"load", "batch", "report", "chat", "bench", "cli", "term"}
    for path in sources("src", "include", "cuda"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if room_of(path) not in above and re.search(r'"[^"]*(?<![\w-])--[a-z][^"]*"', line.split("//")[0]):
                yield f"{name_of(path)}:{number}: names an option of the command line: {line.strip()[:60]}"


def check_sizes():
    for path in sources("src", "include", "tests", "cuda"):
        lines = path.read_text().splitlines()
        if len(lines) > FILE_LINES_MAX:
            yield f"{name_of(path)}: {len(lines)} lines (at most {FILE_LINES_MAX})"
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS_MAX:
                yield f"{name_of(path)}:{number}: {len(line)} columns (at most {COLUMNS_MAX})"


def check_functions():
    """A function begins at a line in column 0 (or one level in) that opens a brace, and ends at the closing brace there."""
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
                yield f"{name_of(path)}: does not begin with a comment that says what it is"


# Phrases of an English of our own, and how many of them 1,000 comment lines of the product may have.
IDIOMS = r"\bwhere\s+there\s+(?:is|are|was|were)\b|\b(?:nobody|somebody|everybody|whoever)\b|\blets?\s+(?:\w+\s+)?go\b|\bbut\s+for\b"
IDIOMS_PER_1000_MAX = 2


def comments_of(path):
    """(first line, text, number of lines) of each run of comment lines; text at the end of a code line is a run of its own."""
    runs = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.search(r"(?:^|\s)//+(.*)", line)
        if match is None:
            continue
        whole_line = line.lstrip().startswith("//")
        if whole_line and runs and runs[-1][3] and runs[-1][0] + runs[-1][2] == number:
            runs[-1][1] += "\n" + match[1].strip()
            runs[-1][2] += 1
        else:
            runs.append([number, match[1].strip(), 1, whole_line])
    return [run[:3] for run in runs]


def check_plain_english():
    lines, found = 0, []
    for path in sources("src", "include", "cuda"):
        for number, text, count in comments_of(path):
            lines += count
            for match in re.finditer(IDIOMS, text, re.I):
                found.append(f"{name_of(path)}:{number + text.count(chr(10), 0, match.start())}: {' '.join(match[0].split())}")
    if len(found) * 1000 > IDIOMS_PER_1000_MAX * lines:
        yield f"{len(found)} idioms in {lines} comment lines (at most {IDIOMS_PER_1000_MAX} in 1,000; .github/CONTRIBUTING.md)"
        yield from found


def check_comment_openings():
    """A comment opens with a subject."""
    with tempfile.TemporaryDirectory() as scratch:
        yield from openings.self_test(scratch)
    yield from openings.comments_without_subject(ROOT)


class Skipped(Exception):
    """A rule that this machine cannot check; says why."""


CLANG_FORMAT_VERSION = 14


def check_format():
    """clang-format, of the one version whose results the tree has."""
    for program in (f"clang-format-{CLANG_FORMAT_VERSION}", "clang-format"):
        if program_path := shutil.which(program):
            version = subprocess.run([program_path, "--version"], capture_output=True, text=True, timeout=600).stdout
            if f"version {CLANG_FORMAT_VERSION}." in version:
                break
    else:
        raise Skipped(f"no clang-format {CLANG_FORMAT_VERSION}")
    files = [str(path) for path in sources("src", "include", "tests", "cuda")]
    done = subprocess.run([program_path, "--dry-run", "-Werror", *files], capture_output=True, text=True, timeout=600)
    for match in re.finditer(r"^(\S+):(\d+):\d+: error:", done.stderr, re.M):
        yield f"{name_of(Path(match[1]))}:{match[2]}: not formatted as {program} does"


SUBJECT_COLUMNS_MAX = 72
# The rule holds for commits after this one.
SUBJECTS_AFTER = "dc40ac0"


def check_commit_subjects():
    git = ["git", "-C", str(ROOT)]
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        raise Skipped("no git history")
    if subprocess.run([*git, "merge-base", "--is-ancestor", SUBJECTS_AFTER, "HEAD"], capture_output=True).returncode != 0:
        raise Skipped(f"the history does not reach back to {SUBJECTS_AFTER}")
    log = subprocess.run([*git, "log", "--no-merges", "--format=%h %s", f"{SUBJECTS_AFTER}..HEAD"], capture_output=True,
                         text=True, check=True).stdout
    for line in log.splitlines():
        commit, subject = line.split(" ", 1)
        if len(subject) > SUBJECT_COLUMNS_MAX:
            yield f"{commit}: a subject of {len(subject)} characters (at most {SUBJECT_COLUMNS_MAX}): {subject}"
        elif not re.match(r"[a-z][a-z, ]*: \S", subject):
            yield f"{commit}: the subject does not begin with a room: {subject}"


def types_of(text):
    """(namespace, type, line) of each class, struct, union or enum that `text` defines outside of functions, other types and
    unnamed namespaces."""
    blank = lambda match: re.sub(r"[^\n]", " ", match[0])  # noqa: E731: keeps line numbers
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
    """If two types have one name in one namespace, the linker keeps the inline functions of only one of them."""
    seen = {}
    # device.h includes either device_emulated.h or device_nvidia.h.
    files = [path for path in [*sources("src", "include", "cuda"), *sources("tests")] if path.name != "device_emulated.h"]
    for path in files:
        for namespace, name, line in types_of(path.read_text()):
            first = seen.setdefault((namespace, name), path)
            if first != path:
                yield f"{name_of(path)}:{line}: {namespace}::{name} is defined in {name_of(first)} too"


def check_sources_are_built():
    """Every source file is listed in a meson.build."""
    built = "\n".join(path.read_text() for path in [ROOT / "meson.build", *sorted((ROOT / "src").rglob("meson.build")),
                                                   *sorted((ROOT / "tests").rglob("meson.build"))])
    for path in sources("src", "tests"):
        names = (path.name, f"'{path.stem.removeprefix('fuzz_')}'")
        if path.suffix == ".cc" and not any(name in built for name in names):
            yield f"{name_of(path)}: no meson.build lists it"


def check_includes():
    yield from includes.missing_includes(ROOT)


def check_joined_names():
    """Files of a room have different names for what is theirs alone."""
    with tempfile.TemporaryDirectory() as scratch:
        yield from joined_names.self_test(scratch)
    yield from joined_names.names_that_meet(ROOT)


def check_machine_paths():
    pattern = re.compile("/" + r"(work|root|home)/[a-z]|https?://[a-z.]*(pypi|debian)\b", re.I)
    for path in ROOT.rglob("*"):
        if path.is_file() and path.suffix in (".h", ".cc", ".py", ".sh", ".md", ".build", ".1", ".7", ".json") and not any(
                part.startswith("build") or part == ".git" for part in path.relative_to(ROOT).parts):
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                if pattern.search(line):
                    yield f"{name_of(path)}:{number}: a path of one machine: {line.strip()[:80]}"


README_LINES_MAX = 100


def check_documents():
    """Each room stands in src/README.md, each folder of tests in CONTRIBUTING.md, and what a document names exists."""
    rooms = sorted(p.name for p in (ROOT / "src").iterdir() if p.is_dir())
    for room in rooms:
        if room not in MAY_INCLUDE:
            yield f"src/README.md: its table lacks src/{room}"
    contributing = (ROOT / ".github/CONTRIBUTING.md").read_text()
    for folder in sorted(p.name for p in (ROOT / "tests").iterdir() if p.is_dir() and any(p.iterdir())):
        if f"`tests/{folder}`" not in contributing:
            yield f".github/CONTRIBUTING.md: lacks tests/{folder}"
    lines = len((ROOT / "README.md").read_text().splitlines())
    if lines > README_LINES_MAX:
        yield f"README.md: {lines} lines (at most {README_LINES_MAX})"
    for document in ("README.md", "src/README.md", ".github/CONTRIBUTING.md"):
        text = (ROOT / document).read_text()
        for named in re.findall(r"[` ]((?:src|tests|include|prompts|man|cuda|\.github)/[A-Za-z0-9_./-]*\w)[`):; ]", text):
            if "NAME" not in named and "/test_" not in named and not (ROOT / named).exists():
                yield f"{document}: names {named}, which does not exist"


def check_models_manual():
    """Each architecture that the program knows stands in man/minisgl-models.7."""
    page = (ROOT / "man/minisgl-models.7").read_text()
    table = "\n".join(path.read_text() for path in sorted((ROOT / "src/weights").glob("architecture_table*.cc")))
    names = re.findall(r'name = "(\w+)"', table)
    if not names:
        yield "src/weights: no architecture was found"
    for name in names:
        if not re.search(rf"\b{name}\b", page):
            yield f"man/minisgl-models.7: lacks {name}"


def check_gguf_manual():
    """The architectures of GGUF files in man/minisgl-models.7 are those that the program knows."""
    page = (ROOT / "man/minisgl-models.7").read_text()
    table = (ROOT / "src/weights/gguf_architectures.cc").read_text()
    known = set(re.findall(r'(?:\.name = |\b(?:Lfm2|DeltaNet|NemotronH)\()"([\w-]+)"', table))
    paragraph = re.search(r"^Files of these architectures run:\n(.*?)^\.Pp", page, re.DOTALL | re.MULTILINE)
    lines = re.findall(r"^\.Cm (.*)", paragraph.group(1) if paragraph else "", re.MULTILINE)
    named = {word for line in lines for word in line.split()} - {",", "."}
    if not known or not paragraph:
        yield "man/minisgl-models.7, src/weights/gguf_architectures.cc: no architecture was found"
    for name in sorted(known - named):
        yield f"man/minisgl-models.7: lacks the GGUF architecture {name}"
    for name in sorted(named - known):
        yield f"man/minisgl-models.7: names the GGUF architecture {name}, which is not in the table"


def options_of(command):
    help_option = "--help-all" if command else "--help"
    done = subprocess.run([BINARY, *command, help_option], capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} {help_option} ended with {done.returncode}")
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", done.stdout))


def manual(name):
    path = ROOT / "man" / name
    text = path.read_text().replace("\\-", "-") if path.exists() else ""
    # mdoc spells --option as `Fl Fl option`.
    return text + "".join(f" --{option} " for option in re.findall(r"Fl (?:Fl |-)([a-z][a-z0-9-]+)", text))


def check_manual():
    shared = manual("minisgl-options.7")
    for command in ("run", "cache", "chat", "bench", "classify", "embed", "grammar", "info", "plan", "pull", "report", "rerank", "score",
                    "tokenize", "toolcalls"):
        page = manual(f"minisgl-{command}.1")
        options = options_of([command])
        for subcommand in SUBCOMMANDS.get(command, ()):
            options |= options_of([command, subcommand])
        for other in ALSO_IN_PAGE.get(command, ()):
            options |= options_of([other])
        for option in sorted(options):
            if not re.search(re.escape(option) + r"(?![\w-])", page + shared):
                yield f"minisgl {command} {option}: in --help-all, not in its manual page"
        for option in sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", page))):
            if option not in options and option not in options_of([]) and f"see {option}" not in page:
                yield f"minisgl-{command}.1: names {option}, which is not in --help-all"


def check_rows_manual():
    """man/minisgl-rows.7 has each field that `minisgl help rows` prints, with what becomes of it."""
    done = subprocess.run([BINARY, "help", "rows"], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"minisgl help rows ended with {done.returncode}")
    printed = {}
    for line in done.stdout.splitlines():
        if match := re.match(r"([a-z][\w.]*) +([OVSL]+|-) +(\S.*)", line):
            printed[match[1]] = (match[2], match[3])
        elif line.startswith(" " * 20) and printed:
            name = list(printed)[-1]
            printed[name] = (printed[name][0], f"{printed[name][1]} {line.strip()}")
    if len(printed) < 100:
        yield f"minisgl help rows: prints {len(printed)} fields"
    page = {}
    for entry in re.findall(r"^\.It Cm (\S+) Pq (\S+)\n(.*?)(?=^\.It |^\.El)", manual("minisgl-rows.7"), re.M | re.S):
        page[entry[0]] = (entry[1], " ".join(entry[2].replace("\\(dq", '"').split()))
    for name in sorted(printed.keys() | page.keys()):
        if printed.get(name) != page.get(name):
            yield f"man/minisgl-rows.7: {name}: {page.get(name)}, but the program has {printed.get(name)}"


def check_man_pages_lint():
    for page in sorted((ROOT / "man").glob("*.[17]")):
        done = subprocess.run(["mandoc", "-Tlint", "-Wwarning", str(page)], capture_output=True, text=True, timeout=600)
        for line in done.stdout.splitlines():
            if "outdated mandoc.db" not in line:
                yield line


def main():
    rules = [check_rooms, check_libraries, check_spelling, check_option_names, check_sizes, check_functions, check_headers, check_types_have_one_name,
             check_sources_are_built, check_includes, check_joined_names, check_machine_paths, check_documents, check_models_manual, check_gguf_manual, check_man_pages_lint,
             check_plain_english, check_comment_openings, check_format, check_commit_subjects]
    if BINARY:
        rules += [check_manual, check_rows_manual]
    print(f"1..{len(rules)}")
    for number, rule in enumerate(rules, 1):
        name, skipped = rule.__name__.removeprefix("check_").replace("_", " "), ""
        try:
            faults = list(rule())
        except Skipped as reason:
            faults, skipped = [], f" # SKIP {reason}"
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            faults = [str(error)]
        for fault in faults[:200]:
            print(f"# {fault}", flush=True)
        print(f"{'not ok' if faults else 'ok'} {number} - {name}{skipped}", flush=True)


main()
