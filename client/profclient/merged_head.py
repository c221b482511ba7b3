"""What a file of several traces says of itself (docs/json.md): read from its begin while it is written."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

MERGED: Final = ("chrome", "perfetto", "perfetto-archive")
"""Formats that have all traces of a capture on one axis."""
HEAD_BYTES_MAX: Final = 4 << 20
"""Of the begin of a file: 256 traces with long names take a tenth."""
_ABOUT: Final = '"profd": '
_CLOCKS: Final = "profd.clocks"  # the same in the manifest of an archive, as text
_TAR_HEADER_BYTES: Final = 512
_TAR_SIZE: Final = slice(124, 135)  # octal
_GZIP: Final = 31  # zlib's word for it


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
