"""What `profctl tree` prints: each thread by itself, calls below their callers."""

from __future__ import annotations

from typing import Any

import pytest
from profclient.cli.commands.tree import print_tree


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
