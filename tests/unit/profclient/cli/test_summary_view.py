"""The summary of a trace, for people."""

from __future__ import annotations

from typing import Any

import pytest
from profclient.cli.summary_view import print_summary

TRACE = {"id": "t1", "title": "train.py", "events": 3, "created_ns": 0, "source": "sdk", "host": "n1", "pid": 7}


def shown(capsys: pytest.CaptureFixture[str], **summary: Any) -> dict[str, str]:
    print_summary({"trace": TRACE, "next": "profctl top t1", **summary})
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    return {line.split("  ")[0]: line.partition("  ")[2].strip() for line in lines}


@pytest.mark.parametrize(("error", "said"), [(0, "0 ns"), (1250, "1.25 us")])
def test_how_exact_the_clock_is(capsys: pytest.CaptureFixture[str], error: int, said: str) -> None:
    assert shown(capsys, clock_error_ns=error)["clock"] == f"times are within {said} of the host's"


def test_nothing_is_said_of_a_clock_that_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert "clock" not in shown(capsys, clock_error_ns=None)
    assert "clock" not in shown(capsys)
