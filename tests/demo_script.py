"""Tests prompts/demo.sh on machines that lack something, as TAP: runs a copy of it with stubs for meson, ninja, the package
tools, nvcc and nvidia-smi, and compares its messages and its exit status.

    python3 tests/demo_script.py SOURCE_ROOT
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE_ROOT = Path(sys.argv[1]).resolve()
TOOLS = ["sh", "awk", "sed", "grep", "sort", "head", "tail", "df", "date", "mktemp", "rm", "cat", "tr", "dirname", "mkdir", "env",
         "touch", "cp", "chmod", "wc"]
# The stubs of a machine on which everything succeeds; a case replaces some of them. Every call is recorded.
STUBS = {
    "dpkg-query": 'printf "install ok installed"',
    "apt-get": "exit 0",
    "id": "echo 0",
    "meson": """case $1 in
        --version) echo 1.0.1 ;;
        *) mkdir -p build/meson-private; touch build/meson-private/coredata.dat build/build.ninja; echo "CUDA engine : sm_89" ;;
        esac""",
    "ninja": """echo "[1/1] Linking target src/cli/minisgl"
        mkdir -p build/src/cli; cp "$ROOT/program" build/src/cli/minisgl""",
}
PROGRAM = """#!/bin/sh
echo '{"id": "q1", "text": "blue", "expected": "blue", "usage": {"prompt_tokens": 400, "cached_tokens": 390}}'
echo '{"id": "q2", "text": "red", "expected": "green", "usage": {"prompt_tokens": 400, "cached_tokens": 390}}'
"""
CAPABILITY = "echo 8.9"
NVCC = 'echo "Cuda compilation tools, release 12.4, V12.4.99"'
COMPILER_ERROR = 'echo "../src/a.cc:3:7: error: no member named x"; exit 1'


class Machine:
    """A folder with the demo, and a PATH of the tools and stubs of one case."""

    def __init__(self, folder, stubs, gpu):
        self.folder, self.calls = folder, folder / "calls"
        (folder / "prompts").mkdir()
        (folder / "tests").mkdir()
        (folder / "bin").mkdir()
        shutil.copy(SOURCE_ROOT / "tests/packages.sh", folder / "tests")
        demo = (SOURCE_ROOT / "prompts/demo.sh").read_text()
        for device in ("/dev/nvidia0", "/dev/dxg", "/usr/lib/wsl", "/usr/local/cuda"):
            assert device in demo, device
            demo = demo.replace(device, f"{folder}/root{device}")
        (folder / "prompts/demo.sh").write_text(demo)
        question = {"messages": [{"role": "user", "content": "What colour?"}]}
        (folder / "prompts/notes.jsonl").write_text("".join(json.dumps({"id": f"q{i}", **question}) + "\n" for i in (1, 2)))
        (folder / "program").write_text(PROGRAM)
        (folder / "program").chmod(0o755)
        if gpu:
            (folder / "root/dev").mkdir(parents=True)
            (folder / "root/dev" / gpu).touch()
        for tool in TOOLS:
            (folder / "bin" / tool).symlink_to(shutil.which(tool))
        for name, script in {**STUBS, **stubs}.items():
            if script is not None:
                stub = folder / "bin" / name
                stub.unlink(missing_ok=True)
                stub.write_text(f'#!/bin/sh\necho "{name} $*" >>"$ROOT/calls"\n{script}\n')
                stub.chmod(0o755)

    def run(self):
        self.calls.write_text("")
        return subprocess.run([self.folder / "bin/sh", "prompts/demo.sh"], cwd=self.folder, capture_output=True, text=True,
                              env={"PATH": str(self.folder / "bin"), "ROOT": str(self.folder), "TMPDIR": str(self.folder)},
                              stdin=subprocess.DEVNULL)


cases = []


def case(name, stubs=None, gpu="", prepare=None, status=1, says=(), says_not=(), calls=(), calls_not=()):
    cases.append((name, stubs or {}, gpu, prepare, status, says, says_not, calls, calls_not))


def broken_build(root):
    (root / "build/meson-private").mkdir(parents=True)
    (root / "build/build.ninja").write_text("cut off")
    (root / "build/.ninja_log").write_text("old")


def half_configured(root):
    (root / "build/meson-private").mkdir(parents=True)
    (root / "build/meson-private/coredata.dat").touch()


# Meson refuses a folder that it configured before, and ends with 0 although there is no build.ninja.
REFUSES_CONFIGURED = """case $1 in --version) echo 1.0.1; exit ;; esac
    if [ -f build/meson-private/coredata.dat ]; then echo "Directory already configured."; exit 0; fi
    mkdir -p build/meson-private; touch build/build.ninja"""
BUILDS_IF_CONFIGURED = ('if grep -q "cut off" build/build.ninja; then echo "ninja: error: build.ninja:1: expected ="; exit 1; fi\n'
                        + STUBS["ninja"])

case("all goes well", status=0, says=["1 of 2 answers are right", "800 prompt tokens 780 (97 %)", "Next, talk to the model"],
     calls=["-Dcuda=disabled"], calls_not=["apt-get"])
case("a package that another needs is missing", {"meson": 'case $1 in --version) echo 1.0.1 ;; *) '
     'echo "ERROR: Dependency \\"fmt\\" not found, tried pkgconfig"; exit 1 ;; esac'},
     says=['ERROR: Dependency "fmt" not found', "could not be configured", "libfmt-dev"])
case("meson is old", {"meson": "echo 0.61.2"}, says=["meson 0.61.2 is too old: 1.0.1"], calls_not=["ninja"])
case("meson is newer than two digits", {"meson": STUBS["meson"].replace("1.0.1", "1.10.0")}, status=0)
case("no meson", {"meson": None}, says=["meson is not installed"])
case("neither root nor sudo", {"dpkg-query": "exit 1", "id": "echo 1000"},
     says=["only root can install", "As root: apt-get install g++ meson"], calls_not=["apt-get", "meson"])
case("sudo refuses", {"dpkg-query": "exit 1", "id": "echo 1000", "sudo": 'echo "sudo: a password is required" >&2; exit 1'},
     says=["sudo: a password is required", "sudo refused"], calls=["sudo -n"], calls_not=["meson"])
case("no network", {"dpkg-query": "exit 1", "apt-get":
     'echo "W: Temporary failure resolving \'deb.debian.org\'"; case $1 in update) exit 0 ;; esac; exit 100'},
     says=["Temporary failure resolving", "The package server cannot be reached"])
case("a system without the packages", {"dpkg-query": "exit 1", "apt-get":
     'case $1 in update) exit 0 ;; esac; echo "E: Unable to locate package libhwy-dev"; exit 100'},
     says=["Unable to locate package libhwy-dev", "Debian 12"])
case("no apt", {"dpkg-query": None, "apt-get": None}, status=0, says=["This system has no apt", "g++ meson"])
case("little space on the disk", {"df": 'echo "Filesystem 1024-blocks Used Available Capacity Mounted on"; echo "a 9 9 51200 9% /"'},
     says=["The disk has 50 MB left"], calls_not=["meson setup"])
case("the disk is full while it builds", {"ninja": 'echo "a.s: Fatal error: can\'t write: No space left on device"; exit 1'},
     says=["No space left on device", "The disk is full"])
case("the compiler refuses", {"ninja": COMPILER_ERROR}, prepare=broken_build,
     says=["../src/a.cc:3:7: error", "The program was not built"], calls_not=["meson setup"])
case("out of memory", {"ninja": 'echo "c++: fatal error: Killed signal terminated program cc1plus"; exit 1'},
     says=["Killed signal", "NINJAFLAGS=-j1"])
case("a build folder that is broken", {"ninja": BUILDS_IF_CONFIGURED, "meson": STUBS["meson"].replace(
     "touch build/meson-private/coredata.dat", "echo whole >build/build.ninja; touch")}, prepare=broken_build, status=0,
     says=["incomplete: configuring it again", "1 of 2"], calls=["meson setup build"])
case("a build folder that is half configured", {"meson": REFUSES_CONFIGURED}, prepare=half_configured, status=0, says=["1 of 2"])
case("the program fails", {"ninja": STUBS["ninja"] + '\necho "exit 3" | cat - >build/src/cli/minisgl; chmod +x build/src/cli/minisgl'},
     status=3, says=["Built in"])
case("a GPU and nvcc", {"nvidia-smi": CAPABILITY, "nvcc": NVCC}, gpu="nvidia0", status=0,
     says=["for the CPU and for the GPU (sm_89)"], calls=["-Dgpu_archs=sm_89 -Dcuda=auto"])
case("a GPU of compute capability 9.0", {"nvidia-smi": "echo 9.0", "nvcc": NVCC}, gpu="nvidia0", status=0, calls=["-Dgpu_archs=sm_90a "])
case("a GPU under WSL", {"nvidia-smi": CAPABILITY, "nvcc": NVCC}, gpu="dxg", status=0, calls=["-Dgpu_archs=sm_89 "])
case("a GPU of another vendor under WSL", gpu="dxg", status=0, says_not=["GPU"], calls=["-Dcuda=disabled"])
case("a GPU, and a build folder for the CPU", {"nvidia-smi": CAPABILITY, "nvcc": NVCC}, gpu="nvidia0", status=0,
     prepare=lambda root: ((root / "build").mkdir(), (root / "build/build.ninja").touch()),
     says=["for the CPU and for the GPU (sm_89)"], calls=["meson setup --reconfigure build"])
case("a GPU and no nvcc", {"nvidia-smi": CAPABILITY}, gpu="nvidia0", status=0,
     says=["no nvcc of CUDA 12 or newer: this build is for the CPU"], calls=["-Dcuda=disabled"])
case("a GPU and an old nvcc", {"nvidia-smi": CAPABILITY, "nvcc": NVCC.replace("12.4", "11.8")}, gpu="nvidia0", status=0,
     says=["no nvcc of CUDA 12 or newer"], calls=["-Dcuda=disabled"])
case("a GPU and an nvcc that does not work", {"nvidia-smi": CAPABILITY, "nvcc": NVCC, "meson": STUBS["meson"].replace("sm_89", "no")},
     gpu="nvidia0", status=0, says=["nvcc cannot build for this GPU"], says_not=["and for the GPU ("])
case("a GPU and an nvidia-smi that fails", {"nvidia-smi": 'echo "Failed to initialize NVML"; exit 18', "nvcc": NVCC}, gpu="nvidia0",
     status=0, says=["no nvidia-smi that names its architecture"], calls=["-Dcuda=auto"], says_not=["sm_75"])
case("a GPU that is too old", {"nvidia-smi": "echo 7.5", "nvcc": NVCC}, gpu="nvidia0", status=0,
     says=["older than compute capability 8.0"], calls=["-Dcuda=disabled"])

print(f"1..{len(cases)}")
all_pass = True
for number, (name, stubs, gpu, prepare, status, says, says_not, calls, calls_not) in enumerate(cases, 1):
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder), stubs, gpu)
        if prepare:
            prepare(Path(folder))
        result = machine.run()
        called = "\n" + machine.calls.read_text()
        faults = [f"ends with {result.returncode} instead of {status}"] if result.returncode != status else []
        faults += [f"does not say: {text}" for text in says if text not in result.stderr]
        faults += [f"says: {text}" for text in says_not if text in result.stderr]
        faults += [f"does not call: {text}" for text in calls if text not in called]
        faults += [f"calls: {text}" for text in calls_not if f"\n{text}" in called]
        left = sorted(path.name for path in Path(folder).glob("tmp.*"))
        faults += [f"leaves {name}" for name in left]
        if status == 0 and len(result.stdout.splitlines()) != 2:
            faults.append("standard output does not hold the rows")
        if status != 0 and result.stdout:
            faults.append("standard output is not empty")
    all_pass &= not faults
    print(f"{'not ' if faults else ''}ok {number} - {name}")
    for line in faults and faults + result.stderr.splitlines() + [call for call in called.splitlines() if "dpkg" not in call]:
        print(f"# {line}")
sys.exit(not all_pass)
