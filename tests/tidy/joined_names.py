"""Names that two files of a room, or of a suite, both define for themselves, and those that a file defines as a header of its folder
does. The builds of the demo and of the tests join the files of a room into one (-Dunity=on), where such names meet; a build by hand
compiles them all.
"""
import collections
import pathlib
import re

# At the beginning of a line: a constant, or a type. Functions may have the same name and other parameters.
CONSTANT = re.compile(r"(?:static |inline )?(?:const|constexpr) [^=({]*?\b(k[A-Z]\w*)(?:\[\w*\])*(?: =|[({;]|$)")
TYPE = re.compile(r"(?:struct|class|enum class|enum) (\w+)")
# Their files are compiled one by one, or are programs of their own.
NEVER_JOINED = ("src/cpu/kernels", "tests/bench", "tests/fuzz", "tests/kernels")


def own_names(text, in_header=False):
    """Yields (namespace, name) of what a file defines in its anonymous namespaces, or a header in its named ones."""
    inside, around = in_header, ""
    for line in text.splitlines():
        if found := re.match(r"namespace ([\w:]+) {$", line):
            around = found[1]
        elif line == "namespace {":
            inside = True
        elif line.startswith("}  // namespace"):
            inside = False
        elif inside and (found := CONSTANT.match(line) or TYPE.match(line)):
            yield around, found[1]


def names_that_meet(root):
    """Yields a line for each name that several files of a folder define."""
    for base in ("src", "tests"):
        folders = [path for path in (root / base).rglob("*") if path.is_dir()]
        for folder in sorted(folders):
            if folder.relative_to(root).as_posix().startswith(NEVER_JOINED):
                continue
            users = collections.defaultdict(set)
            for path in sorted(folder.glob("*.cc")):
                for name in own_names(path.read_text()):
                    users[name].add(path.name)
            for path in sorted(folder.glob("*.h")):
                for name in set(own_names(path.read_text(), in_header=True)) & set(users):
                    users[name].add(path.name)
            for (_, name), files in sorted(users.items()):
                if len(files) > 1:
                    yield f"{folder.relative_to(root).as_posix()}: {', '.join(sorted(files))} each define {name}; joined builds need one name each"


def self_test(scratch):
    """Returns what is wrong with the rule itself: each case is the text of two files and the names that meet."""
    cases = [
        ("namespace {\nconstexpr int kA = 1;\n}  // namespace\n", "namespace {\nconstexpr char kA[] = \"\";\n}  // namespace\n", ["kA"]),
        ("namespace {\nstruct Place {\n};\n}  // namespace\n", "namespace {\nclass Place {\n};\n}  // namespace\n", ["Place"]),
        ("namespace {\nconstexpr const char* kA =\n    \"\";\n}  // namespace\n", "namespace {\nconst int kA{1};\n}  // namespace\n", ["kA"]),
        ("namespace {\nint F(int a) {\n  constexpr int kA = 1;\n}\n}  // namespace\n", "namespace {\nconstexpr int kA = 1;\n}  // namespace\n", []),
        ("constexpr int kA = 1;\n", "namespace {\nconstexpr int kA = 1;\n}  // namespace\n", []),
        ("namespace a {\nnamespace {\nstruct Place {\n};\n}  // namespace\n", "namespace b {\nnamespace {\nstruct Place {\n};\n}  // namespace\n", []),
        ("namespace {\nconstexpr int kA = kB;\n}  // namespace\n", "namespace {\nconstexpr int kB = 1;\n}  // namespace\n", []),
    ]
    in_header = "namespace a {\ninline constexpr int kA = 1;\n}  // namespace a\n"
    cases = [(*case, "") for case in cases] + [
        ("namespace a {\nnamespace {\nconstexpr int kA = 1;\n}  // namespace\n", "", ["kA"], in_header),
        ("namespace b {\nnamespace {\nconstexpr int kA = 1;\n}  // namespace\n", "", [], in_header),
    ]
    for number, (first, second, wanted, header) in enumerate(cases):
        folder = pathlib.Path(scratch) / str(number) / "src" / "room"
        folder.mkdir(parents=True)
        (folder / "a.cc").write_text(first)
        (folder / "b.cc").write_text(second)
        (folder / "c.h").write_text(header)
        found = [line.split(" define ")[1].split(";")[0] for line in names_that_meet(pathlib.Path(scratch) / str(number))]
        if found != wanted:
            yield f"joined_names.py: case {number} gives {found}, not {wanted}"
