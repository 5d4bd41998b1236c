"""A web server on loopback that serves a folder, with or without ranges, and counts its requests."""

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import Any


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, folder: Path, *, ranges: bool, versions: bool) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.ranges, self.versions = folder, ranges, versions
        self.sent: list[tuple[str, int]] = []  # the path of each GET, and how many bytes it got
        self.broken = 0  # how many GETs from now on fail
        self.packed = b""  # what each GET gets, as gzip, whatever the client accepts
        self.failing = ""  # a path whose GETs all fail
        self.busy: list[tuple[int, str]] = []  # what the next requests get, also HEADs: a status, and Retry-After
        self.asked: list[tuple[float, str]] = []  # when each request came, and its path
        self.elsewhere = ""  # the server that all requests are sent on to
        self.slow = ""  # a path of which a GET sends a byte each tenth of a second
        self.endless = False  # GETs send 64 MB, in chunks

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: Any) -> None:
        """Say nothing of clients that have gone."""


class Handler(SimpleHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a body would wait 40 ms until the head is acknowledged

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        self.server.asked.append((time.monotonic(), self.path))
        if self.server.busy:
            status, after = self.server.busy.pop(0)
            return self._head(status, 0, more={"Retry-After": after} if after else {})
        if self.server.elsewhere:
            return self._head(302, 0, more={"Location": self.server.elsewhere + self.path})
        path = self.server.folder / self.path.partition("?")[0].lstrip("/")
        if body and (self.server.broken > 0 or self.path == self.server.failing):
            self.server.broken -= 1
            return self._head(503, 0)
        if path.is_dir():
            names = "".join(f'<a href="{each.name}">{each.name}</a>' for each in sorted(path.iterdir())).encode()
            self._head(200, len(names), "text/html")
            return self._send(names) if body else None
        if not path.is_file():
            return self._head(404, 0)
        size = path.stat().st_size
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")) if self.server.ranges else None
        suffix = re.fullmatch(r"bytes=-(\d+)", self.headers.get("Range", "")) if self.server.ranges else None
        status, first, last = 200, 0, size - 1
        if found or suffix:
            first = int(found[1]) if found else max(0, size - int(suffix[1]))  # type: ignore[index]
            last = min(int(found[2] or last), last) if found else last
            if first > last:
                return self._head(416, 0)
            status = 206
        if body:  # noted first: a client may go on when it has the head
            self.server.sent.append((self.path, last - first + 1))
        if body and self.server.packed:
            self._head(status, len(self.server.packed), part=(first, last, size), encoding="gzip")
            return self._send(self.server.packed)
        if body and self.server.endless:
            self._head(status, -1, part=(first, last, size), more={"Transfer-Encoding": "chunked"})
            for _ in range(1024):
                self._send(b"10000\r\n" + bytes(1 << 16) + b"\r\n")
            return self._send(b"0\r\n\r\n")
        self._head(status, last - first + 1, when=path.stat().st_mtime_ns, part=(first, last, size))
        if body:
            with path.open("rb") as file:
                file.seek(first)
                while (piece := file.read(1 if self.path == self.server.slow else last - file.tell() + 1)) and (
                    file.tell() <= last + 1
                ):
                    self._send(piece)
                    if self.path == self.server.slow:
                        time.sleep(0.1)
        return None

    def _head(
        self,
        status: int,
        size: int,
        kind: str = "",
        when: int = 0,
        part: tuple[int, ...] = (),
        encoding: str = "",
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.send_response(status)
        if size >= 0:
            self.send_header("Content-Length", str(size))
        for name, value in more.items():
            self.send_header(name, value)
        if encoding:
            self.send_header("Content-Encoding", encoding)
        if kind:
            self.send_header("Content-Type", kind)
        if when and self.server.versions:
            self.send_header("ETag", f'"{when}"')
        if status == 206:
            self.send_header("Content-Range", "bytes {}-{}/{}".format(*part))
        self.end_headers()

    def _send(self, content: bytes) -> None:
        with contextlib.suppress(OSError):
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving(folder: Path, *, ranges: bool = True, versions: bool = True) -> Iterator[Server]:
    """Serve a folder on a free port of loopback."""
    with Server(folder, ranges=ranges, versions=versions) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
