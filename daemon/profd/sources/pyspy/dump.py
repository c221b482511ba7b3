"""What `py-spy dump --json` says, taken as it comes: threads with equal stacks, as those of a pool have, share one.

py-spy prints an array of threads in lines, of which only one that ends a thread begins with two blanks and `}`: no
string has a line's end in it. What is printed in any other way is taken when it is whole.
"""

from __future__ import annotations

from typing import Final

import msgspec

from profd.errors import JobFailed
from profd.model.decodable import decodable

THREADS_MAX: Final = 4096  # further ones are left out
_END: Final = b"\n  },"


class RawLocal(msgspec.Struct):
    """A local variable."""

    name: str = ""
    repr: str | None = None


class RawFrame(msgspec.Struct):
    """A call."""

    name: str = ""
    filename: str = ""
    line: int = 0
    locals: list[RawLocal] | None = None


@decodable
class _Said(msgspec.Struct):
    thread_id: int
    thread_name: str | None = None
    os_thread_id: int | None = None
    active: bool = False
    owns_gil: bool = False
    frames: msgspec.Raw = msgspec.Raw(b"[]")


class RawThread(msgspec.Struct):
    """A thread. Of those with equal stacks `frames` is the same list."""

    thread_id: int
    thread_name: str | None
    os_thread_id: int | None
    active: bool
    owns_gil: bool
    frames: list[RawFrame]


_Malformed = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Dump:
    """The threads of one process so far. In one thread at a time."""

    def __init__(self) -> None:
        self.bytes = 0  # that are held
        self._threads: list[tuple[_Said, bytes]] = []
        self._stacks: dict[bytes, bytes] = {}
        self._begun = False
        self._wrong: Exception | None = None

    def take(self, said: bytearray) -> None:
        """Take the threads that have come whole away from the front of what was said."""
        end = said.rfind(_END)
        if end < 0:
            return
        whole = bytes(said[: end + len(_END) - 1])
        del said[: end + len(_END)]
        self._keep(b"[" + whole + b"]" if self._begun else whole + b"]")
        self._begun = True

    def end(self, said: bytes, pid: int) -> list[RawThread]:
        """All threads; `said`: what was left. Raises JobFailed where it is none of what py-spy says."""
        self._keep(b"[" + said if self._begun else said)
        stacks: dict[bytes, list[RawFrame]] = {}
        try:
            if self._wrong is not None:
                raise self._wrong
            for raw in self._stacks:
                stacks[raw] = msgspec.json.decode(raw, type=list[RawFrame])
        except _Malformed as error:
            raise JobFailed(f"py-spy's answer about process {pid} is malformed: {error}.") from error
        return [
            RawThread(one.thread_id, one.thread_name, one.os_thread_id, one.active, one.owns_gil, stacks[raw])
            for one, raw in self._threads
        ]

    def _keep(self, threads: bytes) -> None:
        if self._wrong is not None:
            return
        try:
            found = msgspec.json.decode(threads, type=list[_Said])
        except _Malformed as error:
            self._wrong = error
            return
        for one in found[: THREADS_MAX - len(self._threads)]:
            raw = bytes(one.frames)
            one.frames = msgspec.Raw()
            if raw not in self._stacks:
                self.bytes += len(raw)
            self._threads.append((one, self._stacks.setdefault(raw, raw)))
            self.bytes += len(one.thread_name or "")
