"""The names of this process's threads, as Python knows them: the kernel calls most threads as it calls the program.

Nothing is imported: a program without `threading` has one thread with a name, the first. Nothing of the program's runs
for this, not even a property of its own kind of thread.
"""

from __future__ import annotations

import os
import sys

from profclient.labels import one_line

NAME_CHARACTERS = 64
ALL_BYTES = 2048  # of one line of a STATUS; most programs have some dozens of threads


def thread_names() -> str:
    """`TID NAME;TID NAME…`, the main thread first: as many as ALL_BYTES hold."""
    module = sys.modules.get("threading")
    if module is None:
        return f"{os.getpid()} MainThread"
    said, used = [], 0
    for entry in filter(None, map(_entry, _threads(module))):
        used += len(entry.encode()) + 1
        if used > ALL_BYTES:
            break
        said.append(entry)
    return ";".join(said)


def _threads(module: object) -> list[object]:
    """A copy, made at once: threads come and go."""
    active = object.__getattribute__(module, "__dict__").get("_active")
    return list(active.values()) if type(active) is dict else []


def _entry(thread: object) -> str:
    """Empty: it has no name, or one that Python has made up for a thread that it did not start."""
    known = object.__getattribute__(thread, "__dict__")
    tid, name = known.get("_native_id"), known.get("_name")
    if type(tid) is not int or type(name) is not str or type(thread).__name__ == "_DummyThread":
        return ""
    clean = one_line(name[:NAME_CHARACTERS]).replace(";", ",")
    return f"{tid} {clean}" if clean else ""
