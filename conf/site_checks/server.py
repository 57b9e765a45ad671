"""Serve a site on this machine as a web host does: compressed, and with its own page for what does not exist."""

import functools
import gzip
import http.server
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from http import HTTPStatus
from pathlib import Path

COMPRESSED = (".css", ".html", ".js", ".json", ".svg", ".txt", ".xml")


@functools.cache
def compressed(path: Path) -> bytes:
    """What goes over the wire for a file, at gzip's usual level."""
    return gzip.compress(path.read_bytes(), 6)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    root: Path

    def do_GET(self) -> None:
        path = self.root / self.path.split("?")[0].split("#")[0].lstrip("/")
        path = path / "index.html" if path.is_dir() else path
        status = HTTPStatus.OK
        if not path.resolve().is_relative_to(self.root) or not path.is_file():
            status, path = HTTPStatus.NOT_FOUND, self.root / "404.html"
        self._send(status, path)

    def _send(self, status: HTTPStatus, path: Path) -> None:
        headers = Message()
        body = path.read_bytes() if path.is_file() else b""
        if path.suffix in COMPRESSED and "gzip" in self.headers.get("Accept-Encoding", ""):
            body = compressed(path) if path.is_file() else b""
            headers["Content-Encoding"] = "gzip"
        headers["Content-Type"] = http.server.SimpleHTTPRequestHandler.extensions_map.get(
            path.suffix, _TYPES.get(path.suffix, "application/octet-stream")
        )
        headers["Content-Length"] = str(len(body))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it.
        pass


_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webp": "image/webp",
    ".xml": "application/xml",
}


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        # A browser that is closed leaves before it has everything.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextmanager
def served(root: Path) -> Iterator[str]:
    """Serve a folder while the block runs.

    Yields:
        The address, with a closing slash.
    """
    handler = type("Handler", (_Handler,), {"root": root.resolve()})
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
