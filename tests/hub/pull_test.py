"""Tests `minisgl pull` against a hub of its own on the loopback, as TAP.

    python3 tests/hub/pull_test.py MINISGL_BINARY DEMO_MODEL
"""
import argparse
import hashlib
import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from hub_server import COMMIT, Hub, git_hash

BINARY, DEMO = sys.argv[1], Path(sys.argv[2])
MODEL = "small/wren"
WEIGHTS = bytes(range(256)) * 400
TIMEOUT_S = 600  # only a fault lasts so long
PART_BYTES = 4 << 40  # takes longer than that to hash


def small_files():
    return {
        "README.md": (b"# a card", False),
        "config.json": (b'{"a": 1}', False),
        "consolidated.safetensors": (b"the same weights once more" * 100, True),
        "model.safetensors": (WEIGHTS, True),
        "model.fp16.safetensors": (b"and in another type", True),
        "onnx/config.json": (b"{}", False),
        "original/model.safetensors": (b"again", True),
        "pytorch_model.bin": (b"and as a pickle", True),
        "pytorch_model.bin.index.json": (b"{}", False),
        "tokenizer.json": (b'{"b": "\xc3\xa9"}', False),
        "chat_template.jinja": (b"{{ messages }}", False),
        "vocab.txt": (b"", False),
    }


ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
CHOSEN = ["chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json", "vocab.txt"]


class Case:
    """A hub and a cache of their own."""

    def __init__(self, **faults):
        self.folder = tempfile.TemporaryDirectory(prefix="minisgl-test-")
        self.hub = Hub(MODEL, faults.pop("files", small_files()), **faults)
        self.cache = Path(self.folder.name) / "hub"
        self.repository = self.cache / "models--small--wren"
        self.snapshot = self.repository / "snapshots" / COMMIT

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.hub.close()
        self.folder.cleanup()

    def environment(self, more):
        clean = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy") and not key.startswith("HF_")}
        clean["XDG_CONFIG_HOME"] = "/nonexistent"
        return clean | {"HF_ENDPOINT": self.hub.url() + "/", "HF_HUB_CACHE": str(self.cache)} | more

    def begin(self, *arguments, **environment):
        return subprocess.Popen([BINARY, "pull", *(arguments or [MODEL])], env=self.environment(environment), text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)

    def pull(self, *arguments, status=0, says=(), **environment):
        process = self.begin(*arguments, **environment)
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == status, f"exit status {process.returncode}, not {status}: {err}"
        for words in [says] if isinstance(says, str) else says:
            assert words in err, f"{words!r} is not in {err!r}"
        return out, err

    def check(self, names=tuple(CHOSEN)):
        """The cache holds the files `names` and nothing else."""
        found = sorted(path.relative_to(self.snapshot).as_posix() for path in self.snapshot.rglob("*") if not path.is_dir())
        assert found == sorted(names), found
        hashes = set()
        for name in names:
            data, is_lfs = self.hub.files[name]
            hashes.add(hashlib.sha256(data).hexdigest() if is_lfs else git_hash(data))
            link = self.snapshot / name
            assert os.readlink(link) == "../" * (2 + name.count("/")) + "blobs/" + (
                hashlib.sha256(data).hexdigest() if is_lfs else git_hash(data)), os.readlink(link)
            assert link.read_bytes() == data, name
        assert {path.name for path in (self.repository / "blobs").iterdir()} == hashes

    def part(self):
        return self.repository / "blobs" / (hashlib.sha256(WEIGHTS).hexdigest() + ".incomplete")

    def ranges(self):
        return [request[3].get("Range") for request in self.hub.seen("store")]

    def wait_for_part(self):
        deadline = time.monotonic() + TIMEOUT_S
        while not (self.part().exists() and self.part().stat().st_size == self.hub.cut_after):
            assert time.monotonic() < deadline, "no part of the weights arrived"
            time.sleep(0.01)


