"""Arguments of questions: what each may be, and what is said of a value that it may not be.

A value comes from a peer: as JSON (offline), as a `google.protobuf.Struct` (Query), or from the fields of an older
request. `checked` takes all of these. Integers may be decimal strings, which is how proto3's JSON writes 64 bits;
numbers are taken where a double holds them exactly.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, ClassVar, Final

from profd.errors import BadInput
from profd.limits import QUESTION_LIST_MAX, QUESTION_TEXT_BYTES_MAX

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
_EXACT_MAX: Final = 1 << 53  # of a double
SHOWN_CHARACTERS: Final = 200  # of a value that is refused
_DECIMAL: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)


class ArgumentKind(Enum):
    """What an argument holds; names as in query.proto."""

    INTEGER = auto()
    FLAG = auto()
    TEXT = auto()
    TEXTS = auto()
    TRACE = auto()  # an id, a prefix, or empty for the latest: authorised as the trace that is asked


@dataclass(frozen=True, slots=True)
class Argument(ABC):
    """One argument. `refusal` replaces the sentence about a value out of limits; it names the fields of `_refused`."""

    kind: ClassVar[ArgumentKind]

    name: str
    help: str
    default: Any = None
    least: int | None = None
    most: int | None = None  # of integers the largest, of texts the bytes, of lists the items
    choices: tuple[str, ...] = ()
    refusal: str = ""

    @abstractmethod
    def checked(self, value: object) -> Any:
        """The value as the question's function takes it. Raises BadInput."""

    def _refused(self, otherwise: str, value: object, values: str = "") -> BadInput:
        fields = {"name": self.name, "known": ", ".join(self.choices), "least": self.least, "most": self.most}
        shown = value[:SHOWN_CHARACTERS] if isinstance(value, str) else value
        return BadInput((self.refusal or otherwise).format(value=shown, values=values[:SHOWN_CHARACTERS], **fields))


@dataclass(frozen=True, slots=True)
class Integer(Argument):
    """Of 64 bits; `least` and `most` are inclusive. None by default where there is a difference to any number."""

    kind = ArgumentKind.INTEGER

    def checked(self, value: object) -> int:
        """An int, a decimal string, or a float that is a whole number up to 2^53."""
        number = _whole(value)
        if number is None:
            raise BadInput(f"{self.name!r} must be an integer.")
        least = INT64_MIN if self.least is None else self.least
        most = INT64_MAX if self.most is None else self.most
        if not least <= number <= most:
            upwards = "" if self.most is None and number < least else f" to {most}"
            raise self._refused(f"{{name}} must be a number from {least}{upwards}, not {{value!r}}", number)
        return number


@dataclass(frozen=True, slots=True)
class Flag(Argument):
    """True or false."""

    kind = ArgumentKind.FLAG
    default: Any = False

    def checked(self, value: object) -> bool:
        """A bool."""
        if not isinstance(value, bool):
            raise BadInput(f"{self.name!r} must be true or false.")
        return value


@dataclass(frozen=True, slots=True)
class Text(Argument):
    """A string; where there are choices one of them, and empty means the default."""

    kind = ArgumentKind.TEXT
    default: Any = ""
    most: int | None = QUESTION_TEXT_BYTES_MAX

    def checked(self, value: object) -> str:
        """A str."""
        if not isinstance(value, str):
            raise BadInput(f"{self.name!r} must be a string.")
        if self.choices and value and value not in self.choices:
            raise self._refused("{name} cannot be {value!r}; it is one of: {known}", value)
        if self.most is not None and len(value.encode("utf-8", "replace")) > self.most:
            raise self._refused("{name} is longer than {most} bytes, the limit", value)
        return value or str(self.default)


@dataclass(frozen=True, slots=True)
class Trace(Text):
    """Another trace."""

    kind = ArgumentKind.TRACE


@dataclass(frozen=True, slots=True)
class Texts(Argument):
    """A list of strings."""

    kind = ArgumentKind.TEXTS
    default: Any = ()
    most: int | None = QUESTION_LIST_MAX

    def checked(self, value: object) -> list[str]:
        """A list of str."""
        if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
            raise BadInput(f"{self.name!r} must be a list of strings.")
        if self.most is not None and len(value) > self.most:
            raise BadInput(f"{self.name} is a list of {len(value)}, the limit is {self.most}")
        unknown = [item for item in value if item not in self.choices] if self.choices else []
        if unknown:
            every = ", ".join(sorted(set(unknown)))
            raise self._refused("{name} cannot have {value!r}; they are of: {known}", unknown[0], every)
        return list(value)


def _whole(value: object) -> int | None:
    """The integer that a value stands for; None: it stands for none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT_MAX:
        return int(value)
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        return int(value)
    return value if isinstance(value, int) else None
