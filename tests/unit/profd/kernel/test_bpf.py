"""Both filters of system calls, over every number and the arguments that decide.

What they answer is held to digests, which were taken of the programs that each of them assembled by itself: a change
of a list changes one. `python -m tests.unit.profd.kernel.test_bpf` prints them.
"""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Iterator

import pytest
from profd.sources.pyspy import filter as sampler
from profd.workers import calls as worker

from tests.support.bpf import AUDIT, answer

PID = 4711
EQUAL = 0x15  # a step of a program that compares
SECRET = bytes(range(1, 9))
NUMBERS = (*range(600), *range(1 << 30, (1 << 30) + 600), 1023, 0x7FFFFFFF)
WORDS = (
    *(0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 14, 15, 16, 17, 24, 36, 37, 38, 39, PID, PID + 1, PID | 1 << 32, 1 << 32, 1 << 63),
    *(0x241, 0x80241, 0x88241, 0xA0241, 0x80000, 0x88000, 1024, 1030, 0x1000, 0x4204, 0x4206, 0x4207, 0x53564D41),
    *(0x5401, 0x5412, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x10900, 0x3D0F00, 0x7D0F00, 0x3D0F00 | 1 << 28),
    *(0x3D0F00 | 1 << 17, 0xFFFFFFFF, int.from_bytes(SECRET, "little")),
)
GOLDEN = {
    "worker x86_64 ask=False": "0b9b6551677cdd7e",
    "worker x86_64 ask=True": "5131df684b2d6680",
    "sampler x86_64 native=False warden=False": "ed7f33d07a63529f",
    "sampler x86_64 native=False warden=True": "7cacae717c6f449c",
    "sampler x86_64 native=True warden=False": "aea3ef53c2b04304",
    "sampler x86_64 native=True warden=True": "4b60f16dfd6a56ca",
    "worker aarch64 ask=False": "bb5980e05895491c",
    "worker aarch64 ask=True": "8c66a24d008316eb",
    "sampler aarch64 native=False warden=False": "6465e4c44fd2b167",
    "sampler aarch64 native=False warden=True": "38ae2f0487fd9198",
    "sampler aarch64 native=True warden=False": "f9d93643fc0beeb5",
    "sampler aarch64 native=True warden=True": "e8e9efb3ea2028b0",
}


def programs() -> Iterator[tuple[str, str, bytes]]:
    """Name, machine, program: each in each of its ways."""
    for machine in AUDIT:
        for ask in (False, True):
            yield f"worker {machine} {ask=}", machine, worker.program(PID, ask=ask, machine=machine)
        for native, warden in itertools.product((False, True), repeat=2):
            built = sampler.build(machine, PID, SECRET, native=native, warden=warden)
            assert built is not None
            yield f"sampler {machine} {native=} {warden=}", machine, built


def digest(program: bytes, machine: str) -> str:
    """Of the answers to each number with each word in each of its arguments, and in two of them."""
    found = hashlib.sha256()
    other = next(name for name in AUDIT if name != machine)
    named = {value for code, _, _, value in struct.iter_unpack("=HBBI", program) if code == EQUAL}
    decides = {number for number in named.intersection(NUMBERS) if _looked_at(program, machine, number)}
    for number in NUMBERS:
        answers = [answer(program, machine, number), answer(program, other, number)]
        if number in decides:
            for place, word in itertools.product(range(6), WORDS):
                answers.append(answer(program, machine, number, *(0,) * place, word))
            for four, five in itertools.product(WORDS, repeat=2):
                answers.append(answer(program, machine, number, 0, 0, 0, 0, four, five))
        found.update(b"".join(verdict.to_bytes(4, "little") for verdict in answers))
    return found.hexdigest()[:16]


def _looked_at(program: bytes, machine: str, number: int) -> bool:
    one = answer(program, machine, number)
    return any(answer(program, machine, number, *(0,) * place, word) != one for place in range(6) for word in WORDS)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "machine", "program"), list(programs()), ids=[name for name, _, _ in programs()])
def test_the_answers_are_what_they_were(name: str, machine: str, program: bytes) -> None:
    assert digest(program, machine) == GOLDEN[name]


if __name__ == "__main__":
    for name, machine, program in programs():
        print(f'    "{name}": "{digest(program, machine)}",')
