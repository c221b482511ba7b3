"""The format of a file, by its first bytes: its name says nothing."""

from __future__ import annotations

import zlib
from typing import BinaryIO, Final

from profd.decode.chunk_header import MAGIC as CHUNK_MAGIC
from profd.decode.inflate import GZIP_MAGIC
from profd.decode.sqlite_file import MAGIC
from profd.decode.xspace_sniff import looks_like
from profd.errors import BadTrace
from profd.segments.bundle import is_bundle

ACCEPTED: Final = (
    'a Chrome or Kineto trace (JSON: {"traceEvents": [...]} or an array of events), plain or gzip, '
    "an XSpace of XLA, JAX or TensorFlow (*.xplane.pb), an SQLite database of nvprof, "
    "event chunks of the SDK, or a bundle (profctl export -f bundle)"
)
_HEAD_BYTES: Final = 4096
_UTF8_BOM: Final = b"\xef\xbb\xbf"

_KNOWN: Final = (
    (b"PAR1", "a Parquet file"),
    (b"PK\x03\x04", "a zip archive: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed: unpack it first"),
    (b"BZh", "bzip2-compressed: unpack it first"),
    (b"\xfd7zXZ\x00", "xz-compressed: unpack it first"),
    (b"\x7fELF", "a program"),
    (b"%PDF", "a PDF"),
    (b"NVDANSYS", "an Nsight Systems report"),
    (b"\xff\xfe", "UTF-16 text: convert it to UTF-8 first"),
    (b"\xfe\xff", "UTF-16 text: convert it to UTF-8 first"),
)


def sniff(file: BinaryIO) -> str:
    """The format by content: "bundle", "chrome", "chunks", "nvprof" or "xspace".

    The position is at the start afterwards. Raises BadTrace that says what the file looks like and what is accepted.
    """
    file.seek(0)
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    if head.startswith(MAGIC):
        return "nvprof"
    if head.startswith(CHUNK_MAGIC):
        return "chunks"
    if is_bundle(head):
        return "bundle"
    if looks_like(head):
        return "xspace"
    if head.startswith(GZIP_MAGIC):
        head = _inflate(head)
        if looks_like(head):
            raise BadTrace("the file is a gzip-compressed XSpace: unpack it first (gunzip)", 0)
    text = head.removeprefix(_UTF8_BOM).lstrip(b" \t\r\n")
    if text[:1] in (b"{", b"["):
        return "chrome"
    raise BadTrace(f"the file is {_describe(head)}; profd imports {ACCEPTED}", 0)


def _inflate(head: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES)
    except zlib.error as error:
        raise BadTrace(f"the gzip file is corrupt from its start: {error}; copy it again", 0) from error


def _describe(head: bytes) -> str:
    if not head:
        return "empty"
    for magic, what in _KNOWN:
        if head.startswith(magic):
            return what
    if b"\x00" in head:
        return f"binary, of an unknown kind (it begins with {head[:8].hex(' ')})"
    return f"text that is not JSON (it begins with {head[:16].decode('utf-8', 'replace')!r})"