def a_model_is_downloaded_into_the_caches_layout():
    with Case() as case:
        out, err = case.pull()
        assert out == f"{case.snapshot}\n", out
        assert "5 files" in err, err
        assert f"minisgl chat -m {MODEL} talks to it\n" in err, err
        case.check()
        assert (case.repository / "refs/main").read_text() == COMMIT
        assert not [path for path in case.cache.rglob("*.incomplete")]


def a_second_pull_downloads_nothing():
    with Case() as case:
        case.pull()
        case.hub.requests.clear()
        case.pull(says="0 B")
        assert len(case.hub.requests) == 1 and "/api/models/" in case.hub.requests[0][2], case.hub.requests
        case.check()


def the_pulled_demo_model_runs():
    files = {path.name: (path.read_bytes(), path.suffix == ".safetensors") for path in DEMO.iterdir() if path.is_file()}
    with Case(files=files) as case:
        case.pull()
        done = subprocess.run([BINARY, "models", "--json"], env=case.environment({}), capture_output=True, text=True, timeout=TIMEOUT_S)
        model = json.loads(done.stdout)["models"][0]
        assert model["model"] == MODEL and model["runs"] and model["refs"] == ["main"], model
        done = subprocess.run([BINARY, "run", "-m", MODEL, "-p", "a", "--max-tokens", "1"], env=case.environment({}), capture_output=True, text=True,
                              timeout=TIMEOUT_S)
        assert done.returncode == 0, done.stderr


