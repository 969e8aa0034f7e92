"""A vendor's fake behind a real socket, so that what it has done outlives the process that asked for it."""

import socketserver
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from threading import Thread
from typing import Any

import httpx

from mocks.vendor import Vendor


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Let a caller be gone: here callers die while they wait."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def served(
    vendor: Vendor,
    *,
    on_fault: Callable[[], None] | None = None,
    before: Callable[[], None] | None = None,
) -> Iterator[str]:
    """Serve a fake on the loopback interface; yields its base URL.

    Args:
        vendor: The fake.
        on_fault: Called where a scripted exception leaves the caller without an answer.
        before: Called on every request, before the fake sees it.
    """

    class Handler(BaseHTTPRequestHandler):
        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline()
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            if before is not None:
                before()
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            # The credential, the key and the type: what else a client sends says nothing to a fake.
            headers = [(name, value) for name, value in self.headers.items() if name.lower() not in _WIRE]
            request = httpx.Request(self.command, vendor.base_url + self.path, headers=headers, content=body)
            try:
                response = vendor.transport.handle_request(request)
            except httpx.HTTPError:
                if on_fault is not None:
                    on_fault()
                self.close_connection = True
                return
            self.send_response_only(response.status_code)
            for name, value in response.headers.multi_items():
                if name not in _WIRE:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(response.content)))
            self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(response.content)

    # Port 0 is any free one.
    with _Server(("127.0.0.1", 0), Handler) as server:
        # A short poll, since a test waits for the last one to end.
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            host, port = server.server_address[:2]
            yield f"http://{host!s}:{port}"
        finally:
            server.shutdown()


_WIRE = frozenset({"host", "content-length", "connection", "transfer-encoding"})
"""What the two sides of a wire arrange anew."""
