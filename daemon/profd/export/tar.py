"""Files one after another in a tar, written to what need not be seekable."""

from __future__ import annotations

import hashlib
import tarfile
from typing import BinaryIO, Final

from profd.segments.bundle import BLOCK_BYTES

_COPY_BYTES: Final = 1 << 20


def add_file(out: BinaryIO, name: str, size: int, file: BinaryIO) -> str:
    """The next file, of so many bytes; their SHA-256."""
    # No owner and no time: the same trace gives the same bytes.
    header = tarfile.TarInfo(name)
    header.size, header.mode = size, 0o644
    out.write(header.tobuf(tarfile.USTAR_FORMAT))
    digest = hashlib.sha256()
    while data := file.read(_COPY_BYTES):
        digest.update(data)
        out.write(data)
    out.write(bytes(-size % BLOCK_BYTES))
    return digest.hexdigest()


def end_archive(out: BinaryIO) -> None:
    """What marks its end."""
    out.write(bytes(2 * BLOCK_BYTES))
