"""Whether something grows."""

from __future__ import annotations

import random

import pytest

from soak.slopes import slope


def test_a_straight_line() -> None:
    found = slope([float(x) for x in range(100)], [3.0 * x + 7 for x in range(100)])
    assert (found.value, found.low, found.high) == (pytest.approx(3), pytest.approx(3), pytest.approx(3))
    assert found.grows


def test_a_flat_one_with_noise_does_not_grow_and_one_with_a_leak_does() -> None:
    chance = random.Random(1)
    xs = [float(x) for x in range(1000)]
    flat = [100 + chance.gauss(0, 5) for _ in xs]
    assert not slope(xs, flat).grows
    assert slope(xs, [y + x / 100 for x, y in zip(xs, flat, strict=True)]).grows


def test_what_falls_does_not_grow() -> None:
    assert not slope([1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]).grows


def test_the_interval_is_students() -> None:
    """Numbers of a textbook line: x 1 to 5, y 2 4 5 4 5."""
    found = slope([1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 4.0, 5.0, 4.0, 5.0])
    assert found.value == pytest.approx(0.6)
    assert found.high - found.value == pytest.approx(3.182 * 0.2828, rel=0.01)


def test_two_points_are_too_few() -> None:
    with pytest.raises(ValueError, match="2 points"):
        slope([1.0, 2.0], [1.0, 2.0])
