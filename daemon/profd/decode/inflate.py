"""Files as slices of plain bytes: gzip is inflated on the way, within limits."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from profd import limits

GZIP_MAGIC: Final = b"\x1f\x8b"
# A file may open with a run that compresses far better than the rest.
_RATIO_FREE_BYTES: Final = 16 * limits.MiB
_COMPRESSED_CHUNK: Final = 256 * 1024


class Slices:
    """A seekable binary file, from its start, in slices of at most `slice_bytes`.

    `problem` says afterwards why the bytes end early (a corrupt or cut gzip
    stream, a bomb); empty when they do not. Every iteration starts anew.
    """

    def __init__(self, file: BinaryIO, slice_bytes: int = limits.DECODE_SLICE_BYTES) -> None:
        self._file = file
        self._slice_bytes = slice_bytes
        self.problem = ""
        file.seek(0)
        self.gzip = file.read(2) == GZIP_MAGIC

    def __iter__(self) -> Iterator[bytes | memoryview]:
        """Yield the slices; none is empty, and each is valid until the next but one."""
        self._file.seek(0)
        self.problem = ""
        return self._inflated() if self.gzip else self._plain()

    def _plain(self) -> Iterator[memoryview]:
        # Two buffers for all slices, one to use and one to read ahead: fresh pages would cost a tenth of the scan.
        used, free = (memoryview(bytearray(self._slice_bytes)) for _ in range(2))
        while size := self._file.readinto(free):  # type: ignore[attr-defined] # all binary files have it
            yield free[:size]
            used, free = free, used

    def _inflated(self) -> Iterator[bytes]:
        produced = 0
        member = zlib.decompressobj(wbits=31)
        pending = b""
        parts: list[bytes] = []
        gathered = 0
        while not self.problem:
            if not pending:
                pending = self._file.read(_COMPRESSED_CHUNK)
                if not pending:
                    if not member.eof:
                        self.problem = f"the gzip stream ends too soon, after {produced} inflated bytes"
                    break
            if member.eof:
                if not pending.startswith(GZIP_MAGIC[: len(pending)]):
                    break  # padding behind the last member, as gzip itself ignores
                member = zlib.decompressobj(wbits=31)
            before = member.copy()
            try:
                piece = member.decompress(pending, self._slice_bytes - gathered)
            except zlib.error as error:
                piece = _salvage(before, pending, self._slice_bytes - gathered)
                self.problem = f"the gzip stream is corrupt after {produced + len(piece)} inflated bytes: {error}"
            pending = member.unused_data if member.eof else member.unconsumed_tail
            parts.append(piece)
            gathered += len(piece)
            produced += len(piece)
            self.problem = self.problem or self._bomb(produced)
            if gathered >= self._slice_bytes:
                yield b"".join(parts)
                parts, gathered = [], 0
        if gathered:
            yield b"".join(parts)

    def _bomb(self, produced: int) -> str:
        if produced > limits.TRACE_INFLATED_BYTES_MAX:
            return f"the gzip stream inflates beyond {limits.TRACE_INFLATED_BYTES_MAX} bytes; split the trace"
        if produced <= _RATIO_FREE_BYTES:
            return ""
        if produced <= self._file.tell() * limits.TRACE_INFLATE_RATIO_MAX:
            return ""
        return (
            f"the gzip stream inflates more than {limits.TRACE_INFLATE_RATIO_MAX}-fold: "
            "refused as a decompression bomb; inflate it yourself and import the result if you trust it"
        )


def _salvage(member: Any, damaged: bytes, size: int) -> bytes:
    """The output before the damage: zlib drops the output of a call that fails."""
    out = bytearray()
    for at in range(len(damaged)):
        try:
            out += member.decompress(damaged[at : at + 1])
        except zlib.error:
            break
        if len(out) >= size:
            break
    return bytes(out[:size])
