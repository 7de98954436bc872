"""Tests of includes.py: each planted fault is found, and what is right is not reported. Prints TAP."""
import pathlib
import tempfile

import includes

HEADER = """#pragma once
#include <vector>
namespace minisgl {
inline constexpr int kWidth = 3;
enum class Shape { kRound };
struct [[nodiscard]] Plate { int size; };
template <typename T>
T Doubled(T x) { return 2 * x; }
}
#define MINISGL_PLATES 2
"""
# Contents of src/room/user.cc -> the name that is reported, or None.
CASES = [
    ("a constant", "int a = kWidth;", "kWidth"),
    ("a type", "Plate p;", "Plate"),
    ("a template", "int a = Doubled(1);", "Doubled"),
    ("a macro", "int a = MINISGL_PLATES;", "MINISGL_PLATES"),
    ("a name in a comment", "// kWidth", None),
    ("a name in a text", 'const char* a = "kWidth";', None),
    ("a member of that name", "int b(T t) { return t.kWidth; }", None),
    ("a name of its own", "constexpr int kWidth = 4; int a = kWidth;", None),
    ("with its header", '#include "room/plates.h"\nint a = kWidth;', None),
    ("with a header that includes it", '#include "room/more.h"\nint a = kWidth;', None),
    ("an enumerator", "int a = kRound;", None),
    ("a name of the standard library", "std::vector<int> v;", "std::vector"),
    ("with its standard header", "#include <vector>\nstd::vector<int> v;", None),
    ("with a header that has it", '#include "room/plates.h"\nstd::vector<int> v;', None),
]


def found(text):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        room = root / "src" / "room"
        room.mkdir(parents=True)
        (room / "plates.h").write_text(HEADER)
        (room / "more.h").write_text('#include "room/plates.h"\n')
        (room / "user.cc").write_text(text + "\n")
        return list(includes.missing_includes(root))


print(f"1..{len(CASES)}")
for number, (name, text, wanted) in enumerate(CASES, 1):
    lines = found(text)
    is_right = not lines if wanted is None else len(lines) == 1 and f"src/room/user.cc: uses {wanted} " in lines[0]
    print(f"{'ok' if is_right else 'not ok'} {number} - {name}{'' if is_right else f': {lines}'}")
