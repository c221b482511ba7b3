"""The decoder for an input, by the name of its format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from profd.decode.batch import Decoder
from profd.decode.bundle import BundleDecoder
from profd.decode.chrome import open_chrome
from profd.decode.chunks import ChunkDecoder
from profd.decode.legacy import LegacyDecoder
from profd.decode.nvprof import NvprofDecoder
from profd.decode.samples import SampleDecoder
from profd.decode.sniff import sniff
from profd.decode.xspace import XSpaceDecoder
from profd.errors import BadInput
from profd.events import Dictionary, Tracks


def open_decoder(
    kind: str, fd: int, dictionaries: dict[str, Dictionary], tracks: Tracks, scratch: Path | None = None
) -> Decoder:
    """A decoder that adds to the dictionaries and tracks of its trace.

    `kind`: "bundle", "chrome", "chunks", "nvprof", "pyspy", "torch-legacy" (Chrome in a dialect), "xspace",
    or "" for whatever the content is. The file must be seekable; the descriptor stays the caller's.
    `scratch` is a directory for private copies (default: the temporary one). Raises BadTrace when
    the content is not of that kind, BadInput when there is no such kind.
    """
    # The decoder outlives this call; the descriptor stays the caller's.
    file: BinaryIO = open(fd, "rb", closefd=False)  # noqa: SIM115
    size = os.fstat(fd).st_size
    if kind == "":
        kind = sniff(file)
    if kind == "xspace":
        return XSpaceDecoder(file, size, dictionaries, tracks)
    if kind == "chrome":
        sniff(file)  # says what the file is instead, if it is none
        return open_chrome(file, size, dictionaries, tracks)
    if kind == "chunks":
        return ChunkDecoder(file, size, dictionaries, tracks)
    if kind == "pyspy":
        return SampleDecoder(file, size, dictionaries, tracks)
    if kind == "bundle":
        return BundleDecoder(file, dictionaries, tracks, scratch)
    if kind == "nvprof":
        return NvprofDecoder(file, size, dictionaries, tracks, scratch)
    if kind == "torch-legacy":
        sniff(file)
        return LegacyDecoder(file, size, dictionaries, tracks)
    raise BadInput(f'there is no trace format "{kind}"; known are bundle, chrome, chunks, nvprof, pyspy and xspace')
