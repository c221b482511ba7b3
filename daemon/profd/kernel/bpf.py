"""Filters of system calls (seccomp(2), classic BPF), assembled from tables: what may pass, and with which arguments.

Calls have the numbers of their machine. What is on no list gets one answer. Frequent calls go first: kernels before
5.11 walk the filter at every call.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

ALLOW: Final = 0x7FFF0000
ASK: Final = 0x7FC00000  # SECCOMP_RET_USER_NOTIF: who listens answers
EPERM: Final = 0x00050001
ENOSYS: Final = 0x00050026
ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH of each machine

_LOAD, _AND, _EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data, little endian


@dataclass(frozen=True, slots=True)
class Test:
    """One argument: its low half, masked, is one of some values; or the whole of it is `whole`."""

    argument: int
    values: tuple[int, ...] = ()
    mask: int = 0xFFFFFFFF
    whole: int | None = None


def rule(number: int | None, *ways: tuple[int, *tuple[Test, ...]]) -> list[bytes]:
    """For one call: the answer of the first way whose tests all hold, else EPERM. None: there is no such call."""
    if number is None:
        return []
    steps: list[bytes] = []
    for answer, *tests in ways:
        way = [_step(_RETURN, answer)]
        for test in reversed(tests):
            way = [*_tested(test, len(way)), *way]
        steps += way
    steps.append(_step(_RETURN, EPERM))
    return [_step(_EQUAL, number, false=len(steps)), *steps]


def program(
    machine: str, plain: Iterable[int], rules: Sequence[list[bytes]], *, quiet: Iterable[int] = (), unknown: int
) -> bytes:
    """`plain` pass; the rules decide on theirs; `quiet` do not exist; `unknown` is the answer to all others.

    The numbers of other architectures do not exist, and x32's are on no list.
    """
    steps = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, ARCHITECTURES[machine], true=1),
        _step(_RETURN, ENOSYS),
        _step(_LOAD, _NUMBER),
        *(step for number in plain for step in _if(number, ALLOW)),
        *(step for steps in rules for step in steps),
        *(step for number in quiet for step in _if(number, ENOSYS)),
        _step(_RETURN, unknown),
    ]
    return b"".join(steps)


def _if(number: int, answer: int) -> list[bytes]:
    return [_step(_EQUAL, number, false=1), _step(_RETURN, answer)]


def _tested(test: Test, rest: int) -> list[bytes]:
    """On to the next step if it holds, past `rest` steps if not."""
    low = _ARGUMENTS + 8 * test.argument
    if test.whole is not None:
        return [
            _step(_LOAD, low),
            _step(_EQUAL, test.whole & 0xFFFFFFFF, false=rest + 2),
            _step(_LOAD, low + 4),
            _step(_EQUAL, test.whole >> 32, false=rest),
        ]
    count = len(test.values)
    compared = [
        _step(_EQUAL, value, true=count - 1 - place, false=rest if place == count - 1 else 0)
        for place, value in enumerate(test.values)
    ]
    return [_step(_LOAD, low), _step(_AND, test.mask), *compared]


def _step(code: int, value: int, *, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, true, false, value)
