"""The table of `profctl steps`: each step by the number that `export --step` takes."""

from __future__ import annotations

from typing import Any

import pytest
from profclient.cli.commands.steps import _print

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
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["-", "ProfilerStep#7"]
