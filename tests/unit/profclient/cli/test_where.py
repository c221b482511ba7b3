"""How `profctl where` groups stacks."""

from __future__ import annotations

import pytest
from profclient.cli.commands.where import _print
from profproto.v1 import capture_pb2


def _thread(name: str, *functions: str) -> capture_pb2.ThreadStack:
    frames = [capture_pb2.Frame(function=function, file="a.py", line=1) for function in functions]
    return capture_pb2.ThreadStack(name=name, frames=frames)


def test_threads_that_read_alike_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    threads = [_thread("worker", "wait"), _thread("worker", "wait"), _thread("other", "wait")]
    _print([capture_pb2.ProcessStacks(pid=7, threads=threads)])
    said = "pid 7 worker (waiting) x2\npid 7 other (waiting)\n    wait (a.py:1)\n\n"
    assert capsys.readouterr().out == said


def test_a_thread_outside_of_python_has_no_frames(capsys: pytest.CaptureFixture[str]) -> None:
    _print([capture_pb2.ProcessStacks(pid=7, threads=[_thread("MainThread")])])
    assert capsys.readouterr().out == "pid 7 MainThread (waiting)\n    (no Python frames)\n\n"
