"""Which thread waits for which: for its end, and for a lock that it holds; and what threads are called.

`self` of threading.Thread.join is `self` of the other one's first frame, which py-spy reads with local variables. They
do not tell who holds a lock: `locks` reads that.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from profd.model.frame import Frame

# py-spy's words for an object that it has no more of: "<Thread at 0x7f81f09ed990>", of a subclass by its name.
_HELD: Final = re.compile(r"(\d{1,10}) (thread|ident) (\d{1,20})")
_GIL: Final = re.compile(r"(\d{1,10}) gil")
_NAMED: Final = re.compile(r"(\d{1,20}) (.+)")
_OBJECT: Final = re.compile(r" at (0x[0-9a-f]{1,16})>\Z")


@dataclass(frozen=True, slots=True)
class Selves:
    """The `self` in the frames of one thread, as py-spy writes it; "" where there is none. Innermost first."""

    thread: int
    frames: tuple[tuple[Frame, str], ...]


def waits_in_join(frames: Iterable[Frame]) -> bool:
    """It is within threading.Thread.join."""
    return any(_of_thread(frame, "join") for frame in frames)


def joined(threads: Iterable[Selves]) -> dict[int, int]:
    """Thread -> the one whose end it waits for, for all of which both are known."""
    owners: dict[str, int] = {}
    wanted: dict[int, str] = {}
    for thread in threads:
        for frame, it in thread.frames:
            if not (address := _address(it)):
                continue
            if _of_thread(frame, "_bootstrap"):
                owners[address] = thread.thread
            elif _of_thread(frame, "join"):
                wanted.setdefault(thread.thread, address)
    return {waiter: owners[address] for waiter, address in wanted.items() if address in owners}


def held(said: bytes, idents: dict[int, int]) -> dict[int, int]:
    """Thread -> the one that holds the lock it waits for, of what `locks` printed.

    `idents`: the thread's id as the process knows it, by what Python knows it as. What is neither is left out.
    """
    found: dict[int, int] = {}
    for line in said.decode("ascii", "replace").splitlines():
        if (words := _HELD.fullmatch(line)) is None:
            continue
        waiter, kind, number = int(words[1]), words[2], int(words[3])
        holder = number if kind == "thread" else idents.get(number, 0)
        if holder and holder != waiter:
            found[waiter] = holder
    return found


def wait_for_gil(said: bytes) -> frozenset[int]:
    """The threads that wait for the interpreter's lock, of what `locks` printed."""
    lines = said.decode("ascii", "replace").splitlines()
    return frozenset(int(found[1]) for line in lines if (found := _GIL.fullmatch(line)))


def named(said: bytes) -> dict[int, str]:
    """Name by the ident of a thread, of what `names` printed. What is none is left out."""
    found: dict[int, str] = {}
    for line in said.decode("utf-8", "replace").split("\n"):  # a name may have other ends of lines in it
        if (words := _NAMED.fullmatch(line)) is not None:
            with contextlib.suppress(msgspec.DecodeError):
                found[int(words[1])] = msgspec.json.decode(f'"{words[2]}"', type=str)
    return found


def _of_thread(frame: Frame, function: str) -> bool:
    return frame.function.rpartition(".")[2] == function and os.path.basename(frame.file) == "threading.py"


def _address(it: str) -> str:
    found = _OBJECT.search(it)
    return found[1] if found else ""
