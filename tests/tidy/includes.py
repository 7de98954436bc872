"""Finds files that would not compile by themselves: those that use a name which no header that they include declares.

Joined builds (-Dunity=on) compile many files as one and hide this. The rules read text, in seconds:
  - a name of the project that one header alone declares at namespace scope (a type, a constant, a function, a macro) needs that
    header among the headers that a file includes, directly or not;
  - a name of the standard library that is listed below needs one of its headers there.
Compiling each file alone (sh tests/run.sh --long, tests/tidy/compile_alone.py) finds the rest.
"""

import pathlib
import re

SUFFIXES = (".h", ".cuh", ".cc", ".cu")

# std:: names, and the headers that declare them.
STANDARD = {
    "vector": "vector", "string": "string", "string_view": "string_view", "optional": "optional", "nullopt": "optional",
    "unique_ptr": "memory", "shared_ptr": "memory", "make_unique": "memory", "make_shared": "memory", "map": "map", "set": "set",
    "unordered_map": "unordered_map", "unordered_set": "unordered_set", "deque": "deque", "list": "list", "array": "array",
    "span": "span", "function": "functional", "variant": "variant", "atomic": "atomic", "mutex": "mutex", "thread": "thread",
    "lock_guard": "mutex", "unique_lock": "mutex", "condition_variable": "condition_variable", "filesystem": "filesystem",
    "chrono": "chrono", "sort": "algorithm", "find_if": "algorithm", "any_of": "algorithm", "all_of": "algorithm",
    "none_of": "algorithm", "lower_bound": "algorithm", "upper_bound": "algorithm", "stable_sort": "algorithm",
    "clamp": "algorithm", "memcpy": "cstring", "memcmp": "cstring", "memset": "cstring", "strerror": "cstring",
    "accumulate": "numeric", "iota": "numeric", "bit_cast": "bit", "popcount": "bit", "countr_zero": "bit",
    "numeric_limits": "limits", "from_chars": "charconv", "to_chars": "charconv", "tuple": "tuple", "tie": "tuple",
    "ostringstream": "sstream", "istringstream": "sstream", "ifstream": "fstream", "ofstream": "fstream",
}
# Headers of the standard library that declare what others are named after.
IMPLIED = {"filesystem": {"string", "chrono"}, "mutex": {"chrono"}, "thread": {"chrono"}, "condition_variable": {"mutex", "chrono"},
           "map": {"tuple"}, "set": {"tuple"}, "unordered_map": {"tuple"}, "functional": {"tuple"}, "string": {"string_view"},
           "sstream": {"string", "string_view"}, "fstream": {"string", "string_view"}, "regex": {"string"}, "memory": {"tuple"}}

COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'', re.S)
TOKEN = re.compile(r"[A-Za-z_]\w*|::|->|[^\w\s]")


def code_of(text):
    """Returns the text without comments and literals; separators of digits (1'000) are no literals."""
    text = re.sub(r"(?<=\d)'(?=\d)", "", text)
    kept = []

    def blank(match):
        return "\n" * match[0].count("\n") if match[0].startswith(("//", "/*")) else '""'

    # The names of includes are literals, too: keep them.
    for line in re.split(r"(^#include[^\n]*$)", text, flags=re.M):
        kept.append(line if line.startswith("#include") else COMMENT_OR_TEXT.sub(blank, line))
    return "".join(kept)


class File:
    def __init__(self, path, text):
        self.path = path
        code = code_of(text)
        self.includes = re.findall(r'^#include "([^"]+)"', code, re.M)
        self.system = set(re.findall(r"^#include <([^>]+)>", code, re.M))
        self.macros = set(re.findall(r"^#define (\w+)", code, re.M))
        body = re.sub(r"^#(?:include|pragma|undef|error)[^\n]*$", "", code, flags=re.M)
        body = re.sub(r"\\\n", " ", body)
        self.lines = body
        plain = re.sub(r"^#[^\n]*$", "", body, flags=re.M)
        plain = re.sub(r"\bTEST\(\w+,", "TEST(", plain)  # the name of a suite, not of a class as in TEST_F
        self.declared, self.inner, self.mentioned = declarations(plain)
        for enumerators in re.findall(r"\benum\b[^{;]*\{([^}]*)\}", plain):
            self.inner |= set(re.findall(r"\bk[A-Z]\w*", enumerators))


