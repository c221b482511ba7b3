"""JSON that every reader takes, of what foreign traces brought along.

Their texts are JSON, with numbers of any size. Python reads `1e999` as infinity, and writes `Infinity`, which is none.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

DIGITS_MAX: Final = 1000  # Python takes its time over longer numbers, and refuses very long ones


def loads(text: str) -> Any:
    """The value; a number that is no double, or has very many digits, is its text. Raises as `json.loads`."""
    return json.loads(text, parse_int=integer, parse_float=number)


def integer(digits: str) -> int | str:
    """What stands there, as far as it can be counted with."""
    return int(digits) if len(digits) < DIGITS_MAX else digits


def number(text: str) -> float | str:
    """The same, of one with a point or an exponent."""
    value = float(text)
    return value if math.isfinite(value) else text


def dumps(value: Any) -> str:
    """JSON in ASCII; numbers that it has no word for are null, as msgspec has them."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
