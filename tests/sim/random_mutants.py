"""The measure of the suites outside the scheduler and the CUDA engine: small random changes are made to the sources, one at a time, and
the suites of the changed file's room must notice.

    python3 tests/sim/random_mutants.py SOURCE_ROOT SCRATCH_FOLDER [--seed N] [--count N] [--rooms A,B]
                                        [--build-folder FOLDER] [--again] [--list]

Of all changes of one token that a reader might overlook (a comparison, a boundary, a truth value, a condition, one more
or one less) the seed draws --count over the rooms of SUITES. The order is that of a hash of file, line and change: the
same seed draws the same changes, a larger count goes on where a smaller one stopped, and a line that is edited changes
nothing for the others. Comments, strings, includes, static_assert, template arguments, checks and logging are left as
they are.

SCRATCH_FOLDER/tree becomes a copy of the sources. Each change is made there, compiled with little optimization (in
--build-folder, else in SCRATCH_FOLDER/build) and run against the suites of its room, up to the first case that fails; a
crash counts as found, and so does a run that takes many times as long as without the change, or a case that is silent
for a minute. A case that fails without
any change, or takes longer than SLOW_S, is left out, and so are those of TIMED, which hold code to a time that it keeps
only if it is optimized. What the own suites of its room let pass is run against a few other suites of the room: what only
those find is counted apart.

  --rooms A,B  of what is drawn, only run the changes in these rooms
  --again      run those again that survived before
  --list       print what is drawn, and run nothing

SCRATCH_FOLDER/results.jsonl keeps what was found out: a run that is stopped goes on from there. How the suites behave
without a change is kept in SCRATCH_FOLDER/SUITE.json until the suite's tests change. Changes that make no
difference are listed in equivalent_changes.txt beside this file, with the reason; an entry whose line is no longer in its
file, or does not hold that change, is an error, so that the list cannot rot. They are counted apart and not run.

Takes hours: a change costs a compilation, a link and a run of the tests, about a minute together. Exits 1 if fewer than
95 of 100 are found. The last line counts.
"""
import argparse
import contextlib
import filecmp
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, namedtuple
from pathlib import Path

# Suites that run the program itself.
PROGRAM_SUITES = ("term", "load", "batch", "report", "chat", "bench", "cli")
# The suites of each room, and other suites that may find more.
SUITES = {
    "base": (["base"], ["fuzz_json", "weights", "text", "runtime"]),
    "weights": (["weights"], ["fuzz_model_config", "fuzz_safetensors", "model"]),
    "text": (["text", "fuzz_chat_template", "fuzz_stream_decoder", "fuzz_tokenizer",
              "fuzz_tokenizer_json"], ["runtime"]),
    "cpu": (["ops"], ["model", "engine"]),
    "kv": (["kv", "sched"], ["sim"]),
    "model": (["model", "engine"], ["runtime"]),
    "engine": (["engine"], ["runtime"]),
    "runtime": (["runtime"], ["sim"]),
    "term": (["term"], ["batch", "chat"]),
    "load": (["load"], ["batch", "cli"]),
    "batch": (["batch"], ["fuzz_prompt_row", "cli"]),
    "report": (["report"], ["batch", "cli"]),
    "chat": (["chat"], ["fuzz_conversation"]),
    "bench": (["bench"], ["cli"]),
    "cli": (["cli"], ["batch", "chat"]),
}
# Without optimization the CPU's kernels take most of the time. The library's assertions find what an optional or a vector
# lacks, as in the sanitizers' build of run.sh.
SETUP = ["--buildtype=plain", "-Doptimization=1", "-Dcuda=disabled", "-Dtests=enabled", "-Djoined_tests=true",
         "-Dcpp_args=-D_GLIBCXX_ASSERTIONS"]
NUMBERS_MAX = 16  # larger ones are sizes, settings and tables
TIMED = ["HostileTemplateTest.*Second", "HostileTemplateTest.SearchesTakeTime*", "*/LongTextTest.*",
         "*.LongRunsOf*", "BpeTest.WorkGrows*"]
SLOW_S = 10
SILENCE_S = 60  # of a case that takes less than SLOW_S
FAST_S = 0.1  # cases that take less run before the others
BYTES_MAX = 12 << 30  # of memory, for what a change lets grow without end

Change = namedtuple("Change", "file line before after begin end text")

OPERATORS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&"}
# What is no code to change, and what is code but not to be changed.
NO_CODE = (r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\''
           r"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*")
CALLS_LEFT_OUT = r"\b(?:static_assert|\w*CHECK\w*|Log)\("
TEMPLATE_ARGUMENTS = r"(?<=[\w>])<(?! )[^<>;{}]*>|\btemplate <[^<>{};]*>"


