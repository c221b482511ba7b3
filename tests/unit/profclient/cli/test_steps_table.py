"""The table of `profctl steps`: each step by the number that `export --step` takes."""

from __future__ import annotations

from typing import Any

import pytest
from profclient.cli.commands.steps import _SORTS, _numbering, _print, _remarks

LASTING = 123_456_789


def step(name: str, number: int | None) -> dict[str, Any]:
    busy = {"device_busy_ns": LASTING, "device_idle_ns": LASTING, "host_share": 0.5, "launches": 1000}
    told = {"name": name, "start_ns": 0, "duration_ns": LASTING, "launch_delay_p50_ns": LASTING, **busy}
    return told if number is None else {"number": number, **told}


@pytest.mark.parametrize(
    ("names", "shown_at_80"),
    [
        (("Optimizer.step#SGD.step", "Optimizer.step#SGD.step"), False),
        (("ProfilerStep#1009", "ProfilerStep#1010"), False),
        (("the first of all training steps", "the second of all training steps"), True),
    ],
)
def test_names_that_say_no_more_than_the_number_give_way(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, names: tuple[str, str], shown_at_80: bool
) -> None:
    for width, shown in ((200, True), (80, shown_at_80)):
        monkeypatch.setenv("COLUMNS", str(width))
        _print([step(name, number) for number, name in enumerate(names, start=1009)])
        head, first, second = capsys.readouterr().out.splitlines()
        assert max(map(len, (head, first, second))) <= width
        assert (first.split()[0], second.split()[0]) == ("1009", "1010")
        assert ("NAME" in head) is shown


def test_daemons_that_do_not_say_the_number(capsys: pytest.CaptureFixture[str]) -> None:
    _print([step("ProfilerStep#7", None)])
    assert capsys.readouterr().out.splitlines()[1].split()[0] == "ProfilerStep#7"


def answer(lasting: list[int], outliers: set[int]) -> dict[str, Any]:
    rows = [
        {**step(f"ProfilerStep#{n}", n), "start_ns": n, "duration_ns": ns, "outlier": n in outliers}
        for n, ns in enumerate(lasting)
    ]
    told = {"n": len(outliers), "above_ns": 120_000_000, "median_ns": 100_000_000, "deviation_ns": 1_000_000}
    return {"n": len(rows), "from": "ProfilerStep", "message": None, "outliers": told, "steps": rows}


def test_slow_steps_are_marked_and_the_slowest_is_what_to_look_at_next(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    found = answer([100_000_000, 250_000_000, 310_000_000], {1, 2})
    _print(found["steps"], 0, found["outliers"]["median_ns"])
    _remarks(found, "my trace")
    out, err = capsys.readouterr()
    head, *rows = out.splitlines()
    assert [row[head.index("SLOW") :][:4].strip() for row in rows] == ["", "2.5x", "3.1x"]
    assert err == "2 of 3 steps took longer than 120.0 ms.\nnext: profctl top 'my trace' --step 2\n"


def test_a_capture_says_whose_numbers_its_steps_have() -> None:
    asked = {"first": 119, "n": 5}
    assert _numbering({"numbered_by": "program", "asked": asked}).startswith("119 to 123 were asked for; the others")
    assert "profctl ranks pairs them" in _numbering({"numbered_by": "window", "asked": None})
    assert _numbering({"numbered_by": "program", "asked": None}) == _numbering({}) == ""


def test_without_slow_ones_nothing_is_marked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    found = answer([100_000_000] * 3, set())
    _print(found["steps"], 0, found["outliers"]["median_ns"])
    _remarks(found, "")
    out, err = capsys.readouterr()
    assert "SLOW" not in out
    assert err == "next: profctl top\n"


def test_columns_that_this_trace_has_nothing_for_are_not_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    bare = {"device_busy_ns": None, "device_idle_ns": None, "launches": 0, "launch_delay_p50_ns": None}
    _print([{**step(f"ProfilerStep#{n}", n), **bare} for n in (1, 2)])
    assert capsys.readouterr().out.splitlines()[0].split() == ["STEP", "NAME", "AT", "DURATION", "HOST"]


def test_every_sort_key_takes_what_older_daemons_leave_out() -> None:
    rows = [
        {**step("a", 1), "start_ns": 5, "device_busy_ns": None, "launch_delay_p50_ns": None, "host_share": None},
        {**step("b", 2), "start_ns": 9, "duration_ns": 2 * LASTING, "device_idle_ns": 2 * LASTING, "launches": 2000},
    ]
    first = {key: min(rows, key=order)["name"] for key, order in _SORTS.items()}
    assert first == {"number": "a", **dict.fromkeys(("duration", "busy", "idle", "calls", "delay", "host"), "b")}
