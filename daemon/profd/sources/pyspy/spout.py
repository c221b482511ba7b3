"""A pipe that ends in a file: a sampler writes into the store without holding anything of it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import sys
import termios
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

POUR_SECONDS: Final = 30.0  # for what is left in the pipe, on a slow disk
_PART_BYTES: Final = 1 << 20  # the most that a pipe may hold for a user
_LOOK_SECONDS: Final = 0.005


class Spout:
    """Give `writing` to the sampler, then `start`; `finish` once it has ended, whoever else holds the pipe by then.

    A process that holds the pipe could write into it from memory that does not come, and nobody else gets at it until
    then, or could be killed: so a thread pours, and is waited for no longer than a disk may take.
    """

    def __init__(self, path: Path, bytes_max: int) -> None:
        """The file is made when there is something to put into it."""
        self._path = path
        self._left = bytes_max
        self._reading, self.writing = os.pipe()
        os.fchmod(self.writing, 0o622)  # the sampler opens it anew by its number, as another user
        self._told, self._telling = os.pipe()
        self._pouring = threading.Thread(target=self._pour, name="spout", daemon=True)
        self._open = [self._reading, self.writing, self._told, self._telling]  # what no thread closes
        self._given_up = False
        self.failure = ""  # why not everything is in the file, if that is the file's fault

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.finish()
        finally:
            for descriptor in self._open:
                os.close(descriptor)

    def start(self) -> None:
        """Let go of the sampler's end and pour what comes, in a thread: a disk may be slow."""
        self._close(self.writing)
        self._pouring.start()
        self._open = [self._telling]  # the thread's are the thread's to close, however long it takes

    async def finish(self) -> bool:
        """Pour what is left in the pipe. Then the file is whole, or as large as it may be.

        False: that did not end, and there is no file. Safe to repeat.
        """
        self._close(self._telling)
        until = time.monotonic() + POUR_SECONDS
        while self._pouring.is_alive() and not self._given_up and time.monotonic() < until:
            await asyncio.sleep(_LOOK_SECONDS)
        if not self._pouring.is_alive() or self._given_up:
            return not self._given_up
        self._given_up = True
        self.failure = f"the sampler's pipe could not be read within {POUR_SECONDS:.0f} s ({self._path})"
        self._path.unlink(missing_ok=True)
        return False

    def _close(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.remove(descriptor)
            os.close(descriptor)

    def _pour(self) -> None:
        try:
            self._into_file()
        except OSError as error:
            self.failure = f"{error.strerror} ({self._path})"
        finally:  # a sampler that goes on is told: EPIPE
            os.close(self._reading)
            os.close(self._told)

    def _into_file(self) -> None:
        file = -1
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        poll.register(self._told, select.POLLIN)
        try:
            while self._left and not self._given_up:
                last = any(descriptor == self._told for descriptor, _ in poll.poll())
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