def blanked(pattern, text, flags=0):
    return re.sub(pattern, lambda match: re.sub(r"[^\n]", " ", match[0]), text, flags=flags)


def closing(text, opening):
    """The place of the parenthesis that closes the one at `opening`."""
    depth = 0
    for at in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
    return len(text) - 1


def code_of(text):
    """`text` with blanks for all that no change is made in."""
    code = blanked(NO_CODE, text, re.S | re.M)
    for call in reversed(list(re.finditer(CALLS_LEFT_OUT, code))):
        end = closing(code, call.end() - 1)
        code = code[:call.start()] + re.sub(r"[^\n]", " ", code[call.start():end]) + code[end:]
    while (fewer := blanked(TEMPLATE_ARGUMENTS, code)) != code:
        code = fewer
    return code


def edits_of(code):
    """(begin, end, text that comes there) of each change."""
    for sign in re.finditer(r"(?<=\s)(?:[<>=!]=|<|>|&&|\|\|)(?=\s)", code):
        yield sign.start(), sign.end(), OPERATORS[sign[0]]
    for word in re.finditer(r"\b(?:true|false)\b", code):
        yield word.start(), word.end(), "false" if word[0] == "true" else "true"
    for step in re.finditer(r" [+-] 1(?![\w.'])", code):
        yield step.start(), step.end(), ""
    for side in re.finditer(r"\s([<>]=?)\s+[a-z]\w*(?:(?:\.|->)\w+|\(\))*(?=[;)]|\s&&|\s\|\|)", code):
        yield side.end(), side.end(), " - 1" if side[1] in ("<", ">=") else " + 1"
    for number in re.finditer(r"(?<![\w.'])(?<!\de-)\d+(?![\w.'])", code):
        for new in (int(number[0]) + 1, int(number[0]) - 1):
            if int(number[0]) <= NUMBERS_MAX and new >= 0:
                yield number.start(), number.end(), str(new)
    for condition in re.finditer(r"\b(?:if|while) \(", code):
        begin, end = condition.end(), closing(code, condition.end() - 1)
        if not re.search(r";|\bauto\b|[^=!<>]=[^=]", code[begin:end]):
            yield begin, end, "!({})"


def squeezed(lines):
    return " ".join(lines.split())


def changes_of(root, path):
    text = path.read_text()
    file = path.relative_to(root).as_posix()
    for begin, end, new in edits_of(code_of(text)):
        new = new.replace("{}", text[begin:end])
        changed = text[:begin] + new + text[end:]
        first, last = text.rfind("\n", 0, begin) + 1, text.find("\n", end)
        after = changed[first:changed.find("\n", begin + len(new))]
        yield Change(file, text.count("\n", 0, begin) + 1, squeezed(text[first:last]), squeezed(after), begin, end, new)


def all_changes(root):
    for room in SUITES:
        for path in sorted((root / "src" / room).rglob("*")):
            if path.suffix in (".cc", ".h"):
                yield from changes_of(root, path)


def drawn(changes, seed, count):
    """The first `count` by hash; of a line that occurs again in its file each stands for itself."""
    seen = Counter()

    def rank(change):
        key = (change.file, change.before, change.after)
        seen[key] += 1
        return hashlib.sha256(repr((seed, key, seen[key])).encode()).hexdigest()

    return sorted(((rank(change), change) for change in changes), key=lambda ranked: ranked[0])[:count]


def read_equivalents(changes):
    """{(file, before, after): reason} of the list, whose every entry must still be a change that can be drawn."""
    known = {(change.file, change.before, change.after) for change in changes}
    equivalents = {}
    for entry in (Path(__file__).parent / "equivalent_changes.txt").read_text().split("\n\n"):
        lines = [line for line in entry.splitlines() if not line.startswith("#")]
        if not lines:
            continue
        key = (lines[0], *(line[2:] for line in lines[1:3]))
        if len(lines) < 4 or key not in known:
            raise SystemExit(f"no change that can be drawn, or no reason:\n{entry}")
        equivalents[key] = squeezed(" ".join(lines[3:]))
    return equivalents


def limit():
    """Limits a program that a change lets grow without end."""
    resource.setrlimit(resource.RLIMIT_AS, (BYTES_MAX, BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))


