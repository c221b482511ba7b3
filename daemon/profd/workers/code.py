"""Places of the code that a process of ours runs, for Landlock."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Final

# What native libraries and the C library read after they are loaded.
_SYSTEM: Final = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache"),
    *("/usr/share/zoneinfo", "/etc/localtime", "/sys/devices/system/cpu"),
    *("/sys/kernel/mm/transparent_hugepage/enabled", "/proc/sys/vm/overcommit_memory"),  # allocators
)


def places(own: str | None = None) -> list[str]:
    """Places of Python and of this process's libraries; none that contains `own`, a place of a worker's."""
    found = [*sys.path, os.path.dirname(os.__file__), *os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)]
    found += [os.path.join(prefix, "lib") for prefix in (sys.prefix, sys.base_prefix)]
    real = {os.path.realpath(place) for place in found if place}
    around = {"/", *_parents(os.path.realpath(own))} if own else {"/"}
    return [*_SYSTEM, *sorted(real - around)]


def _parents(path: str) -> Iterator[str]:
    while path != "/":
        yield path
        path = os.path.dirname(path)
