"""What a file of several traces says of itself (docs/json.md): read from its begin while it is written, and said."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

from profclient.cli.captured_view import place, say_of_traces
from profclient.cli.output import printable, say
from profclient.cli.units import duration

MERGED: Final = ("chrome", "perfetto", "perfetto-archive")
"""Formats that have all traces of a capture on one axis."""
HEAD_BYTES_MAX: Final = 4 << 20
"""Of the begin of a file: 256 traces with long names take a tenth."""
_ABOUT: Final = '"profd": '
_CLOCKS: Final = "profd.clocks"  # the same in the manifest of an archive, as text
_TAR_HEADER_BYTES: Final = 512
_TAR_SIZE: Final = slice(124, 135)  # octal
_GZIP: Final = 31  # zlib's word for it
_TRACES_SHOWN: Final = 16


class Head:
    """Keeps the begin of a file while its pieces pass."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self._begin = bytearray()

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self._begin += piece[: HEAD_BYTES_MAX - len(self._begin)]
            yield piece

    def about(self, format_: str, *, gzip: bool) -> dict[str, Any] | None:
        """What the file says of itself; None: nothing that is known here, as of a later daemon."""
        begin = bytes(self._begin)
        try:
            if gzip:
                begin = zlib.decompressobj(_GZIP).decompress(begin, HEAD_BYTES_MAX)
            return _of_archive(begin) if format_ == "perfetto-archive" else _found(begin)
        except (ValueError, KeyError, TypeError, zlib.error, RecursionError):
            return None


def _found(begin: bytes) -> dict[str, Any]:
    """It is the first thing that stands in the file."""
    text = begin.decode("utf-8", "replace")
    value, _ = json.JSONDecoder().raw_decode(text, text.index(_ABOUT) + len(_ABOUT))
    return dict(value)


def _of_archive(begin: bytes) -> dict[str, Any]:
    """In the first file, the manifest."""
    size = int(begin[_TAR_SIZE], 8)
    manifest = json.loads(begin[_TAR_HEADER_BYTES : _TAR_HEADER_BYTES + size])["perfetto_manifest"]
    return dict(json.loads(manifest["attributes"][_CLOCKS]))


def say_of_merged(about: dict[str, Any]) -> None:
    """Which traces are in it, how their clocks were compared, and what each may be wrong by."""
    say_of_traces(about)
    say(printable(about["clocks"]["message"]))
    rows = about["traces"]
    if all(row["joined_by"] == "wall clock" for row in rows) and len(rows) > 1:
        say("All times are as the hosts' clocks say; nothing is proved of how far these are apart.")
        return
    others = [row for row in rows if row["joined_by"] != "reference"]
    for row in others[:_TRACES_SHOWN]:
        say(printable(f"{place(row)}{_on(row)}: {_placed(row)}"))
    if (more := len(others) - _TRACES_SHOWN) > 0:
        say(f"… and {more} more: the file names them, and so does --json.")


def _on(row: dict[str, Any]) -> str:
    return f" on {row['host']}" if row["host"] else ""


def _placed(row: dict[str, Any]) -> str:
    """How it was put on the axis, and what is proved of that."""
    if row["joined_by"] == "wall clock":
        return "as its host's clock says; nothing is proved"
    moved = f"moved by {duration(row['moved_ns'])}"
    if row["within_ns"] is None:
        return f"{moved}, as another trace of its host; nothing is proved"
    return f"{moved}, wrong by {duration(row['within_ns'])} at most (proved)"
