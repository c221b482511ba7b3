"""What /proc says of processes that may end, and of threads that may, while one looks."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def said_of(pid: int, file: str) -> str:
    """What a file of its folder says; nothing where the process is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/{file}").read_text()
    return ""


def state(pid: int) -> str:
    """The letter of its state; nothing where it is gone."""
    return said_of(pid, "stat").rpartition(")")[2].strip()[:1]


def of_threads(pid: int, file: str) -> dict[int, str]:
    """What a file of each thread's folder says, of the threads that are still there."""
    found = {}
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found[int(task.name)] = (task / file).read_text()
    return found


def children(pid: int) -> list[int]:
    """The processes that one of its threads has begun."""
    return [int(word) for words in of_threads(pid, "children").values() for word in words.split()]


def descriptors(pid: int) -> list[str]:
    """What the descriptors of a process are; it may be closing some."""
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except FileNotFoundError:
            continue
    return found
