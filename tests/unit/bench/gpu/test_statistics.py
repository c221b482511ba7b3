"""Ratios of blocks: by hand, and on numbers whose answer is known."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.gpu.statistics import Ratio, interval, noise_floor, plan, ratios


def test_every_block_has_the_reference_on_both_sides() -> None:
    order = plan(("off", "armed", "profiler"), 2)
    assert order == ["off", "armed", "off", "profiler", "off", "profiler", "off", "armed", "off"]
    assert plan(("off",), 3) == ["off"]


def test_ratios_by_hand() -> None:
    found = ratios(["off", "armed", "off", "armed", "off"], [10.0, 12.0, 14.0, 21.0, 16.0])
    assert found["armed"] == [12 / 12, 21 / 15]
    assert found["off"] == [14 / 10, 16 / 14]
    with pytest.raises(ValueError, match="a time for each block"):
        ratios(["off"], [])


@given(st.floats(0.5, 3.0), st.floats(0.0, 0.5))
def test_a_drift_of_the_machine_is_no_overhead(factor: float, drift: float) -> None:
    """The machine becomes steadily slower; every block is `factor` times its neighbours."""
    order = plan(("off", "armed"), 10)
    times = [(1 + drift * at) * (factor if mode == "armed" else 1) for at, mode in enumerate(order)]
    assert interval(ratios(order, times)["armed"]).value == pytest.approx(factor)


def test_the_interval_holds_the_truth_and_narrows() -> None:
    draw = random.Random(5)
    few, many = ([draw.gauss(1.02, 0.01) for _ in range(count)] for count in (8, 200))
    wide, narrow = interval(few), interval(many)
    assert wide.low <= 1.02 <= wide.high
    assert narrow.low <= 1.02 <= narrow.high
    assert narrow.width < wide.width
    assert interval(few) == wide  # the same every time
    assert interval([2.0]) == Ratio(2.0, 2.0, 2.0)
    with pytest.raises(ValueError, match="no values"):
        interval([])


def test_what_an_interval_can_say() -> None:
    assert Ratio(1.0, 0.99, 1.005).within(1.01) is True
    assert Ratio(1.05, 1.02, 1.08).within(1.01) is False
    assert Ratio(1.01, 0.99, 1.03).within(1.01) is None
    assert noise_floor(Ratio(1.0, 0.98, 1.01)) == pytest.approx(0.02)
