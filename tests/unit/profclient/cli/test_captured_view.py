"""What is said beside the table of a capture."""

from __future__ import annotations

from typing import Any

import pytest
from profclient.cli.captured_view import heading, say_of_traces


def answer(*ranks: int | None, missing: Any = (), shared: Any = (), left_out: Any = ()) -> dict[str, Any]:
    traces = [{"rank": rank, "host": f"node{number % 2}", "trace": f"t{number}"} for number, rank in enumerate(ranks)]
    told = {"missing_ranks": list(missing), "shared_ranks": list(shared), "left_out": list(left_out)}
    return {"capture": "c0123456789ab", "traces": traces, **told}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (answer(0, 1, 2, 3), "4 traces, ranks 0-3 on 2 hosts"),
        (answer(5, missing=[[0, 4]]), "1 trace, rank 5 on 1 host; no trace of rank 0-4"),
        (answer(0, 1, 1, 3, missing=[[2, 2]], shared=[1]), "4 traces, ranks 0-1, 3 on 2 hosts; no trace of rank 2; "
         "several traces of rank 1"),
        (answer(None, None), "2 traces on 2 hosts"),
        ({**answer(0), "missing_hosts": ["n1"]}, "1 trace, rank 0 on 1 host; nothing came from host n1"),
        ({**answer(0), "missing_hosts": list("abcde")}, "1 trace, rank 0 on 1 host; nothing came from hosts a, b, c "
         "and 2 more"),
    ],
)  # fmt: skip
def test_the_heading(given: dict[str, Any], says: str) -> None:
    assert heading(given) == f"c0123456789ab: {says}"


def test_what_is_left_out_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    without = [
        {"rank": rank, "host": "h", "trace": f"t{rank}", "why": "no step\x1b[2J 7"} for rank in (0, 1, None, 3, 4)
    ]
    say_of_traces(answer(0, 1, left_out=without))
    said = capsys.readouterr().err.splitlines()
    assert said[1:] == [
        "without rank 0: no step�[2J 7",
        "without rank 1: no step�[2J 7",
        "without trace tNone: no step�[2J 7",
        "… and without 2 traces more; --json names them.",
    ]
