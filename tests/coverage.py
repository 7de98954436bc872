"""Prints the line coverage of each room. Run by hand:

    meson setup build-cov --buildtype=debug --optimization=1 -Db_coverage=true -Dcuda=disabled -Dtests=enabled
    ninja -C build-cov && meson test -C build-cov --no-suite mutants --no-suite tidy --no-suite demo_script
    python3 tests/coverage.py build-cov [--missing ROOM]

A line counts once, however many object files contain it, and is covered if it ran in any of them. --missing lists the lines of
a room that never ran.
"""
import collections
import concurrent.futures
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
folder = Path(sys.argv[1]).resolve()
wanted = sys.argv[3] if sys.argv[2:3] == ["--missing"] else None


def lines_of(data):
    """(file, line, whether it ran) of one compiled file."""
    done = subprocess.run(["gcov", "--json-format", "--stdout", str(data)], capture_output=True, cwd=folder, check=True)
    found = collections.defaultdict(bool)
    for document in filter(None, done.stdout.splitlines()):
        for file in json.loads(document)["files"]:
            path = os.path.relpath(os.path.normpath(os.path.join(folder, file["file"])), ROOT)
            if path.split("/")[0] in ("src", "include", "cuda"):
                for line in file["lines"]:
                    found[path, line["line_number"]] |= line["count"] > 0
    return found


def room_of(path):
    parts = path.split("/")
    return "cuda" if parts[0] == "cuda" else parts[1] if parts[0] == "src" else "include"


ran = collections.defaultdict(bool)
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    for found in pool.map(lines_of, sorted(folder.rglob("*.gcda"))):
        for place, has_run in found.items():
            ran[place] |= has_run
rooms = collections.defaultdict(lambda: [0, 0])
for (path, line), has_run in sorted(ran.items()):
    rooms[room_of(path)][0] += has_run
    rooms[room_of(path)][1] += 1
    if room_of(path) == wanted and not has_run:
        print(f"{path}:{line}")
for room, (covered, all_lines) in sorted(rooms.items()):
    print(f"{room:10} {covered:6} of {all_lines:6} lines  {100 * covered / all_lines:5.1f} %")