def declarations(code):
    """Returns the names that code declares at namespace scope, those that it declares inside of classes and functions or that it
    only announces, and all names that it mentions except behind `.` and `->`."""
    declared, inner, mentioned = set(), set(), set()
    statement, scopes = [], []
    tokens = TOKEN.findall(code)
    for i, token in enumerate(tokens):
        if token[0].isalpha() or token[0] == "_":
            if i == 0 or tokens[i - 1] not in (".", "->"):
                mentioned.add(token)
        if token in "{};":
            at_namespace = all(scope == "namespace" for scope in scopes)
            names, announced = declared_by(statement)
            if token == ";" and announced:
                inner |= names
            else:
                (declared if at_namespace else inner).update(names)
        if token == "{":
            scopes.append("namespace" if "namespace" in statement[:2] or statement[:1] == ["extern"] and '"' in statement else "other")
            statement = []
        elif token == "}":
            if scopes:
                scopes.pop()
            statement = []
        elif token == ";":
            statement = []
        else:
            statement.append(token)
    return declared, inner, mentioned


def declared_by(statement):
    """Returns the names that the tokens of a statement (up to `{` or `;`) declare, and whether they only announce a type."""
    words = [word for word in statement if word not in ("public", "private", "protected")]
    if not words or words[0] in ("namespace", "return", "if", "for", "while", "switch", "case", "else", "do", "friend"):
        return set(), False
    if words[0] == "using":
        return ({words[1]} if len(words) > 2 and words[2] == "=" else set()), False
    text = re.sub(r"\[ \[ [^\[\]]* \] \] ?", "", " ".join(words))
    text = re.sub(r"^template < .*? > (?=class|struct|using|constexpr|inline|static|[A-Za-z_])", "", text)
    found = re.match(r"(?:typedef )?(?:class|struct|union|enum(?: class)?) (\w+)( :| <|$| final)?", text)
    if found:
        return {found[1]}, True
    found = re.match(r"(?:\w+ )*using (\w+) =", text)
    if found:
        return {found[1]}, False
    # A function or a variable: the last name before the first `(`, `=`, `[` or the end, outside of template arguments.
    flat = text
    while True:
        shorter = re.sub(r"< [^<>()]* >", "", flat)
        if shorter == flat:
            break
        flat = shorter
    found = re.match(r"[^(=\[]*?(\w+) (?:\(|=|\[(?! \[)|$)", flat + " ")
    return ({found[1]} if found and " " in flat.split("(")[0].strip() else set()), False


def read_files(root):
    files = {}
    for folder in ("include", "src", "cuda", "tests"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                files[path.relative_to(root).as_posix()] = File(path.relative_to(root), path.read_text(errors="replace"))
    return files


def resolve(files, path, include):
    here = pathlib.PurePosixPath(path).parent
    for folder in (here.as_posix(), "include", "src", ".", "tests", "cuda", "cuda/kernels", "tests/kernels"):
        name = (pathlib.PurePosixPath(folder) / include).as_posix()
        if name in files:
            return name
    return next((name for name in files if name.endswith("/" + include)), None)


def closure(files, path, known):
    if path not in known:
        known[path] = {path}
        for include in files[path].includes:
            name = resolve(files, path, include)
            if name:
                known[path] = known[path] | closure(files, name, known)
    return known[path]


def unique_names(files):
    """Returns name -> header for each name that one header alone declares, and that nothing declares elsewhere in another sense."""
    where, ambiguous = {}, set()
    for path, file in files.items():
        ambiguous |= file.inner
        if path.endswith((".h", ".cuh")):
            for name in file.declared | file.macros:
                where.setdefault(name, set()).add(path)
        else:
            ambiguous |= {name for name in file.declared if not re.match(r"[A-Z]\w*$", name)} | file.macros
    # A .cc file declares again what its header declares, as a definition; other files must not.
    return {name: min(paths) for name, paths in where.items()
            if len(paths) == 1 and name not in ambiguous and re.match(r"(k[A-Z]|[A-Z])\w{3,}$", name)}


def missing_includes(root):
    """Yields one line for each file and name whose header is missing."""
    files = read_files(root)
    headers = unique_names(files)
    known = {}
    for path, file in files.items():
        if path.endswith("-inl.h") or path.startswith("tests/kernels/"):
            continue  # parts of the file that includes them; CUDA's kernels on the emulator
        reached = closure(files, path, known)
        for name in sorted(file.mentioned & headers.keys()):
            if headers[name] not in reached and name not in file.declared and name not in file.macros:
                yield f"{path}: uses {name} without including {headers[name]}"
        system = set().union(*(files[name].system for name in reached))
        for header in list(system):
            system |= IMPLIED.get(header, set())
        for name in sorted(set(re.findall(r"\bstd::(\w+)", file.lines)) & STANDARD.keys()):
            if STANDARD[name] not in system:
                yield f"{path}: uses std::{name} without <{STANDARD[name]}>"


if __name__ == "__main__":
    import sys
    for fault in missing_includes(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")):
        print(fault)
