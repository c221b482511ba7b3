"""Trace ids: `06v2k9x` + `4h8t1z`, seconds since 1970 and chance, in lower-case base 32.

Sortable by age; seven characters of time keep a prefix unique among traces of
different seconds, thirty bits of chance keep ids of one second apart.
"""

from __future__ import annotations

import secrets
from typing import Final

_DIGITS: Final = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's: no i, l, o, u to misread
_TIME_DIGITS: Final = 7
_RANDOM_DIGITS: Final = 6
ID_LENGTH: Final = _TIME_DIGITS + _RANDOM_DIGITS


def new_id(now_ns: int) -> str:
    """A fresh id for a trace created at `now_ns` (Unix ns)."""
    return _text(now_ns // 1_000_000_000, _TIME_DIGITS) + _text(secrets.randbits(30), _RANDOM_DIGITS)


def is_id(text: str) -> bool:
    """Whether it has the form of a whole id (and so is safe as a file name)."""
    return len(text) == ID_LENGTH and all(letter in _DIGITS for letter in text)


def _text(number: int, digits: int) -> str:
    letters = []
    for _ in range(digits):
        number, digit = divmod(number, len(_DIGITS))
        letters.append(_DIGITS[digit])
    return "".join(reversed(letters))
