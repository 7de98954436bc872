"""Runs a program of test cases so that a case that ends the process costs no other case.

    python3 tests/run_cases.py PROGRAM [--gtest_output=xml:FILE] [ARGUMENT...]

A process that dies (a signal, a sanitizer's report, a call of exit) has failed the case that it ran. A new process then runs the
cases behind it. FILE gets the results of all processes. If this script is told to end (SIGTERM), the case that runs has failed, and
FILE gets what is known until then. Exits 0 if no case failed, with the program's status if cases failed, and 1 if a process died.

meson runs each program of cases through it (tests/meson.build).
"""
import os
import re
import select
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

OUTPUT_OPTION, FILTER_OPTION = "--gtest_output=xml:", "--gtest_filter="
TAIL_LINES = 60  # of a process that died, in the message of its failure
DEATHS_MAX = 100
CASE_LINE = re.compile(r"\[ +(RUN|OK|FAILED|SKIPPED) +\] (\S+?)\.([^\s,]+)")
SUITE_LINE = re.compile(r"\[-{10}\] \d+ tests? from ([^\s,]+)[^()]*(\(\d+ ms total\))?")


class Results:
    """Results of the processes that died. A process that ends writes its own."""

    def __init__(self):
        self.root = ElementTree.Element("testsuites", name="AllTests")
        self.suites = {}

    def add(self, suite, name, kind="", message=""):
        if suite not in self.suites:
            self.suites[suite] = ElementTree.SubElement(self.root, "testsuite", name=suite)
        case = ElementTree.SubElement(self.suites[suite], "testcase", name=name, classname=suite, status="run", time="0")
        if kind:
            ElementTree.SubElement(case, kind, message=message).text = message

    def write(self, path, last):
        """`last`: the results of the process that ended, or None."""
        for suite in last.getroot().findall("testsuite") if last is not None else []:
            self.root.append(suite)
        cases = list(self.root.iter("testcase"))
        for key, kind in (("failures", "failure"), ("errors", "error")):
            self.root.set(key, str(sum(case.find(kind) is not None for case in cases)))
        self.root.set("tests", str(len(cases)))
        ElementTree.ElementTree(self.root).write(path, encoding="utf-8", xml_declaration=True)


class Process:
    """A run of the program: its output, the cases that ended, and the one that runs."""

    def __init__(self, command):
        self.ended = []  # (suite, name, "OK", "FAILED" or "SKIPPED", output)
        self.running = None
        self.suite = None  # that runs
        self.tail = []  # of the output, since the case began if one runs
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def wait(self):
        rest = b""
        for piece in self.pieces():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                self.take(line.decode(errors="replace") + "\n")
            sys.stdout.flush()
        self.take(rest.decode(errors="replace"))
        return self.process.wait()

    def pieces(self):
        """The output as it comes. Its end is not awaited after that of the process, whose children may hold the pipe."""
        pipe = self.process.stdout.fileno()
        while True:
            is_over = self.process.poll() is not None
            if select.select([pipe], [], [], 0 if is_over else 0.2)[0]:
                piece = os.read(pipe, 1 << 16)
                if not piece:
                    return
                yield piece
            elif is_over:
                return

    def take(self, line):
        sys.stdout.write(line)
        self.tail = self.tail[-TAIL_LINES + 1:] + [line]
        for suite, total in SUITE_LINE.findall(line):
            self.suite = None if total else suite
        for what, suite, name in CASE_LINE.findall(line):
            if what == "RUN":
                self.running, self.tail = (suite, name), []
            elif self.running == (suite, name):
                self.ended.append((suite, name, what, "".join(self.tail[:-1])))
                self.running = None


def how_it_ended(status):
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def read_xml(path):
    try:
        return ElementTree.parse(path)
    except (OSError, ElementTree.ParseError):
        return None


def printable(text):
    return "".join(c for c in text if c in "\n\t" or (c >= " " and c not in "\ufffe\uffff" and not "\ud800" <= c <= "\udfff"))


class Runner:
    def __init__(self, program, arguments):
        self.program = program
        self.arguments = [argument for argument in arguments if not argument.startswith((OUTPUT_OPTION, FILTER_OPTION))]
        self.output = next((a[len(OUTPUT_OPTION):] for a in reversed(arguments) if a.startswith(OUTPUT_OPTION)), "")
        self.wanted = next((a[len(FILTER_OPTION):] for a in reversed(arguments) if a.startswith(FILTER_OPTION)),
                           os.environ.get("GTEST_FILTER", "*"))
        self.results = Results()
        self.through = []  # names of cases and suites of processes that died, as a filter has them
        self.is_told_to_end = False

    def end(self, *_):
        self.is_told_to_end = True
        self.current.process.terminate()

    def take_death(self, status):
        """Notes the results of a process that died; false if no case or suite can be blamed for it."""
        process = self.current
        for suite, name, how, output in process.ended:
            self.results.add(suite, name, {"OK": "", "FAILED": "failure", "SKIPPED": "skipped"}[how], printable(output))
            self.pass_over(suite if suite != process.suite else f"{suite}.{name}")
        why = "no end before the time of its suite was over" if self.is_told_to_end else \
            f"the process ended with {how_it_ended(status)}"
        program = os.path.basename(self.program)
        suite, name = process.running or ((process.suite, "outside_of_its_cases") if process.suite else (program, "outside_of_its_cases"))
        self.results.add(suite, name, "failure", printable(f"{why}\n{''.join(process.tail)}"))
        print(f"run_cases: {suite}.{name}: {why}", flush=True)
        self.pass_over(f"{suite}.{name}" if process.running else suite)
        return suite != program

    def pass_over(self, name):
        name = name if "." in name else f"{name}.*"
        if name not in self.through:
            self.through.append(name)

    def filter(self):
        return f"{self.wanted}{':' if '-' in self.wanted else '-'}{':'.join(self.through)}" if self.through else self.wanted

    def run(self):
        signal.signal(signal.SIGTERM, self.end)
        has_died = False
        for _ in range(DEATHS_MAX):
            if self.output and os.path.exists(self.output):
                os.remove(self.output)
            self.current = Process([self.program, *self.arguments, FILTER_OPTION + self.filter(), OUTPUT_OPTION + self.output])
            status = self.current.wait()
            last = read_xml(self.output)
            if last is not None and self.current.running is None and not self.is_told_to_end:
                # All cases are through. A status without a failed case comes from a sanitizer at the end.
                if status != 0 and last.find(".//failure") is None:
                    self.current.ended, self.current.suite = [], None
                    self.take_death(status)
                self.results.write(self.output, last)
                return 1 if has_died else abs(status)
            has_died = True
            if not self.take_death(status) or self.is_told_to_end:
                break
        self.results.write(self.output, None)
        return 1


def main():
    program, arguments = sys.argv[1], sys.argv[2:]
    if not any(argument.startswith(OUTPUT_OPTION) for argument in arguments):
        os.execv(program, [program, *arguments])
    sys.exit(Runner(program, arguments).run())


main()
