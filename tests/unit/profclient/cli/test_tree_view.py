"""What `profctl tree` prints: each thread by itself, calls below their callers."""

from __future__ import annotations

from typing import Any

import pytest
from profclient.cli.commands.tree import print_tree
from profclient.cli.merged_view import print_merged, say_of_unrecorded


def call(row: int, name: str, parent: int | None = None, depth: int = 0, **fields: Any) -> dict[str, Any]:
    place = {"process": 7, "thread": 1, "device_type": "CPU", "device": None, "stream": None}
    times = {"start_ns": row, "end_ns": row + 5, "kind": "cpu_op"}
    return {"row": row, "name": name, "parent": parent, "depth": depth, **place, **times, **fields}


def printed(capsys: pytest.CaptureFixture[str], *calls: dict[str, Any]) -> list[str]:
    print_tree(calls)
    return capsys.readouterr().out.splitlines()


def test_threads_that_interleave_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(
        capsys,
        call(0, "outer"),
        call(1, "other", thread=2),
        call(2, "inner", 0, 1),
        call(3, "below", 1, 1, thread=2),
        call(4, "next"),
    )
    assert [line.split()[-2] if "[" in line else line for line in lines] == [
        "process 7, thread 1",
        "outer",
        "inner",
        "next",
        "process 7, thread 2",
        "other",
        "below",
    ]
    assert lines[2].index("inner") == lines[1].index("outer") + 2


def test_device_work_is_below_its_launch_or_under_its_stream(capsys: pytest.CaptureFixture[str]) -> None:
    gpu: dict[str, Any] = {"thread": 3, "device_type": "CUDA", "device": 0, "stream": 7, "kind": "kernel"}
    lines = printed(capsys, call(0, "launch"), call(1, "op"), call(2, "gemm", 0, 1, **gpu), call(3, "copy", 99, **gpu))
    assert [line.split()[-2] if "[" in line else line for line in lines] == [
        "process 7, thread 1",
        "launch",
        "gemm",
        "op",
        "CUDA 0, stream 7",
        "copy",
    ]


def test_a_caller_that_is_the_later_row_is_still_above(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, call(0, "inner", 1, 1), call(1, "outer"))
    assert [line.split()[-2] for line in lines[1:]] == ["outer", "inner"]


def test_hostile_names_and_ids_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    text = "".join(printed(capsys, call(0, "a\x1b[31m", thread="t\x1b[2J")))
    assert "\x1b" not in text


def test_paths_fork_where_there_is_more_than_one(capsys: pytest.CaptureFixture[str]) -> None:
    depths = [0, 1, 2, 3, 2, 3, 1, 0, 1]
    print_merged(answer([node(f"n{number}", depth) for number, depth in enumerate(depths)]))
    assert [line[43:] for line in capsys.readouterr().out.splitlines()] == [
        "NAME",
        "├─ n0",
        "│  ├─ n1",
        "│  │  ├─ n2",
        "│  │  │  n3",
        "│  │  └─ n4",
        "│  │     n5",
        "│  └─ n6",
        "└─ n7",
        "   n8",
    ]


def test_one_path_goes_straight_down_however_deep(capsys: pytest.CaptureFixture[str]) -> None:
    print_merged(answer([node(f"n{depth}", depth) for depth in range(500)]))
    assert {line[43:] for line in capsys.readouterr().out.splitlines()} == {"NAME", *(f"n{at}" for at in range(500))}


def test_deep_forks_leave_room_for_names(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    depths = [0] + [depth for depth in range(1, 60) for _ in (0, 1)]
    print_merged(answer([node("name" * 40, depth) for depth in depths]))
    lines = capsys.readouterr().out.splitlines()[1:]
    assert all(len(line) <= 100 and "namename" in line for line in lines)


def test_a_merged_tree_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        node("a\x1b[31mb\n", 0, recursive=True),
        node("gemm", 1, kind="kernel", device_total_ns=2_000_000, share=None),
    ]
    print_merged({**answer(rows), "left_out": 7})
    out, err = capsys.readouterr()
    assert "\x1b" not in out
    assert out.splitlines()[0].split() == ["TOTAL", "SELF", "DEV", "TOTAL", "%", "CALLS", "NAME"]
    assert out.splitlines()[1].split() == [
        "1.50",
        "ms",
        "500.0",
        "us",
        "25.0%",
        "3",
        "a\ufffd[31mb\ufffd",
        "(recursive)",
    ]
    assert out.splitlines()[2].split() == ["1.50", "ms", "500.0", "us", "2.00", "ms", "3", "gemm", "[kernel]"]
    assert err == "… 7 paths with less time left out; --limit shows more, 0 all.\n"


@pytest.mark.parametrize(
    ("shares", "left_out", "said"),
    [
        ([0.05, 0.02], 0, "93% of this part is in nothing that was recorded: --stacks records every Python call.\n"),
        (
            [0.25, 0.125],
            1,
            "At least 50% of this part is in nothing that was recorded: --stacks records every Python call.\n",
        ),
        ([0.25, 0.125], 2, ""),
        ([0.3, 0.3], 0, ""),
        ([0.05, None], 0, ""),
        ([], 0, ""),
    ],
)
def test_a_part_of_which_little_was_recorded(
    capsys: pytest.CaptureFixture[str], shares: list[float | None], left_out: int, said: str
) -> None:
    say_of_unrecorded({**answer([node("a", 0, share=share) for share in shares]), "left_out": left_out})
    assert capsys.readouterr().err == said


def test_nothing_to_merge(capsys: pytest.CaptureFixture[str]) -> None:
    print_merged(answer([]))
    assert capsys.readouterr() == ("", "There is no call with a duration.\n")


def node(name: str, depth: int, **fields: Any) -> dict[str, Any]:
    times = {"total_ns": 1_500_000, "self_ns": 500_000, "device_total_ns": 0, "share": 0.25, "count": 3}
    return {"name": name, "depth": depth, "kind": "python_function", "recursive": False, **times, **fields}


def answer(nodes: list[dict[str, Any]]) -> dict[str, Any]:
    return {"window_ns": 6_000_000, "calls": 9, "paths": len(nodes), "left_out": 0, "nodes": nodes}
