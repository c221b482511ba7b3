"""Answers requests: what may ask at all, then the page's files, the way in, and questions."""

from __future__ import annotations

import html
import json
import os
import pwd
import shutil
import socket
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, cast

from profclient.errors import BusyError, ClientError, DeniedError, NotFoundError, TimeoutExpired, UsageError
from profclient.ui.asking import LINES, Question, checked
from profclient.ui.captures import LISTED, listed
from profclient.ui.gate import NO_ORIGIN
from profclient.ui.handed import handed
from profclient.ui.now import WATCH, WRITES
from profclient.ui.replies import KINDS, Refused, Replies

if TYPE_CHECKING:
    from profclient.ui.server import PageServer

BODY_BYTES_MAX: Final = 256 << 10  # of a request; SQL may have 64 KiB
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_STATUS: Final[dict[type[ClientError], HTTPStatus]] = {
    UsageError: HTTPStatus.BAD_REQUEST,
    NotFoundError: HTTPStatus.NOT_FOUND,
    DeniedError: HTTPStatus.FORBIDDEN,
    BusyError: HTTPStatus.SERVICE_UNAVAILABLE,
    TimeoutExpired: HTTPStatus.GATEWAY_TIMEOUT,
}
_JSON: Final = "application/json"
_BYTES: Final = "application/octet-stream"
_LINES: Final = "application/jsonl"
_FORM: Final = "application/x-www-form-urlencoded"

