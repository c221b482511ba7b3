"""The observer's C++ sources: in the wheel beside this module, in a checkout where they are written."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

PARTS: Final = ("torch", "torch/first", "torch/cuda/first", "torch/cuda/last/crt", "recorder")
_HERE: Final = os.path.dirname(os.path.abspath(__file__))
_CHECKOUT: Final = os.path.normpath(os.path.join(_HERE, "..", "..", "..", "native"))
_SHIPPED: Final = os.path.join(_HERE, "native")


def directory() -> str:
    """The folder of `torch/all.cpp`. FileNotFoundError where this installation has none."""
    for candidate in (_CHECKOUT, _SHIPPED):
        if os.path.isfile(os.path.join(candidate, "torch", "all.cpp")):
            return candidate
    raise FileNotFoundError("this installation of profclient has no sources of the observer, install it again")


def files() -> list[str]:
    """The files that a build depends on, sorted."""
    top = directory()
    found = []
    for part in PARTS:
        names = os.listdir(os.path.join(top, part))
        found += [os.path.join(top, part, name) for name in names if _belongs(part, name)]
    return sorted(found)


def digest() -> str:
    """The digest of all files, eight hexadecimal digits: builds of other sources are other builds."""
    total = hashlib.sha256()
    for path in files():
        total.update(os.path.basename(path).encode() + b"\0" + Path(path).read_bytes() + b"\0")
    return total.hexdigest()[:8]


def _belongs(part: str, name: str) -> bool:
    if part == "recorder":  # of the recorder only what the observer includes
        return name in ("arena.h", "writer.h", "inputs.h")
    return name.endswith((".h", ".cpp"))
