"""The records of a Chrome stream one by one, for the dialect `torch-legacy`.

The dialect pairs records across threads and in time order, so it needs all of
them at once; the text is limited accordingly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, BinaryIO, Final

from profd import limits
from profd.decode.inflate import Slices
from profd.errors import BadTrace, Exhausted
from profd.model.text import encodable

_SPACE: Final = " \t\r\n"
_JSON: Final = json.JSONDecoder(parse_float=Decimal, parse_constant=str)
_MALFORMED: Final = (ValueError, ArithmeticError, RecursionError)
_MICROSECONDS_MAX: Final = 1 << 53  # 285 years


@dataclass(slots=True)
class Text:
    """A whole stream. `problem` says where and why it could be read no further."""

    records: list[Any]
    members: dict[str, Any]
    problem: str = ""


def read(file: BinaryIO) -> Text:
    """Raises BadTrace when it is no JSON at all, Exhausted beyond limits.LEGACY_TEXT_BYTES_MAX."""
    slices = Slices(file)
    raw = bytearray()
    for piece in slices:
        raw += piece
        if len(raw) > limits.LEGACY_TEXT_BYTES_MAX:
            raise Exhausted(
                f"The stream has more than {limits.LEGACY_TEXT_BYTES_MAX >> 20} MiB of text, "
                "too much for the dialect torch-legacy: import it without."
            )
    found = _parsed(raw.decode("utf-8", "replace").removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}"))
    found.problem = slices.problem or found.problem
    if found.problem and not found.records:
        raise BadTrace(f"{found.problem}; no event before it could be read", 0)
    return found


def nanoseconds(value: Any, base_ns: int) -> int | None:
    """A time or duration in µs as Unix ns; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    if not -_MICROSECONDS_MAX < value < _MICROSECONDS_MAX:  # abs() of a Decimal may overflow
        return None
    return base_ns + int(value * 1000)


def _parsed(text: str) -> Text:
    found = Text([], {})
    at = _skip(text, 0)
    try:
        if text[at : at + 1] == "[":
            _array(text, at + 1, found)
        elif text[at : at + 1] == "{":
            _object(text, at + 1, found)
        else:
            raise ValueError("it begins with neither '[' nor '{'")
    except _MALFORMED as error:
        found.problem = f"the JSON text cannot be read to its end: {error}"
    return found


def _object(text: str, at: int, found: Text) -> None:
    """The members of the outermost object."""
    at = _skip(text, at)
    while text[at : at + 1] != "}":
        key, at = _JSON.raw_decode(text, at)
        at = _skip(text, at)
        if not isinstance(key, str) or text[at : at + 1] != ":":
            raise ValueError(f"no member at character {at}")
        at = _skip(text, at + 1)
        if key == "traceEvents" and text[at : at + 1] == "[":
            at = _array(text, at + 1, found)
        else:
            found.members[key], at = _JSON.raw_decode(text, at)
        at = _separated(text, at, "}")


def _array(text: str, at: int, found: Text) -> int:
    """The records of an array; the place behind it. One without its bracket is whole: Chrome allows it."""
    at = _skip(text, at)
    while at < len(text) and text[at] != "]":
        record, at = _JSON.raw_decode(text, at)
        found.records.append(record)
        at = _separated(text, at, "]")
    return at + 1


def _separated(text: str, at: int, end: str) -> int:
    at = _skip(text, at)
    if text[at : at + 1] == ",":
        return _skip(text, at + 1)
    if at < len(text) and text[at] != end:
        raise ValueError(f"no comma at character {at}")
    return at


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _SPACE:
        at += 1
    return at


def text_of(value: Any) -> str:
    """A string that can be stored: lone surrogates cannot."""
    return encodable(value) if isinstance(value, str) else ""


def identified(value: Any) -> Any:
    """A handle, pid or tid as something to compare and store; numbers and strings stay apart."""
    if value is None or (isinstance(value, int) and abs(value) < 1 << 63):
        return value
    return text_of(value if isinstance(value, str) else json_text(value))


def json_text(value: Any) -> str:
    """A value as JSON again; empty where it is nested too deep."""
    try:
        return json.dumps(value, default=_number)
    except (ValueError, RecursionError):
        return ""


def _number(value: Decimal) -> float | str:
    number = float(value)
    return number if math.isfinite(number) else str(value)


def plain(found: dict[str, Any]) -> dict[str, Any]:
    """The strings and numbers among the top-level members."""
    return {text_of(key): identified(value) for key, value in found.items() if isinstance(value, str | int)}


def members(records: list[Any]) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
    """(position, record, its arguments) of the records that are objects."""
    for place, record in enumerate(records):
        if isinstance(record, dict):
            args = record.get("args")
            yield place, record, args if isinstance(args, dict) else {}
