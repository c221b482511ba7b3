"""Durations and sizes, read from people and written for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profclient.cli import units
from profclient.errors import UsageError


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("500ms", 500_000_000),
        ("10s", 10_000_000_000),
        ("1m30s", 90_000_000_000),
        ("1.5s", 1_500_000_000),
        ("0.1us", 100),
        ("2h", 7_200_000_000_000),
        ("3 min", 180_000_000_000),
    ],
)
def test_durations_are_exact(text, ns):
    assert units.parse_duration_ns(text) == ns


@pytest.mark.parametrize("text", ["", "10", "s", "10x", "-1s", "0s", "1s2", "ten seconds", "1e3s"])
def test_what_is_no_duration_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match=r"500ms|longer than nothing"):
        units.parse_duration_ns(text)


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("1s..2s", (10**9, 2 * 10**9)),
        ("1s-2s", (10**9, 2 * 10**9)),
        ("2s-", (2 * 10**9, None)),
        ("2s..", (2 * 10**9, None)),
        ("..5ms", (None, 5 * 10**6)),
        ("0..1s", (0, 10**9)),
    ],
)
def test_windows(text, window):
    assert units.parse_window_ns(text) == window


@pytest.mark.parametrize(
    ("text", "steps"), [("12", (12, 12)), ("12..14", (12, 14)), ("12-14", (12, 14)), ("0", (0, 0))]
)
def test_steps(text, steps):
    assert units.parse_steps(text) == steps


@pytest.mark.parametrize("text", ["", "-1", "1-", "14..12", "1--2", "1.5", "1-2-3", "٣", "9" * 19])
def test_what_is_no_range_of_steps_is_refused(text):
    with pytest.raises(UsageError):
        units.parse_steps(text)


@pytest.mark.parametrize("text", ["", "..", "-", "2s-1s", "1s", "2s..1s", "1..2", "1s...2s"])
def test_what_is_no_window_is_refused(text):
    with pytest.raises(UsageError):
        units.parse_window_ns(text)


@given(st.integers(1, 10**15))
def test_property_what_is_written_is_read_back_to_its_digits(ns):
    text = units.duration(ns)
    back = units.parse_duration_ns(text)
    assert abs(back - ns) <= max(1, ns // 100)


def test_times_in_words():
    now = 10**18
    assert units.ago(now - 5 * 10**9, now) == "5 s ago"
    assert units.ago(now - 3 * 86_400 * 10**9, now) == "3 d ago"
    assert units.ago(None) == "-"
    assert units.size(1_234_567) == "1.2 MB"
    assert units.size(None) == "-"


@pytest.mark.parametrize(
    ("text", "share"), [("2%", 0.02), ("0.02", 0.02), (" 0.5 %", 0.005), ("100%", 1.0), ("1", 1.0)]
)
def test_shares(text: str, share: float) -> None:
    assert units.parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("500MB", 500_000_000), ("2GiB", 2 << 30), (" 1.5 k ", 1500), ("12B", 12)]
)
def test_sizes(text: str, size: int) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-1", "1 XB", "GiB", "1e9"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size"):
        units.parse_size(text)


@pytest.mark.parametrize(
    ("text", "hertz"), [("100hz", 100), ("100", 100), (" 2.5 Hz ", 2.5), ("1", 1), ("1000HZ", 1000)]
)
def test_rates(text: str, hertz: float) -> None:
    assert units.parse_hertz(text) == hertz


@pytest.mark.parametrize("text", ["", "hz", "0.5hz", "0", "-1", "1001hz", "nan", "inf", "100 per second", "100khz"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(UsageError, match="like 100hz"):
        units.parse_hertz(text)


@pytest.mark.parametrize("text", ["", "2", "%", "0", "0%", "-1%", "101%", "nan", "inf", "2%%", "2% of it", "0.05%"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(UsageError, match=r"2% or 0\.02"):
        units.parse_share(text)


@given(st.integers(1, 10**19))
def test_property_seconds_are_taken_back_and_cut_nothing_off(ns):
    assert ns <= units.parse_duration_ns(units.seconds(ns)) < ns + 1_000_000 + ns // 10**15


@pytest.mark.parametrize(
    ("gain", "text"),
    [(20_000, "-20 %"), (400, "-0.4 %"), (-400, "+0.4 %"), (-20_000, "+20 %"), (0, "0 %"), (49, "0 %"), (-49, "0 %")],
)
def test_a_gain_that_rounds_to_nothing_has_no_sign(gain: int, text: str) -> None:
    assert units.shorter(gain, 100_000) == text
