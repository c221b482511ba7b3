"""What the answers of both origins have in common: headers, and refusals in a sentence."""

from __future__ import annotations

from abc import abstractmethod
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Final

IDLE_SECONDS: Final = 60  # of a connection
KINDS: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "png": "image/png",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
    "wasm": "application/wasm",
    "woff2": "font/woff2",
}
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Refused(Exception):
    """The request is not answered; str() says why."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class Replies(BaseHTTPRequestHandler):
    """One connection of a browser."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS

    @abstractmethod
    def policy(self) -> str:
        """The content security policy of all answers."""

    def host(self) -> str:
        """By which name it was asked: without the port, and as the browser says, which may be anything."""
        headers = getattr(self, "headers", None)  # of a line that is no request there are none
        return ((headers and headers.get("Host")) or "").partition(":")[0]

    def send(self, status: HTTPStatus, kind: str, body: bytes, **more: str) -> None:
        """A whole answer."""
        self.send_head(status, kind, Content_Length=str(len(body)), **more)
        self.wfile.write(body)

    def send_head(self, status: HTTPStatus, kind: str, **more: str) -> None:
        """All that comes before the body; `more` by name, with _ for -."""
        self.send_response(status)
        given = {name.replace("_", "-"): value for name, value in more.items()}
        policy = {"Content-Security-Policy": self.policy()}
        for name, text in {"Content-Type": kind, **given, **policy, **_HEADERS}.items():
            self.send_header(name, text)
        self.end_headers()

    def send_text(self, status: HTTPStatus, text: str) -> None:
        """A sentence for a person."""
        self.send(status, KINDS["txt"], f"{text}\n".encode(errors="replace"))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Of what http.server refuses by itself: no word of the request comes back."""
        self.close_connection = True
        self.command = getattr(self, "command", None) or "GET"
        self.send_text(HTTPStatus(code), f"{HTTPStatus(code).phrase}.")

    def version_string(self) -> str:
        """Of the `Server` header."""
        return "profctl"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        """Nothing: what is asked is nobody else's."""