class TreeCopy:
    """The copy of the tree, and its build folder."""

    def __init__(self, root, scratch, build):
        self.tree, self.build, self.tmp = scratch / "tree", build, scratch / "tmp"
        self.shared = root.parent / "shared"
        self.tested = {}
        files = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                               capture_output=True, text=True, check=True).stdout.split("\0")
        present = {self.tree / file: root / file for file in files if file and (root / file).is_file()}
        for copy in [copy for copy in self.tree.rglob("*") if copy.is_file() and copy not in present]:
            copy.unlink()
        for copy, source in present.items():
            if not copy.exists() or not filecmp.cmp(source, copy, shallow=False):
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, copy)
        if not (build / "build.ninja").exists():
            link = ["-Dcpp_link_args=-fuse-ld=mold"] if shutil.which("mold") else []
            subprocess.run(["meson", "setup", build, self.tree, *SETUP, *link], check=True)

    def compile(self, suites):
        """What ninja complains of, or nothing."""
        targets = [f"tests/{suite if suite.startswith('fuzz_') else 'test_' + suite}" for suite in suites]
        env = {**os.environ, "CCACHE_NOHASHDIR": "1"}
        targets += ["src/cli/minisgl"] * any(suite in PROGRAM_SUITES for suite in suites)
        done = subprocess.run(["ninja", "-j2", "-C", self.build, *targets], capture_output=True, text=True,
                              errors="replace", env=env)
        return "" if done.returncode == 0 else done.stdout[-2000:]

    @staticmethod
    def wait(process, output, time_s, silence_s):
        """The exit status; "it never ends" after `time_s`, or after `silence_s` in which no case began or ended."""
        begin = changed = time.monotonic()
        size = 0
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(1)
            now = time.monotonic()
            if output.stat().st_size != size:
                size, changed = output.stat().st_size, now
            if now > begin + time_s or now > changed + silence_s:
                return "it never ends"

    def run(self, suite, time_s, silence_s, *options):
        """(Whether all passed, else which case did not)."""
        shutil.rmtree(self.tmp, ignore_errors=True)
        self.tmp.mkdir(parents=True)
        env = {**os.environ, "TMPDIR": str(self.tmp), "MINISGL_BINARY": str(self.build / "src/cli/minisgl"),
               "MINISGL_SHARED": os.environ.get("MINISGL_SHARED", str(self.shared))}
        program = self.build / "tests" / (suite if suite.startswith("fuzz_") else f"test_{suite}")
        env["MINISGL_FUZZ_CORPUS"] = str(self.tree / "tests/fuzz/corpus" / suite.removeprefix("fuzz_"))
        output = self.tmp.parent / "output.txt"
        with open(output, "wb") as out:
            process = subprocess.Popen([program, *options], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                       cwd=self.tmp, env=env, start_new_session=True, preexec_fn=limit)
            try:
                status = self.wait(process, output, time_s, silence_s)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        text = output.read_text(errors="replace")
        failed = re.findall(r"^\[  FAILED  \] (\S+?),?(?: |$)", text, re.M)
        begun = re.findall(r"^\[ RUN      \] (\S+)", text, re.M)
        if status == 0:
            return True, ""
        if isinstance(status, int) and failed:
            return False, failed[0]
        how = status if isinstance(status, str) else f"it ends with {status}"
        return False, f"{begun[-1] if begun else 'no case'} ({how})"

    def prepare(self, suite):
        """How `suite` behaves without a change: how long it takes, and the cases that are run first."""
        if suite in self.tested:
            return self.tested[suite]
        if why := self.compile([suite]):
            raise SystemExit(f"{suite} does not compile unchanged:\n{why}")
        tests = sorted((self.tree / "tests" / suite).rglob("*.cc"))
        if suite.startswith("fuzz_"):
            tests = [self.tree / f"tests/fuzz/{name}.cc" for name in (suite, "replay")]
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in tests)).hexdigest()
        report, kept = self.tmp.parent / "report.json", self.tmp.parent / f"{suite}.json"
        if not kept.exists() or json.loads(kept.read_text())["digest"] != digest:
            report.unlink(missing_ok=True)
            _, why = self.run(suite, 1800, 1800, f"--gtest_output=json:{report}", "--gtest_filter=-" + ":".join(TIMED))
            if not report.exists():
                raise SystemExit(f"{suite} does not end unchanged: {why}")
            cases = [(f"{case['classname']}.{case['name']}", float(case["time"][:-1]), "failures" in case)
                     for group in json.loads(report.read_text())["testsuites"] for case in group["testsuite"]]
            kept.write_text(json.dumps({"digest": digest, "cases": cases}))
        cases = json.loads(kept.read_text())["cases"]
        left_out = [name for name, seconds, failed in cases if failed or seconds > SLOW_S]
        if left_out:
            print(f"# {suite}: left out, failing or slow without a change: {', '.join(left_out)}", flush=True)
        if len(left_out) == len(cases):
            raise SystemExit(f"{suite} has no case that passes unchanged")
        fast = [name for name, seconds, _ in cases if seconds < FAST_S and name not in left_out]
        seconds = sum(seconds for name, seconds, _ in cases if name not in left_out)
        self.tested[suite] = (seconds, fast, TIMED + left_out)
        return self.tested[suite]

    def found_by(self, suite):
        """The case of `suite` that fails, or nothing. Those that take no time come first."""
        seconds, fast, left_out = self.prepare(suite)
        passes = [["--gtest_filter=-" + ":".join(left_out)]]
        if seconds > 5 and fast:
            passes = [["--gtest_filter=" + ":".join(fast)], ["--gtest_filter=-" + ":".join([*fast, *left_out])]]
        for options in passes:
            passed, why = self.run(suite, 30 + 5 * seconds, SILENCE_S, "--gtest_fail_fast", *options)
            if not passed:
                return f"{suite}: {why}"
        return ""

    def examine(self, change):
        """What becomes of the tests with `change`: (outcome, detail)."""
        own, others = SUITES[change.file.split("/")[1]]
        for suite in own:
            self.prepare(suite)
        path = self.tree / change.file
        text = path.read_text()
        if change not in changes_of(self.tree, path):
            raise SystemExit(f"the copy of {change.file} is not the file that was drawn from")
        try:
            path.write_text(text[:change.begin] + change.text + text[change.end:])
            if self.compile(own):
                return "does not compile", ""
            for suite in own:
                if case := self.found_by(suite):
                    return "found", case
            if not all(suite in self.tested for suite in others):
                path.write_text(text)  # what other suites do without the change is seen first
                for suite in others:
                    self.prepare(suite)
                path.write_text(text[:change.begin] + change.text + text[change.end:])
            self.compile(others)
            for suite in others:
                if case := self.found_by(suite):
                    return "found elsewhere", case
            return "survived", ""
        finally:
            path.write_text(text)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name, options in {"root": {"type": Path}, "scratch": {"type": Path}, "--build-folder": {"type": Path},
                          "--seed": {"type": int, "default": 1}, "--count": {"type": int, "default": 200},
                          "--rooms": {"default": ",".join(SUITES)}, "--again": {"action": "store_true"},
                          "--list": {"action": "store_true"}}.items():
        parser.add_argument(name, **options)
    arguments = parser.parse_args()
    root, scratch = arguments.root.resolve(), arguments.scratch.resolve()
    rooms = arguments.rooms.split(",")
    changes = list(all_changes(root))
    equivalents = read_equivalents(changes)
    scratch.mkdir(parents=True, exist_ok=True)
    log = scratch / "results.jsonl"
    results = [json.loads(line) for line in (log.read_text().splitlines() if log.exists() else [])]
    known = {result["rank"]: result for result in results}
    build = (arguments.build_folder or scratch / "build").resolve()
    copy_of_tree = None if arguments.list else TreeCopy(root, scratch, build)
    counts = Counter()
    for number, (rank, change) in enumerate(drawn(changes, arguments.seed, arguments.count), 1):
        if change.file.split("/")[1] not in rooms:
            continue
        print(f"[{number}] {change.file}:{change.line}\n- {change.before}\n+ {change.after}", flush=True)
        result = known.get(rank)
        reason = equivalents.get((change.file, change.before, change.after))
        if reason:
            result = {"outcome": "equivalent", "detail": reason}
        elif copy_of_tree and (result is None or (arguments.again and result["outcome"] == "survived")):
            begin = time.monotonic()
            outcome, detail = copy_of_tree.examine(change)
            result = {"rank": rank, "outcome": outcome, "detail": detail, "seconds": round(time.monotonic() - begin, 1)}
            with open(log, "a") as out:
                print(json.dumps(result), file=out)
        result = result or {"outcome": "not run", "detail": ""}
        counts[result["outcome"]] += 1
        print(f"  {result['outcome']} {result['detail']}".rstrip(), flush=True)
    found, elsewhere, survived = counts["found"], counts["found elsewhere"], counts["survived"]
    tried = found + elsewhere + survived
    print(f"# {sum(counts.values())} drawn, {counts['does not compile']} do not compile, {counts['equivalent']} make no "
          f"difference, {counts['not run']} not run; of the other {tried}: {found} found by the suites of their room, "
          f"{elsewhere} by other suites, {survived} survived")
    sys.exit(100 * (found + elsewhere) < 95 * tried)


main()