_ENTERED: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>profd</title>
<meta name="profd-session" content="{session}"><meta name="profd-page" content="{page}">
<script type="module" src="/static/enter.js"></script>
<noscript>This page needs JavaScript.</noscript></html>
"""


@cache
def page_files() -> dict[str, bytes]:
    """The files of the page, by name; there are no others, whatever a path says."""
    return {one.name: one.read_bytes() for one in files("profclient.ui").joinpath("static").iterdir() if one.is_file()}


class Handler(Replies):
    """One connection of a browser."""

    @property
    def page_server(self) -> PageServer:
        """Its server."""
        return cast("PageServer", self.server)

    def policy(self) -> str:
        """Ours, and Perfetto in a frame."""
        perfetto = self._perfetto()
        return f"{_POLICY}; frame-src {perfetto}" if perfetto else _POLICY

    def _perfetto(self) -> str | None:
        """Its origin, by the name that the browser has for this server."""
        server = self.page_server
        return None if server.perfetto is None else server.names.origin(self.host(), server.perfetto.port)

    def do_GET(self) -> None:  # noqa: N802 - the name is http.server's
        """The page and its files."""
        self._do(self._get)

    def do_POST(self) -> None:  # noqa: N802 - the name is http.server's
        """The way in, and questions."""
        self._do(self._post)

    def _do(self, answer: Callable[[bytes], None]) -> None:
        try:
            body = self._body()  # first: what is left of it would be read as the next request
            self._admit()
            answer(body)
        except Refused as refusal:
            self._send_problem(refusal.status, str(refusal), "denied")
        except ClientError as error:
            self._send_problem(_STATUS.get(type(error), HTTPStatus.BAD_GATEWAY), str(error), error.kind)

    def _admit(self) -> None:
        """Raises Refused for what no page of ours asks."""
        names, host, origin = self.page_server.names, self.headers.get("Host"), self.headers.get("Origin")
        if not names.is_host(host):
            port, url = self.page_server.port, self.page_server.url
            raise Refused(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"This server is {url} and nothing else; a tunnel must begin at port {port}, too.",
            )
        if not names.is_origin(origin, host) and not (self._is_entrance() and origin == NO_ORIGIN):
            raise Refused(HTTPStatus.FORBIDDEN, "This request came from a page of another server.")

    def _is_entrance(self) -> bool:
        return self.command == "POST" and self.path == "/enter"

    def _get(self, body: bytes) -> None:
        path = self.path.partition("?")[0]
        name = "index.html" if path == "/" else path.removeprefix("/static/")
        if name not in page_files() or (path != "/" and not path.startswith("/static/")):
            raise Refused(HTTPStatus.NOT_FOUND, "There is no such page.")
        self.send(HTTPStatus.OK, KINDS[name.rpartition(".")[2]], page_files()[name])

    def _post(self, body: bytes) -> None:
        if self._is_entrance():
            self._enter(body)
            return
        if not self.page_server.keys.opens(self.headers.get("Authorization")):
            raise Refused(HTTPStatus.UNAUTHORIZED, "This tab has no key of the server. Run profctl ui again.")
        asked = self._json(body)
        if self.path == WATCH:  # a page that is left open is not used
            self._stream(self.page_server.watches.lines(cast("socket.socket", self.connection)))
            return
        self.page_server.use()
        if self.path == "/api/host":
            self._send_json(self._host())
        elif self.path == "/api/traces":
            self._send_json(self.page_server.library.newest())
        elif self.path == LISTED:
            self._send_json(listed(self.page_server.library, asked))
        elif self.path == "/api/perfetto":
            self._send_trace(asked)
        elif self.path == "/api/ask":
            self._answer(checked(asked))
        elif self.page_server.write and self.path in WRITES:
            self._send_json(WRITES[self.path](asked))
        else:
            raise Refused(HTTPStatus.NOT_FOUND, "There is no such page.")

    def _answer(self, asked: Question) -> None:
        library, asker = self.page_server.library, cast("socket.socket", self.connection)
        if asked.name in LINES:
            self._stream(library.lines(asked, asker))
        else:
            self.send(HTTPStatus.OK, _JSON, library.answer(asked, asker))

    def _enter(self, body: bytes) -> None:
        """A key that is good once, for the session's: by a form in a file of the user's, or by our own page."""
        kind = self.headers.get_content_type()
        if kind == _JSON:
            asked = _parsed(body)
            key = asked.get("key") if isinstance(asked, dict) else None
        else:
            key = urllib.parse.parse_qs(body.decode("ascii", "replace")).get("key", [""])[0] if kind == _FORM else None
        from_file = self.headers.get("Origin") == NO_ORIGIN
        if not isinstance(key, str) or not self.page_server.keys.redeem(key, from_file):
            raise Refused(HTTPStatus.FORBIDDEN, "This address was used already, or is too old. Run profctl ui again.")
        self.page_server.use()
        self.page_server.on_page()
        session, page = self.page_server.keys.session, self.page_server.page
        if kind == _JSON:
            self._send_json({"session": session, "page": page})
        else:
            entered = _ENTERED.format(session=html.escape(session), page=html.escape(page))
            self.send(HTTPStatus.OK, KINDS["html"], entered.encode())

    def _host(self) -> dict[str, Any]:
        uid = os.geteuid()
        try:
            user = pwd.getpwuid(uid).pw_name
        except KeyError:
            user = str(uid)
        return {
            "host": socket.gethostname(),
            "user": user,
            "uid": uid,
            "store": self.page_server.library.name or None,
            "write": self.page_server.write,
            "perfetto": self._perfetto(),
            "ports": self.page_server.ports,
        }

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "" if self.command == "POST" else "0")
        if not (length.isascii() and length.isdigit()) or self.headers.get("Transfer-Encoding"):
            self.close_connection = True  # nobody knows where the next request begins
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "A request says how long it is.")
        if len(length) > 12 or int(length) > BODY_BYTES_MAX:
            self.close_connection = True
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A request has {BODY_BYTES_MAX >> 10} KiB at most.")
        return self.rfile.read(int(length))

    def _json(self, body: bytes) -> Any:
        if self.headers.get_content_type() != _JSON:
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "A request is JSON.")
        return _parsed(body)

    def _send_trace(self, asked: Any) -> None:
        """As Perfetto reads it. It is kept in a file first, so that an error has its status."""
        with handed(self.page_server.library, asked, cast("socket.socket", self.connection)) as (told, file):
            size = str(file.seek(0, os.SEEK_END))
            self.send_head(HTTPStatus.OK, _BYTES, Content_Length=size, Profd_Trace=json.dumps(told))
            file.seek(0)
            shutil.copyfileobj(file, self.wfile)

    def _send_json(self, value: Any) -> None:
        self.send(HTTPStatus.OK, _JSON, json.dumps(value).encode())

    def _send_problem(self, status: HTTPStatus, text: str, kind: str) -> None:
        """As `--json` prints errors; a person who came by an address reads a sentence."""
        if self.command == "GET" or (self._is_entrance() and self.headers.get_content_type() == _FORM):
            self.send_text(status, text)
        else:
            self.send(status, _JSON, json.dumps({"error": text, "kind": kind}).encode())

    def _stream(self, lines: Iterator[bytes]) -> None:
        """JSON lines as they come; an error before the first has its status, a later one is the last line."""
        with closing(lines):  # type: ignore[type-var]  # a generator: its place is free at once
            piece = next(lines, b"")
            self.send_head(HTTPStatus.OK, _LINES, Transfer_Encoding="chunked")
            self.close_connection = True
            try:
                while piece:
                    self._send_piece(piece)
                    piece = next(lines, b"")
            except ClientError as error:
                self._send_piece(json.dumps({"error": str(error), "kind": error.kind}).encode() + b"\n")
            self.wfile.write(b"0\r\n\r\n")

    def _send_piece(self, piece: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))


def _parsed(body: bytes) -> Any:
    """JSON that has letters only. Raises UsageError."""
    try:
        value = json.loads(body)
        json.dumps(value, ensure_ascii=False).encode()  # halves of letters go nowhere
    except (ValueError, RecursionError) as error:
        raise UsageError("a request is JSON in UTF-8.") from error
    return value
