"""A pipe that ends in a file: a sampler writes into the store without holding anything of it."""

from __future__ import annotations

import fcntl
import os
import select
import sys
import termios
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_PART_BYTES: Final = 1 << 20  # the most that a pipe may hold for a user


class Spout:
    """Give `writing` to the sampler, then `start`; `finish` once it has ended, whoever else holds the pipe by then."""

    def __init__(self, path: Path, bytes_max: int) -> None:
        """The file is made when there is something to put into it."""
        self._path = path
        self._left = bytes_max
        self._reading, self.writing = os.pipe()
        os.fchmod(self.writing, 0o622)  # the sampler opens it anew by its number, as another user
        self._ended = os.eventfd(0, os.EFD_CLOEXEC)
        self._pouring = threading.Thread(target=self._pour, name="spout", daemon=True)
        self._open = [self._reading, self.writing, self._ended]
        self.failure = ""  # why not everything is in the file, if that is the file's fault

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()
        for descriptor in self._open:
            os.close(descriptor)

    def start(self) -> None:
        """Let go of the sampler's end and pour what comes, in a thread: a disk may be slow."""
        self._open.remove(self.writing)
        os.close(self.writing)
        self._pouring.start()

    def finish(self) -> None:
        """Pour what is left in the pipe. Then the file is whole, or as large as it may be."""
        if self._pouring.is_alive():
            os.eventfd_write(self._ended, 1)
            self._pouring.join()

    def _pour(self) -> None:
        try:
            self._into_file()
        except OSError as error:
            self.failure = f"{error.strerror} ({self._path})"
        finally:  # a sampler that goes on is told: EPIPE
            self._open.remove(self._reading)
            os.close(self._reading)

    def _into_file(self) -> None:
        file = -1
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        poll.register(self._ended, select.POLLIN)
        try:
            while self._left:
                last = any(descriptor == self._ended for descriptor, _ in poll.poll())
                if not _waiting(self._reading):
                    return
                if file < 0:
                    file = os.open(
                        self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
                    )
                self._left -= os.splice(self._reading, file, min(self._left, _PART_BYTES))
                if last:
                    return
        finally:
            if file >= 0:
                os.close(file)


def _waiting(pipe: int) -> int:
    """Bytes that can be read; 0 from one that is readable is its end."""
    count = bytearray(4)
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return int.from_bytes(count, sys.byteorder)
