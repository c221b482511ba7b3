"""How `profctl where` groups and prints stacks."""

from __future__ import annotations

import pytest
from profclient.cli.stacks_view import print_stacks
from profproto.v1 import capture_pb2


def _thread(name: str, *functions: str, **more: bool | int) -> capture_pb2.ThreadStack:
    frames = [capture_pb2.Frame(function=function, file="a.py", line=1) for function in functions]
    return capture_pb2.ThreadStack(name=name, frames=frames, **more)  # type: ignore[arg-type]  # fields by their names


def test_threads_that_read_alike_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    threads = [_thread("worker", "wait"), _thread("worker", "wait"), _thread("other", "wait")]
    print_stacks([capture_pb2.ProcessStacks(pid=7, threads=threads)])
    said = "3 threads:\npid 7 worker (waiting) x2\npid 7 other (waiting)\n    wait (a.py:1)\n\n"
    assert capsys.readouterr().out == said


def test_a_thread_outside_of_python_has_no_frames(capsys: pytest.CaptureFixture[str]) -> None:
    print_stacks([capture_pb2.ProcessStacks(pid=7, threads=[_thread("MainThread")])])
    assert capsys.readouterr().out == "pid 7 MainThread (waiting)\n    (no Python frames)\n\n"


def test_busy_threads_come_first_and_apart(capsys: pytest.CaptureFixture[str]) -> None:
    threads = [_thread("a", "f"), _thread("b", "f"), _thread("c", "f", active=True), _thread("d", "g", owns_gil=True)]
    print_stacks([capture_pb2.ProcessStacks(pid=7, threads=threads)])
    heads = [line for line in capsys.readouterr().out.splitlines() if line and not line.startswith(" ")]
    assert heads == [
        "pid 7 c (running)",
        "pid 7 d (running, holds the GIL)",
        "Waiting:",
        "2 threads:",
        "pid 7 a (waiting)",
        "pid 7 b (waiting)",
    ]


def test_a_thread_that_waits_for_the_gil_says_so_among_the_busy_ones(capsys: pytest.CaptureFixture[str]) -> None:
    threads = [_thread("a", "f", owns_gil=True), _thread("b", "f", active=True, waits_gil=True)]
    print_stacks([capture_pb2.ProcessStacks(pid=7, threads=threads)])
    said = "2 threads:\npid 7 a (running, holds the GIL)\npid 7 b (waiting for the GIL)\n    f (a.py:1)\n\n"
    assert capsys.readouterr().out == said


def test_ranks_whose_frames_differ_in_addresses_are_one_group(capsys: pytest.CaptureFixture[str]) -> None:
    def process(rank: int, address: str) -> capture_pb2.ProcessStacks:
        frame = capture_pb2.Frame(function=address, file="/lib/libc.so.6")
        thread = capture_pb2.ThreadStack(name="MainThread", frames=[frame])
        return capture_pb2.ProcessStacks(pid=70 + rank, rank=rank, threads=[thread])

    print_stacks([process(0, "0x7fd353ca3f16"), process(1, "0x7f81f0ca3f16")])
    assert capsys.readouterr().out == (
        "2 threads of 2 processes:\n"
        "rank 0 pid 70 MainThread (waiting)\n"
        "rank 1 pid 71 MainThread (waiting)\n"
        "    ?? (/lib/libc.so.6)\n\n"
    )


def test_a_stack_that_may_be_incomplete_says_so_and_is_no_other_ones(capsys: pytest.CaptureFixture[str]) -> None:
    threads = [_thread("a", "f", active=True, incomplete=True), _thread("b", "f", active=True)]
    print_stacks([capture_pb2.ProcessStacks(pid=7, threads=threads)])
    assert capsys.readouterr().out == (
        "pid 7 a (running)\n    f (a.py:1)\n    (stack may be incomplete)\n\npid 7 b (running)\n    f (a.py:1)\n\n"
    )


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("/opt/py/lib/python3.11/asyncio/events.py", "…/asyncio/events.py"),
        ("/home/ann/venv/lib/python3.12/site-packages/torch/_tensor.py", "…/torch/_tensor.py"),
        ("/usr/lib/python3/dist-packages/yaml/loader.py", "…/yaml/loader.py"),
        ("/home/ann/python3.11/train.py", "/home/ann/python3.11/train.py"),
        ("/home/ann/train.py", "/home/ann/train.py"),
    ],
)
def test_folders_of_installed_packages_are_left_out(file: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The frames of the program stay whole: they are what people look for."""
    frame = capture_pb2.Frame(function="f", file=file, line=7)
    print_stacks([capture_pb2.ProcessStacks(pid=7, threads=[capture_pb2.ThreadStack(frames=[frame])])])
    assert f"    f ({shown}:7)\n" in capsys.readouterr().out
