"""What was recorded against what is known: every difference is found and named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.gpu.program import ADD, NODE, PTX, truth
from bench.gpu.records import Recorded, agree, compare


def whole() -> Recorded:
    """Everything that the program does."""
    known = truth()
    seen = Recorded()
    for number in range(known.kernels[ADD]):
        seen.kernels.append((ADD, number % known.streams, number + 1, 10, 20))
        seen.calls.append(number + 1)
    for number in range(known.kernels[NODE]):
        seen.kernels.append((NODE, 99, 10_000 + number % known.graph_launches, 10, 20))
    for kind, (count, _) in zip((1, 2, 8), known.copies.values(), strict=True):
        seen.copies += [(kind, 4096 * (number + 1)) for number in range(count)]
    seen.fills = [4096 * (number + 1) for number in range(known.fills[0])]
    return seen


def failed(seen: Recorded) -> list[str]:
    return [check.name for check in compare(truth(), seen, "x") if check.passed is not True]


def test_the_truth_passes() -> None:
    assert failed(whole()) == []
    assert agree(whole(), whole()).passed is True


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda seen: seen.kernels.pop(0), [f"x: kernels {ADD}"]),
        (lambda seen: seen.kernels.pop(), [f"x: kernels {NODE}"]),
        (lambda seen: seen.copies.append((1, 1)), ["x: copies HtoD, bytes"]),
        (lambda seen: seen.fills.__setitem__(0, 1), ["x: fills, bytes"]),
        (lambda seen: seen.calls.append(1), ["x: launches whose call is recorded once"]),
        (lambda seen: seen.kernels.__setitem__(-1, (NODE, 99, 1, 10, 20)), ["x: graph launches by correlation id"]),
        (lambda seen: seen.kernels.__setitem__(0, (ADD, 0, 1, 20, 10)), ["x: kernels with impossible times"]),
        (lambda seen: setattr(seen, "lost", 3), ["x: lost"]),
    ],
)
def test_each_difference_is_named(change: Callable[[Recorded], object], names: list[str]) -> None:
    seen = whole()
    change(seen)
    assert failed(seen) == names


def test_two_recorders_that_differ() -> None:
    other = whole()
    other.copies.pop()
    found = agree(whole(), other)
    assert found.passed is False
    assert found.detail.startswith("copies: ")


def test_both_kernels_are_in_the_program() -> None:
    assert PTX.count(".visible .entry") == 2
    assert f".entry {ADD}(" in PTX
    assert f".entry {NODE}(" in PTX