def an_adapter_is_downloaded_listed_and_found():
    """A repository without a model has two files that are downloaded; `--adapter OWNER/NAME` finds them."""
    golden = DEMO.parent.parent / "golden"
    own = golden / "adapters/llama_yarn/plain"
    files = {name: ((own / name).read_bytes(), name.endswith("safetensors")) for name in ADAPTER}
    others = {"README.md": (b"# a card", False), "tokenizer.json": (b"{}", False), "optimizer.pt": (b"states", True),
              "checkpoint-5/adapter_model.safetensors": (b"older", True)}
    with Case(files=files | others) as case:
        _, err = case.pull()
        assert f"an adapter: --adapter {MODEL} " in err, err
        case.check(ADAPTER)
        done = subprocess.run([BINARY, "models", "--json"], env=case.environment({}), capture_output=True, text=True, timeout=TIMEOUT_S)
        (entry,) = json.loads(done.stdout)["models"]
        assert entry["runs"] and entry["architecture"] == "adapter" and entry["bytes"] == sum(len(data) for data, _ in files.values()), entry
        assert entry["adapter"] == {"base": "models/llama_yarn", "rank_min": 4, "rank_max": 4}, entry
        done = subprocess.run([BINARY, "models"], env=case.environment({}), capture_output=True, text=True, timeout=TIMEOUT_S)
        assert "as an adapter of models/llama_yarn, rank 4" in done.stdout, done.stdout
        # The demo's model is not its base: its files are found, and do not fit.
        for option in (["--adapter", MODEL], ["--adapter", f"x={MODEL}@main"], ["--merge-adapter", MODEL]):
            done = subprocess.run([BINARY, "info", "-m", DEMO, *option], env=case.environment({}), capture_output=True, text=True,
                                  timeout=TIMEOUT_S)
            assert done.returncode != 0 and str(case.snapshot) in done.stdout + done.stderr, (done.stdout, done.stderr)
            assert option[1] != MODEL or "--merge" in option[0] or f"wren: {case.snapshot}" in done.stdout, done.stdout
        done = subprocess.run([BINARY, "run", "-m", MODEL, "-p", "a"], env=case.environment({}), capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode != 0 and "is an adapter, not a model" in done.stderr, done.stderr
        done = subprocess.run([BINARY, "info", "-m", DEMO, "--adapter", "small/absent"], env=case.environment({}), capture_output=True,
                              text=True, timeout=TIMEOUT_S)
        assert done.returncode != 0 and "minisgl pull small/absent" in done.stderr, done.stderr


def at_a_terminal(case, answer, *arguments):
    """Runs a command with a terminal for all three files, and answers its question."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.clear()
        os.environ.update(case.environment({"TERM": "xterm"}))
        os.execv(BINARY, [BINARY, *arguments])
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # the child has ended
            piece = b""
        if not piece:
            break
        shown += piece
        if b"[y/N] " in shown and answer:
            os.write(terminal, answer)
            answer = b""
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), shown.decode()


def a_missing_model_is_offered_at_a_terminal():
    files = {path.name: (path.read_bytes(), path.suffix == ".safetensors") for path in DEMO.iterdir() if path.is_file()}
    run = ("run", "-m", MODEL, "-p", "What is the capital of France?", "--device", "cpu")
    with Case(files=files) as case:
        for no in (b"\n", b"n\n", b"\x04"):
            status, shown = at_a_terminal(case, no, *run)
            assert status == 66 and f"minisgl: {MODEL} is not in the hub cache" in shown, (status, shown)
            assert f"minisgl pull {MODEL}" in shown and not case.hub.requests, shown
        status, shown = at_a_terminal(case, b"y\n", *run)
        assert status == 0 and "Paris" in shown, (status, shown)
        case.hub.requests.clear()
        status, shown = at_a_terminal(case, b"", *run)  # it is there now
        assert status == 0 and "Paris" in shown and "[y/N]" not in shown and not case.hub.requests, shown
    with Case(error=(404, "RepoNotFound")) as case:
        status, shown = at_a_terminal(case, b"y\n", *run)
        assert status == 66 and "no such model" in shown, (status, shown)


def elsewhere_a_missing_model_names_the_command():
    with Case() as case:
        for command in (("run", "-m", MODEL, "-p", "a"), ("info", MODEL), ("chat", "-m", MODEL)):
            done = subprocess.run([BINARY, *command], env=case.environment({}), capture_output=True, text=True, stdin=subprocess.DEVNULL,
                                  timeout=TIMEOUT_S)
            assert done.returncode == 66 and f"download it by minisgl pull {MODEL}" in done.stderr, done
            assert "[y/N]" not in done.stderr and not case.hub.requests, done


def shards_are_those_of_the_index():
    index = json.dumps({"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}).encode()
    files = {"config.json": (b"{}", False), "model.safetensors.index.json": (index, False), "consolidated.safetensors": (b"c", True),
             "model-1-of-2.safetensors": (b"one", True), "model-2-of-2.safetensors": (b"two" * 1000, True)}
    with Case(files=files) as case:
        case.pull()
        case.check([name for name in files if name != "consolidated.safetensors"])
    del files["model-2-of-2.safetensors"]
    with Case(files=files) as case:
        case.pull(status=65, says="names model-2-of-2.safetensors")
        assert not (case.repository / "refs/main").exists()


def the_token_goes_to_the_endpoint_alone():
    with Case(token="hf_secret") as case:
        case.pull(HF_TOKEN="hf_secret")
        case.check()
        assert all(request[3].get("Authorization") == "Bearer hf_secret" for request in case.hub.seen("hub"))
        assert case.hub.seen("store") and all("Authorization" not in request[3] for request in case.hub.seen("store"))
    with Case(token="hf_secret") as case:  # back to the endpoint by way of another host
        case.hub.redirect_to = f"{case.hub.url('store')}/store/model.safetensors"
        case.hub.send_content = lambda request, name, headers=None: case.hub.send(
            request, 302, b"", {"Location": f"{case.hub.url()}/caught"}) if headers is None else Hub.send_content(
                case.hub, request, name, headers)
        case.pull(HF_TOKEN="hf_secret", status=69)
        assert case.hub.seen("hub", "caught") and "Authorization" not in case.hub.seen("hub", "caught")[0][3]


def a_token_with_a_line_break_is_refused():
    with Case() as case:
        _, err = case.pull(HF_TOKEN="hf_secret\r\nX-A: b", status=64, says="HF_TOKEN")
        assert "hf_secret" not in err and not case.hub.requests


def a_gated_model_says_what_to_do():
    with Case(token="hf_secret") as case:
        case.pull(status=69, says=["accept its terms at", f"/{MODEL}", "HF_TOKEN is not set", "Access is restricted"])
        case.pull(status=69, says="HF_TOKEN is set", HF_TOKEN="hf_other")
        assert not case.repository.exists()


def what_the_hub_has_not_is_named():
    with Case(error=(404, "RepoNotFound")) as case:
        case.pull(status=66, says=[MODEL, "no such model", "as told"])
    with Case(error=(401, "RepoNotFound")) as case:
        case.pull(status=69, says="no such model, or it is private")
    with Case() as case:
        case.pull(MODEL + "@nowhere", status=66, says="has no revision nowhere")
        case.pull("--include", "*.gguf", MODEL, status=66, says="no file matches")
    with Case(files={"model.gguf": (b"GGUF", True)}) as case:
        case.pull(status=66, says="no safetensors")


def names_of_models_are_checked():
    with Case() as case:
        for name in ("wren", "a/b/c", "../b", "a/..", "a/b@", "a/b@../x", "a/b@x//y", "a/b?x=1", "/b", "a--b/c", "a/b@x y"):
            case.pull(name, status=64)
        assert not case.hub.requests and not case.cache.exists()


def revisions_have_refs_and_commits_have_none():
    with Case() as case:
        case.pull(MODEL + "@v1.0")
        case.pull(MODEL + "@refs/pr/7")
        case.pull(MODEL + "@" + COMMIT)
        refs = {path.relative_to(case.repository / "refs").as_posix(): path.read_text()
                for path in (case.repository / "refs").rglob("*") if path.is_file()}
        assert refs == {"v1.0": COMMIT, "refs/pr/7": COMMIT}, refs


def patterns_choose_files():
    with Case() as case:
        case.pull("--include", "*.md", "--include", "original/*", MODEL)
        case.check(["README.md", "original/model.safetensors"])
        case.pull()
        case.check(CHOSEN + ["README.md", "original/model.safetensors"])


def a_cut_download_continues():
    with Case(cuts=2, cut_after=30000) as case:
        case.pull()
        case.check()
        assert case.ranges() == [None, "bytes=30000-", "bytes=60000-"], case.ranges()


def a_server_without_ranges_sends_all_again():
    with Case(cuts=1, cut_after=30000, ignores_ranges=True) as case:
        case.pull()
        case.check()
        assert case.ranges() == [None, "bytes=30000-"], case.ranges()


def a_busy_hub_is_asked_again():
    with Case(busy=2) as case:
        case.pull()
        case.check()


def a_hub_that_always_cuts_ends_the_pull():
    with Case(cuts=100, cut_after=20000) as case:
        case.pull(status=69, says="model.safetensors")
        assert len(case.ranges()) == 5, case.ranges()
        assert case.part().stat().st_size == 100000


def no_hub_is_an_error():
    with Case() as case:
        url = case.hub.url()
        case.hub.servers["hub"].server_close()
        case.pull(status=69, says="check the network", HF_ENDPOINT=url)
        case.pull(status=64, says="HF_ENDPOINT", HF_ENDPOINT="ftp://127.0.0.1")


def damaged_bytes_are_downloaded_again():
    with Case(damages=1) as case:
        case.pull(says="damaged; downloading it once more")
        case.check()
    with Case(damages=2) as case:
        case.pull(status=74, says=["model.safetensors", hashlib.sha256(WEIGHTS).hexdigest()])
        assert case.part().stat().st_size == 0
        assert not (case.repository / "refs/main").exists() and not (case.snapshot / "model.safetensors").exists()


def a_damaged_part_is_found():
    with Case() as case:
        case.part().parent.mkdir(parents=True)
        case.part().write_bytes(b"x" * 5000)
        case.pull(says="damaged")
        case.check()
        assert case.ranges() == ["bytes=5000-", None], case.ranges()


def a_part_longer_than_the_file_begins_anew():
    with Case() as case:
        case.part().parent.mkdir(parents=True)
        case.part().write_bytes(WEIGHTS + b"more")
        case.pull()
        case.check()


def more_bytes_than_listed_are_refused():
    with Case(extra=b"x") as case:
        case.pull(status=65, says="more than the")


def a_killed_pull_continues():
    with Case(cut_after=30000) as case:
        case.hub.stalls.set()
        process = case.begin()
        case.wait_for_part()
        process.kill()
        process.communicate()
        case.hub.stalls.clear()
        case.pull()
        case.check()
        assert case.ranges() == [None, "bytes=30000-"], case.ranges()


def a_failed_write_keeps_the_part():
    with Case() as case:
        limited = subprocess.run(["sh", "-c", f'ulimit -f 100 && exec "$0" pull {MODEL}', BINARY], env=case.environment({}),
                                 capture_output=True, text=True, timeout=TIMEOUT_S)
        assert limited.returncode == 74 and "cannot be written (File too large)" in limited.stderr, limited
        have = case.part().stat().st_size
        assert 0 < have < len(WEIGHTS), have
        case.pull()
        case.check()
        assert case.ranges() == [None, f"bytes={have}-"], case.ranges()


def an_interrupt_ends_it_and_keeps_the_part():
    with Case(cut_after=30000) as case:
        case.hub.stalls.set()
        process = case.begin()
        case.wait_for_part()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 130, process.returncode
        assert "the same command continues" in err, err
        assert case.part().stat().st_size == 30000


def an_interrupt_ends_the_check_of_a_large_part():
    listing = Hub.list(argparse.Namespace(files=small_files(), lists_hashes=True, model=MODEL, token=None))
    sizes = next(entry for entry in listing["siblings"] if entry["rfilename"] == "model.safetensors")
    sizes["size"] = sizes["lfs"]["size"] = PART_BYTES + 1
    with Case(listing=listing) as case:
        case.part().parent.mkdir(parents=True)
        case.part().touch()
        os.truncate(case.part(), PART_BYTES)  # of a hole: it takes no room
        process = case.begin()
        line = ""
        while "checking" not in line:  # progress may be shown before
            line = process.stderr.readline()
            assert line, "the check is not announced"
        assert "model.safetensors: checking the 4096.0 GiB that are there" in line, line
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 130 and "the same command continues" in err, (process.returncode, err)
        assert case.part().stat().st_size == PART_BYTES


def two_pulls_at_once_download_each_file_once():
    with Case(cut_after=30000) as case:
        case.hub.stalls.set()
        first = case.begin()
        case.wait_for_part()
        second = case.begin()
        line = second.stderr.readline()
        assert "waiting for another download of small/wren" in line, line
        case.hub.stalls.clear()
        for process in (first, second):
            process.communicate(timeout=TIMEOUT_S)
            assert process.returncode == 0
        case.check()
        paths = [request[2] for request in case.hub.requests if "resolve" in request[2]]
        assert len(paths) == len(set(paths)) == len(CHOSEN) - 1, paths  # an empty file needs no request


def hostile_names_write_nothing():
    good = {"size": 1, "blobId": git_hash(b"x")}
    for name in ("../evil", "a/../../evil", "/evil", "a//b", "./a", "a\nb", "a\x1b[2Jb", "a\\b", "x" * 300, "a/" * 40 + "b", "\u202eevil"):
        with Case(listing={"sha": COMMIT, "siblings": [{"rfilename": name, **good}]}) as case:
            case.pull("--include", "*", MODEL, status=65, says="is not accepted")
            assert not case.repository.exists(), name
    for bad in ({"sha": "../../evil", "siblings": []}, {"sha": COMMIT}, {"sha": COMMIT, "siblings": [1]}, [],
                {"sha": COMMIT, "siblings": [{"rfilename": "config.json", "size": 1, "blobId": "../evil"}]},
                {"sha": COMMIT, "siblings": [{"rfilename": "config.json", "size": -1, "blobId": git_hash(b"x")}]},
                {"sha": COMMIT, "siblings": [{"rfilename": "config.json", **good}] * 2}):
        with Case(listing=bad or [0]) as case:
            case.pull("--include", "*", MODEL, status=65, says="the hub's list of files")
            assert not case.repository.exists(), bad


def a_file_below_a_file_is_refused():
    files = {"a": (b"a file", False), "a/b": (b"below it", False)}
    with Case(files=files) as case:
        case.pull("--include", "*", MODEL, status=73, says="symbolic link")


def links_do_not_lead_out_of_the_cache():
    for name in ("blobs", "snapshots", "refs"):
        with Case() as case:
            outside = Path(case.folder.name) / "outside"
            outside.mkdir()
            case.repository.mkdir(parents=True)
            (case.repository / name).symlink_to(outside)
            case.pull(status=73, says=["symbolic link", name])
            assert not list(outside.iterdir())
    with Case() as case:
        outside = Path(case.folder.name) / "outside"
        outside.write_bytes(b"kept")
        case.part().parent.mkdir(parents=True)
        case.part().symlink_to(outside)
        case.pull(status=73)
        assert outside.read_bytes() == b"kept"


def room_is_checked_before_the_download():
    siblings = [{"rfilename": f"model-{i}.safetensors", "size": 2**62, "blobId": git_hash(b"%d" % i)} for i in range(5)]
    with Case(listing={"sha": COMMIT, "siblings": siblings[:1]}) as case:
        case.pull(status=73, says="the disk has room for")
        assert not case.hub.seen("hub", "resolve")
    with Case(listing={"sha": COMMIT, "siblings": siblings}) as case:
        case.pull(status=65, says="exceed 64 bits")


def a_list_without_hashes_is_completed_by_head_requests():
    with Case(lists_hashes=False) as case:
        case.pull()
        case.check()
        heads = [request for request in case.hub.requests if request[1] == "HEAD"]
        assert len(heads) == len(CHOSEN) and all(request[0] == "hub" for request in heads), heads


def redirects_that_lead_nowhere_are_refused():
    with Case() as case:
        case.hub.redirect_to = f"{case.hub.url()}/{MODEL}/resolve/{COMMIT}/model.safetensors"
        case.pull(status=65, says="more than 10 redirects")
    for target in ("file:///etc/passwd", "ftp://127.0.0.1/x"):
        with Case(redirect_to=target) as case:
            case.pull(status=65, says="redirect leads to")


def proxies_and_no_proxy_are_obeyed():
    with Case() as case:
        case.hub.files["model.safetensors"] = (WEIGHTS, False)
        case.pull(http_proxy=case.hub.url("proxy"))
        case.check()
        assert case.hub.seen("proxy") and not case.hub.seen("hub")
    with Case() as case:
        case.pull(http_proxy=case.hub.url("proxy"), no_proxy="localhost,127.0.0.1")
        assert case.hub.seen("hub") and not case.hub.seen("proxy")


CASES = [case for name, case in sorted(globals().items()) if callable(case) and getattr(case, "__module__", "") == __name__ and
         not isinstance(case, type) and case.__name__ not in ("small_files", "at_a_terminal")]


def main():
    done = subprocess.run([BINARY, "pull", "a/b"], env=dict(os.environ, HF_ENDPOINT="ftp://127.0.0.1"),
                          capture_output=True, text=True, timeout=TIMEOUT_S)
    if "without libcurl" in done.stderr:
        print(f"1..0 # SKIP {done.stderr.strip()}")
        return
    cases = [case for case in CASES if len(sys.argv) < 4 or sys.argv[3] in case.__name__]
    print(f"1..{len(cases)}")
    for number, case in enumerate(cases, 1):
        begin = time.monotonic()
        try:
            case()
            fault = None
        except Exception:  # noqa: BLE001: any failure of a case is reported as one
            fault = traceback.format_exc()
        for line in (fault or "").splitlines():
            print(f"# {line}")
        print(f"{'not ok' if fault else 'ok'} {number} - {case.__name__.replace('_', ' ')} ({time.monotonic() - begin:.1f} s)", flush=True)


main()
