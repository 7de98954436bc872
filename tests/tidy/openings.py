"""Comments that open without a subject: "Of ranks after the first" does not say what is of the ranks. Put the subject first:
"Numbers of ranks after the first". The end of a line of code may have a small "of": the name in the line is the subject.
"""
import pathlib
import re

# Rooms whose comments are not looked at: a folder of src and include/minisgl, a header of include/minisgl, or a folder of tests.
EXCEPTED = ()

FOLDERS = ("src", "include", "cuda", "tests", "prompts")
SLASHES = (".h", ".cc", ".cu", ".cuh", ".cpp")
HASHES = (".py", ".sh", ".build")
OPENING = re.compile(r"(?:(?:And|Also|But|So) )?(?:Of|of|(?:Those|those) (?:of|that|which)|(?:That|that) (?:of|which)|These of|This of|One's|Nor)\b"
                     r"|What (?:it|they)\b")


def openings_of(text, has_slashes):
    """Yields (line, words) where a comment, or a paragraph of one, opens without a subject."""
    mark = "//" if has_slashes else "#"
    goes_on = False  # the line before is a line of the same paragraph
    for number, line in enumerate(text.splitlines(), 1):
        whole = re.match(rf"\s*{mark}+(?!!)(.*)", line)
        end = None if whole else re.search(rf"\s{mark}+ (.*)", line)
        words = whole[1].strip() if whole else end[1] if end else ""
        # A quote behind the mark: it may stand in a text.
        opens = not goes_on if whole else not re.search(r"[\"']", words)
        if opens and words[:1].isupper() and OPENING.match(words):
            yield number, words
        goes_on = bool(whole and words)
    if has_slashes:
        return
    for found in re.finditer(r'^\s*"""(\S.*)', text, re.M):
        if found[1][0].isupper() and OPENING.match(found[1]):
            yield text.count("\n", 0, found.start(1)) + 1, found[1]


def room_of(name):
    parts = name.split("/")
    if parts[0] == "tests":
        return "/".join(parts[:2])
    inside = parts[2:] if parts[0] == "include" else parts[1:] if parts[0] == "src" else parts
    return inside[0]


def comments_without_subject(root, excepted=EXCEPTED):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix not in SLASHES + HASHES or room_of(name) in excepted:
                continue
            for number, words in openings_of(path.read_text(errors="replace"), path.suffix in SLASHES):
                yield f"{name}:{number}: opens without a subject: {words[:60]}"


def self_test(scratch):
    """Yields what is wrong with the rule itself: each case is a file, its text, and the lines that it finds."""
    of = "Of"  # so that this file has no such comment
    cases = [
        ("src/a/a.cc", f"// {of} ranks after the first.\nint a;\n", [1]),
        ("src/a/a.cc", f"int a;  // {of} ranks.\n", [1]),
        ("src/a/a.h", "// Those of a step.\n", [1]),
        ("include/minisgl/a/a.h", f"// A head.\n//\n// {of} a row: its end.\n", [3]),
        ("cuda/kernels/a.cuh", f"  // Also {of.lower()} heads.\n", [1]),
        ("tests/a/a.py", f'# {of} names\n\n\ndef f():\n    """{of} names, the first."""\n', [1, 5]),
        ("tests/a.sh", f"#!/bin/sh\n# {of} each\n", [2]),
        ("src/a/a.cc", f"// A sum\n// {of} things, which goes on.\n", []),
        ("src/a/a.cc", "int a;  // of a row\n", []),
        ("src/a/a.cc", f'const char* a = "a // {of} text";\n', []),
        ("src/a/a.cc", "// Often. Offsets of a row. Those rows.\n", []),
        ("src/excepted/a.cc", f"// {of} ranks.\n", []),
        ("tests/a/a.md", f"# {of} ranks\n", []),
    ]
    for number, (name, text, wanted) in enumerate(cases):
        root = pathlib.Path(scratch) / str(number)
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text)
        found = sorted(int(line.split(":")[1]) for line in comments_without_subject(root, ("excepted",)))
        if found != wanted:
            yield f"openings.py: case {number} gives {found}, not {wanted}"
