"""Records a session with the program for the README: a table answered into columns, a plan, and a batch beside a chat, with
the demo model.

    pip install pyte
    python3 tests/bench/record_session.py PROGRAM [FOLDER]

Drives the program in a pseudo-terminal and writes FOLDER/session.cast (asciicast v2, for `asciinema play`) and
FOLDER/session.svg (the same as an animation, or its last picture where animations are off). FOLDER defaults to man/. Long
waits are cut. Run it by hand after the program's output has changed.
"""
import fcntl
import json
import os
import pty
import select
import shutil
import signal
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path
from xml.sax.saxutils import escape

import pyte

ROOT = Path(__file__).resolve().parents[2]
COLUMNS, ROWS = 110, 24
WAIT_MAX_S = 0.9       # longer waits are cut
TYPING_S = 0.035       # between two keys
READ_S = 1.6           # after each command, to read its output
END_S = 6.0            # before the animation restarts
SILENCE_MAX_S = 60     # after this the recording fails
FRAME_S = 0.15         # least time between two pictures of the animation
COPIES = 100           # of the sixty rows of prompts/notes.jsonl, so that progress shows
TABLE = "country,continent\nPeru,South America\nFrance,Europe\nJapan,Asia\nEgypt,Africa\n"

CELL_W, CELL_H, MARGIN = 8, 17, 14
FOREGROUND, BACKGROUND = "#e6edf3", "#0d1117"
COLOURS = {"default": FOREGROUND, "green": "#3fb950", "red": "#ff7b72", "blue": "#79c0ff", "cyan": "#76e3ea",
           "magenta": "#d2a8ff", "brown": "#e3b341", "yellow": "#e3b341", "black": "#6e7681", "white": FOREGROUND}


class Recorder:
    def __init__(self):
        self.events = []  # (second, text)
        self.now = 0.0

    def show(self, text, after=0.0):
        self.now += min(after, WAIT_MAX_S)
        self.events.append((round(self.now, 3), text))

    def wait(self, seconds):
        self.now += seconds

    def type(self, text):
        for letter in text:
            self.wait(TYPING_S)
            self.show(letter)


def run(recorder, program, command, folder, keys=()):
    """Types `command` at a prompt and runs it; `keys` is [(shown, typed, seconds)]: the text that is typed some time after
    another was shown."""
    recorder.show("\x1b[32m$\x1b[0m ")
    recorder.wait(0.4)
    recorder.type(command)
    recorder.wait(0.3)
    recorder.show("\r\n")
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(folder)
        environment = {"TERM": "xterm-256color", "HOME": str(folder), "LANG": "C.UTF-8", "PATH": os.environ["PATH"]}
        words = command.split("'")  # a command has at most one quoted word
        arguments = words[0].split() + (words[1:2] + words[2].split() if len(words) > 2 else [])
        os.execve(program if arguments[0] == "minisgl" else shutil.which(arguments[0]), arguments, environment)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    keys, shown, last, due = list(keys), "", time.monotonic(), None
    while True:
        ready, _, _ = select.select([fd], [], [], 0.05)
        if ready:
            try:
                data = os.read(fd, 65536)
            except OSError:
                break
            if not data:
                break
            text, now = data.decode("utf-8", "replace"), time.monotonic()
            recorder.show(text, now - last)
            shown, last = shown + text, now
            if due is None and keys and keys[0][0] in shown:
                due = now + keys[0][2]
        elif due is not None and time.monotonic() >= due:
            typed = keys.pop(0)[1]
            shown, due = "", None
            recorder.wait(0.5)
            for letter in typed:
                recorder.wait(TYPING_S)
                os.write(fd, letter.encode())
                # The program's echo comes at the pace of typing.
                if select.select([fd], [], [], 0.2)[0]:
                    text = os.read(fd, 65536).decode("utf-8", "replace")
                    recorder.show(text)
                    shown += text
            last = time.monotonic()
            if keys and keys[0][0] in shown:
                due = last + keys[0][2]
        elif time.monotonic() - last > SILENCE_MAX_S:
            os.kill(pid, signal.SIGKILL)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
        sys.exit(f"{command}: failed\n{shown}")
    recorder.wait(READ_S)


def write_cast(recorder, path):
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "minisgl",
              "env": {"TERM": "xterm-256color", "SHELL": "/bin/sh"}}
    lines = [json.dumps(header)] + [json.dumps([second, "o", text]) for second, text in recorder.events]
    path.write_text("\n".join(lines) + "\n")


