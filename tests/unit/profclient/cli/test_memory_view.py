"""`profctl memory` and what the summary says of memory, for people."""

from __future__ import annotations

from typing import Any

import pytest
from profclient.cli.commands.memory import _print_alive, _print_devices
from profclient.cli.summary_view import print_summary

USE = {
    "device_type": "CPU",
    "device": None,
    "allocations": 1200,
    "frees": 1100,
    "allocated_bytes": 5_000_000,
    "freed_bytes": 4_000_000,
    "net_bytes": 1_000_000,
    "peak_bytes": 2_000_000,
    "peak_reserved_bytes": None,
    "out_of_memory": 0,
}
STACK = ["aten::empty", "/job/train.py(9): keep", "/job/train.py(20): main\x1b[2J"]


def alive(**fields: Any) -> dict[str, Any]:
    row = {
        "device_type": "CPU",
        "device": None,
        "bytes": 1_000_000,
        "blocks": 100,
        "steps": 100,
        "grows": True,
        "stack": STACK,
    }
    return {"blocks": 100, "bytes": 1_000_000, "stacks": 1, "left_out": 0, "rows": [{**row, **fields}]}


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def test_what_was_allocated_freed_and_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    _print_devices([USE])
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == ["WHERE", "ALLOCATED", "TIMES", "FREED", "FREES", "NET", "PEAK"]
    assert line.split() == ["CPU", "5.0", "MB", "1,200", "4.0", "MB", "1,100", "+1.0", "MB", "2.0", "MB"]


def test_what_is_still_alive_by_stack(capsys: pytest.CaptureFixture[str]) -> None:
    _print_alive({**alive(), "left_out": 3})
    out, err = capsys.readouterr()
    _, title, head, line = out.splitlines()
    assert title == "Still alive: 1.0 MB in 100 blocks of 1 stack"
    assert head.split() == ["BYTES", "BLOCKS", "STEPS", "WHERE", "STACK"]
    assert line.split()[:6] == ["1.0", "MB", "100", "100", "grows", "CPU"]
    assert line.endswith("train.py(20): main\ufffd[2J > train.py(9): keep > aten::empty")
    assert err.startswith("… 3 stacks with fewer bytes left out")
    _print_alive(alive(steps=None, grows=False, stack=[], device_type="CUDA", device=1))
    head, line = capsys.readouterr().out.splitlines()[2:]
    assert head.split() == ["BYTES", "BLOCKS", "WHERE", "STACK"]
    assert line.endswith("CUDA 1  (no call around it)")
    _print_alive({**alive(), "blocks": 0, "rows": []})
    assert "Nothing that was allocated in the window is still alive." in capsys.readouterr().out


def test_the_end_of_a_capture_with_memory(capsys: pytest.CaptureFixture[str]) -> None:
    trace = {"id": "t1", "title": "train.py", "events": 3, "created_ns": 0, "source": "sdk", "host": "n1", "pid": 7}
    print_summary({"trace": trace, "next": "profctl top t1", "memory": [USE], "alive": alive()})
    out = capsys.readouterr().out
    assert "CPU  peak 2.0 MB  allocated 5.0 MB in 1,200  freed 4.0 MB in 1,100  net +1.0 MB\n" in out
    assert "  still alive   1.0 MB in 100 blocks allocated in the window  (profctl memory)\n" in out
    assert "        1.0 MB       100 x  grows  train.py(20): main\ufffd[2J > train.py(9): keep > aten::empty\n" in out
    print_summary({"trace": trace, "next": "profctl top t1", "memory": [{**USE, "net_bytes": -5}], "alive": None})
    out = capsys.readouterr().out
    assert "net -5 B\n" in out
    assert "still alive" not in out
