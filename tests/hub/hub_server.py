"""A hub for tests, on the loopback: lists the files of one model and serves them as the hub's documented interface does.

Contents of Git LFS files come by a redirect from a second server, whose host differs by its port. Faults are set by the case.
"""
import hashlib
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub:
    """files: name -> (bytes, True if in Git LFS). requests: (server, method, path, headers) of all that came in."""

    def __init__(self, model, files, **faults):
        self.model, self.files, self.requests = model, files, []
        self.token = None  # that requests must have
        self.listing = None  # in place of the true one
        self.lists_hashes = True
        self.error = None  # (status, code) of all requests to the hub
        self.cuts = 0  # answers that end early
        self.cut_after = 1000  # bytes of a body that are sent then
        self.stalls = threading.Event()  # if set, a body stops after cut_after bytes, until it is cleared
        self.ignores_ranges = False
        self.damages = 0  # answers with a wrong byte
        self.extra = b""  # after each content
        self.busy = 0  # answers of status 503
        self.redirect_to = None  # in place of the second server
        self.delay_s = 0
        for name, value in faults.items():
            assert hasattr(self, name), name
            setattr(self, name, value)
        self.lock = threading.Lock()
        self.servers = {name: self.start(name) for name in ("hub", "store", "proxy")}

    def start(self, name):
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                hub.answer(name, self)

            do_HEAD = do_GET

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.handle_error = lambda *_: None  # connections that the program under test closes
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return server

    def close(self):
        self.stalls.clear()
        for server in self.servers.values():
            server.shutdown()
            server.server_close()

    def url(self, name="hub"):
        return "http://127.0.0.1:%d" % self.servers[name].server_address[1]

    def seen(self, server, word=""):
        return [request for request in self.requests if request[0] == server and word in request[2]]

    def take(self, fault):
        with self.lock:
            left = getattr(self, fault)
            setattr(self, fault, max(left - 1, 0))
        return left > 0

    def answer(self, name, request):
        path = request.path
        with self.lock:
            self.requests.append((name, request.command, path, dict(request.headers)))
        if name == "proxy":  # such a request names the server, too
            path = re.sub(r"^http://[^/]*", "", path)
        if name == "store":
            return self.send_content(request, path.removeprefix("/store/").partition("?")[0])
        if self.error:
            return self.send(request, self.error[0], b"{}", {"X-Error-Code": self.error[1], "X-Error-Message": "as told"})
        if self.take("busy"):
            return self.send(request, 503, b"busy")
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return self.send(request, 401, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"})
        match = re.fullmatch(rf"/api/models/{self.model}/revision/([^?]*)\?blobs=true", path)
        if match:
            if match[1] not in ("main", "v1.0", "refs%2Fpr%2F7", COMMIT):
                return self.send(request, 404, b"", {"X-Error-Code": "RevisionNotFound"})
            return self.send(request, 200, json.dumps(self.listing or self.list()).encode())
        match = re.fullmatch(rf"/{self.model}/resolve/{COMMIT}/(.*)", path)
        if not match:
            return self.send(request, 404, b"", {"X-Error-Code": "RepoNotFound"})
        return self.send_file(request, match[1])

    def list(self):
        siblings = []
        for name, (data, is_lfs) in self.files.items():
            entry = {"rfilename": name}
            if self.lists_hashes:
                entry |= {"size": len(data), "blobId": git_hash(data)}
            if self.lists_hashes and is_lfs:
                entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
            siblings.append(entry)
        return {"id": self.model, "sha": COMMIT, "gated": bool(self.token), "siblings": siblings}

    def send_file(self, request, name):
        if name not in self.files:
            return self.send(request, 404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        data, is_lfs = self.files[name]
        if not is_lfs:
            return self.send_content(request, name, {"X-Repo-Commit": COMMIT, "ETag": f'"{git_hash(data)}"'})
        return self.send(request, 302, b"", {
            "Location": self.redirect_to or f"{self.url('store')}/store/{name}?signature=1", "X-Repo-Commit": COMMIT,
            "X-Linked-Etag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Linked-Size": str(len(data))})

    def send_content(self, request, name, headers=None):
        time.sleep(self.delay_s)
        data = self.files[name][0] + self.extra
        first = 0
        headers = dict(headers or {})
        match = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))
        if match and not self.ignores_ranges:
            first = int(match[1])
            if first >= len(data):
                return self.send(request, 416, b"", {"Content-Range": f"bytes */{len(data)}"})
            headers["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
        body = data[first:]
        if len(body) > self.cut_after and self.take("damages"):
            body = body[:-1] + bytes([body[-1] ^ 1])
        return self.send(request, 206 if "Content-Range" in headers else 200, body, headers)

    def send(self, request, status, body, headers=None):
        request.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            request.send_header(key, value)
        request.end_headers()
        if request.command == "HEAD":
            return
        is_long = status in (200, 206) and len(body) > self.cut_after
        try:
            if is_long and self.stalls.is_set():
                request.wfile.write(body[:self.cut_after])
                request.wfile.flush()
                while self.stalls.is_set():
                    time.sleep(0.02)
                body = body[self.cut_after:]
            elif is_long and self.take("cuts"):
                request.wfile.write(body[:self.cut_after])
                request.close_connection = True
                return
            request.wfile.write(body)
        except OSError:
            request.close_connection = True
