"""A file without a name in which arrays wait: gone when its owner is, however that ends."""

from __future__ import annotations

import os
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from profd.errors import Exhausted

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Extent:
    """Where an array lies in the file."""

    offset: int
    dtype: np.dtype[Any]


class SpillFile:
    """Append arrays, read any part of them back. Raises Exhausted when the disk does not take them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._size = 0
        try:
            self._fd, name = tempfile.mkstemp(dir=directory, prefix="spill-")
            os.unlink(name)
        except OSError as error:
            raise self._full(error) from error
        weakref.finalize(self, os.close, self._fd)

    def append(self, values: Array) -> Extent:
        """Write an array at the end."""
        data = np.ascontiguousarray(values).data.cast("B") if len(values) else memoryview(b"")
        stretch = Extent(self._size, values.dtype)
        try:
            while data:
                written = os.pwrite(self._fd, data, self._size)
                self._size += written
                data = data[written:]
        except OSError as error:
            raise self._full(error) from error
        return stretch

    def read(self, stretch: Extent, low: int, high: int) -> Array:
        """Elements [low, high) of an array."""
        values = np.empty(high - low, dtype=stretch.dtype)
        room = values.data.cast("B") if low < high else memoryview(b"")
        offset = stretch.offset + low * stretch.dtype.itemsize
        while room:
            got = os.preadv(self._fd, [room], offset)
            if got == 0:
                raise EOFError(f"the spill file in {self._directory} ended early")
            room, offset = room[got:], offset + got
        return values

    def _full(self, error: OSError) -> Exhausted:
        return Exhausted(
            f"Sorting the trace needs space in {self._directory}, writing there failed: "
            f"{error.strerror or error}. Free space (`profctl list`, `profctl rm`), then `profctl retry`."
        )
