"""Types that threads decode.

msgspec (0.22) builds what it has to know of a type when that is first decoded, and
hangs it on the type before it is whole: another thread that decodes the same type
at that moment reads beyond it (SIGSEGV, with the daemon's life). So all of it is
built where a module is imported, which one thread does.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

_Kind = TypeVar("_Kind")


def decodable(kind: type[_Kind]) -> type[_Kind]:
    """A class decorator. The types of its fields stand above it."""
    msgspec.json.Decoder(kind)
    return kind
