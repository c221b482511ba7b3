"""What `profctl critical` prints of a capture of many ranks."""

from __future__ import annotations

from typing import Any

import pytest
from profclient.cli.ranks_path_view import print_ranks_on_path

MS = 1_000_000


def without(middle: int | None, least: int | None, most: int | None) -> dict[str, int | None]:
    named = {"without_ns": middle, "without_least_ns": least, "without_most_ns": most}
    return {name: None if ms is None else ms * MS for name, ms in named.items()}


def answer(**other: Any) -> dict[str, Any]:
    traces = [{"rank": rank, "host": "node0", "trace": f"t{rank}"} for rank in range(2)]
    ranks = [
        {"rank": 1, "trace": "t1", "name": "work", "path_ns": 60 * MS, "times": 1200, **without(80, 70, 85)},
        {"rank": None, "trace": "t0", "name": "work", "path_ns": 30 * MS, "times": 2, **without(101, 90, 102)},
    ]
    return {
        "capture": "c1",
        "traces": traces,
        "missing_ranks": [],
        "shared_ranks": [],
        "steps": {"n": 3, "first": 4, "last": 6},
        "path": {"duration_ns": 100 * MS, "meetings": 2},
        "ranks": ranks,
        "ranks_left_out": 0,
        "collectives": [{"op": "all_reduce", "group": "0", "name": "", "path_ns": 10 * MS, "times": 2}],
        "sentences": ["rank 1 is late."],
        "remarks": [],
        **other,
    }


def test_a_row_says_what_would_be_gained_without_the_rank(capsys: pytest.CaptureFixture[str]) -> None:
    print_ranks_on_path(answer())
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == "What the end of steps 4..6 waited for over all ranks (100.0 ms, 2 collectives):"
    late, other, together = (line.split() for line in lines[3:6])
    assert late == ["60", "%", "60.00", "ms", "1,200", "-20", "%", "work", "of", "rank", "1"]
    assert other[5:] == ["+1", "%", "work", "of", "trace", "t0"]  # as the others: by chance a little longer
    assert together[5:] == ["-", "collective", "all_reduce", "of", "0"]
    assert lines[-1] == "rank 1 is late."
    assert "2 traces, ranks 0-1 on 1 host" in err


@pytest.mark.parametrize(
    ("ranges", "shown"),
    [
        (without(None, 40, 85), "-15 to -60 %"),
        (without(None, 90, 102), "+2 to -10 %"),
        (without(None, 90, None), "? to -10 %"),
    ],
)
def test_two_numbers_stand_where_one_is_not_told(
    ranges: dict[str, int | None], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"rank": 1, "trace": "t1", "name": "work", "path_ns": 60 * MS, "times": 1200, **ranges}
    print_ranks_on_path(answer(ranks=[row], collectives=[]))
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "work of" in line]
    assert line.split("1,200")[1].split("work of")[0].strip() == shown


def test_one_step_nobody_late_and_ranks_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_ranks_on_path(
        answer(steps={"n": 1, "first": 4, "last": 4}, sentences=[], remarks=["clocks differ"], ranks_left_out=5)
    )
    out, err = capsys.readouterr()
    assert "the end of step 4 waited" in out
    assert out.splitlines()[-2:] == [
        "No rank is slower than the others by more than chance explains.",
        "clocks differ",
    ]
    assert "5 ranks with less left out" in err