def row_of(screen, y):
    """The spans of a row, each (text, colour, bold), without trailing blanks."""
    spans = []
    for x in range(COLUMNS):
        cell = screen.buffer[y][x]
        style = (COLOURS.get(cell.fg, FOREGROUND), cell.bold)
        if spans and spans[-1][1:] == style:
            spans[-1] = (spans[-1][0] + cell.data, *style)
        else:
            spans.append((cell.data, *style))
    while spans and not spans[-1][0].strip():
        spans.pop()
    if spans:
        spans[-1] = (spans[-1][0].rstrip(), *spans[-1][1:])
    return tuple(spans)


def shown_rows(recorder):
    """The contents of each row over time: [(y, spans, begin, end)], and the length of the whole."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.Stream(screen)
    standing, done, frame = {}, [], -FRAME_S
    for number, (second, text) in enumerate(recorder.events):
        stream.feed(text)
        is_last = number + 1 == len(recorder.events)
        if not is_last and recorder.events[number + 1][0] < frame + FRAME_S:
            continue
        frame = second
        for y in range(ROWS):
            spans = row_of(screen, y)
            before, since = standing.get(y, ((), 0))
            if spans == before:
                continue
            if before:
                done.append((y, before, since, second))
            standing[y] = (spans, second)
    total = recorder.events[-1][0] + END_S
    done += [(y, spans, since, None) for y, (spans, since) in standing.items() if spans]
    return done, total


def line_svg(number, y, spans, is_last):
    length = sum(len(text) for text, _, _ in spans)
    parts = "".join(f'<tspan fill="{colour}"{" font-weight=" + chr(34) + "bold" + chr(34) if bold else ""}>'
                    f"{escape(text)}</tspan>" if (colour, bold) != (FOREGROUND, False) else escape(text)
                    for text, colour, bold in spans)
    hidden = "" if is_last else ' opacity="0"'
    return (f'<text class="a{number}" x="{MARGIN}" y="{MARGIN + CELL_H * y + 13}" textLength="{CELL_W * length}"'
            f' xml:space="preserve"{hidden}>{parts}</text>')


def write_svg(recorder, path):
    rows, total = shown_rows(recorder)
    height_rows = max(y for y, _, _, _ in rows) + 1
    width, height = COLUMNS * CELL_W + 2 * MARGIN, height_rows * CELL_H + 2 * MARGIN
    percent = lambda second: f"{100 * second / total:.2f}%"
    css, body = [], []
    for number, (y, spans, begin, end) in enumerate(rows):
        off = f"{percent(end)}{{opacity:0}}" if end is not None else ""
        css.append(f"@keyframes k{number}{{0%{{opacity:0}}{percent(begin)}{{opacity:1}}{off}}}"
                   f".a{number}{{animation:k{number} {total:.1f}s steps(1,end) infinite}}")
        body.append(line_svg(number, y, spans, end is None))
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">\n'
        f"<title>A session with minisgl</title>\n<style>\n"
        f"text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:{FOREGROUND};"
        f"white-space:pre}}\n" + "\n".join(css) +
        "\n@media (prefers-reduced-motion:reduce){text{animation:none!important}}\n</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>\n' + "\n".join(body) + "\n</svg>\n")


def main():
    program = str(Path(sys.argv[1]).resolve())
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "man"
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT / "tests" / "models" / "wren", folder / "wren")
        rows = [json.loads(line) for line in (ROOT / "prompts" / "notes.jsonl").read_text().splitlines()]
        with open(folder / "notes.jsonl", "w") as file:
            for copy in range(COPIES):
                for row in rows:
                    file.write(json.dumps({**row, "id": f"{row['id']}-{copy}"}) + "\n")
        (folder / "countries.csv").write_text(TABLE)
        run(recorder, program, "minisgl run -m wren --file countries.csv --template "
            "'What is the capital of {{ country }}?' -o capitals.csv", folder)
        run(recorder, program, "cat capitals.csv", folder)
        run(recorder, program, "minisgl plan -m wren notes.jsonl", folder)
        recorder.show("\x1b[2J\x1b[H")
        run(recorder, program, "minisgl chat -m wren", folder,
            [("leaves.", "/batch notes.jsonl answers.jsonl\r", 0), ("[batch", "What is the capital of Peru?\r", 1.2),
             ("Lima", "How do you spell house?\r", 1.2), ("h-o-u-s-e", "/batch wait\r", 1.2), ("done:", "\x04", 0.5)])
    target.mkdir(parents=True, exist_ok=True)
    write_cast(recorder, target / "session.cast")
    write_svg(recorder, target / "session.svg")
    for path in (target / "session.cast", target / "session.svg"):
        print(f"{path}: {path.stat().st_size} bytes, {recorder.now:.0f} s")


main()
