"""The README's first command on programs that name nothing themselves: the answer says where their time went."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from profd.sources.pyspy import tool

from tests.integration.cli.conftest import Host, sources_of
from tests.support import python_jobs
from tests.support.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("cli"),
    pytest.mark.skipif(tool.find() is None, reason="py-spy is not installed"),
    python_jobs.needs_ptrace,
]

# Nothing but C functions after it has begun: no call of a Python function happens in a window.
C_LOOP = """
def crunch():
    print("ready", flush=True)
    pow = __builtins__.pow
    while True:
        pow(3, 200_000, 1_000_003 ** 40)

crunch()
"""

SLEEPER = """
import time

def doze():
    print("ready", flush=True)
    while True:
        time.sleep(0.5)  # more than any wait for a core

doze()
"""


@contextlib.contextmanager
def run(host: Host, program: str) -> Iterator[int]:
    """A program under `profctl run` that has attached; its pid."""
    job = host.begin("run", "--", sys.executable, "-c", program)
    assert job.stdout is not None
    try:
        assert job.stdout.readline() == "ready\n"
        until(lambda: "sdk" in sources_of(host, job.pid), "the program is attached")
        yield job.pid
    finally:
        job.kill()
        job.communicate()


def captured(host: Host, pid: int, *options: str) -> dict[str, Any]:
    """The one target of the README's first command, which is stored: a sampler begins late on a busy host."""
    done = host.profctl("start", "--pid", str(pid), "--duration", "6s", *options, "--json")
    (target,) = done.json["targets"]
    assert (done.code, target["state"], target["sources"]) == (0, "stored", ["sdk"]), target
    assert target["not_honoured"] == []
    found: dict[str, Any] = target
    return found


@pytest.mark.parametrize(
    ("program", "function", "options"),
    [
        (python_jobs.SPIN, "inner", ()),
        (python_jobs.SPIN, "inner", ("--strict",)),
        (C_LOOP, "crunch", ()),
        (C_LOOP, "crunch", ("--stacks",)),
        (SLEEPER, "doze", ()),
    ],
    ids=["python", "strictly", "c", "c-stacks", "asleep"],
)
def test_a_plain_program_under_run_has_an_answer(
    host: Host, program: str, function: str, options: tuple[str, ...]
) -> None:
    with run(host, program) as pid:
        target = captured(host, pid, *options)
    names = {row["name"] for row in host.profctl("top", target["trace"], "--raw", "--json").json}
    assert any(name.endswith(f": {function}") for name in names), names


def accounting(host: Host, target: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = host.profctl("show", target["trace"], "--json").json["accounting"]
    return found


def leading(found: dict[str, Any]) -> dict[str, Any]:
    thread: dict[str, Any] = found["threads"][found["leading"]]
    return thread


def test_a_program_that_sleeps_was_off_the_cpu(host: Host) -> None:
    with run(host, SLEEPER) as pid:
        target = captured(host, pid)
    found = accounting(host, target)
    thread = leading(found)
    assert thread["off_cpu_ns"] > found["window_ns"] / 2
    by_record = ("operators_ns", "calls_ns", "sampled_ns", "ranges_ns", "nothing_ns")
    assert sum(thread[part] for part in by_record) == found["window_ns"]
    assert sum(thread[part] for part in ("cpu_ns", "run_queue_ns", "off_cpu_ns")) == found["window_ns"]


def test_a_window_too_short_for_samples_says_so(host: Host) -> None:
    with run(host, python_jobs.SPIN) as pid:
        for _ in range(10):  # on a busy host the end of a window comes late, and a sample may have fallen into it
            done = host.profctl("start", "--pid", str(pid), "--duration", "1ms", "--json")
            if done.code:
                break
    (target,) = done.json["targets"]
    assert (done.code, target["state"]) == (1, "failed")
    assert "no samples either: the window was too short for them" in target["message"]
    assert "torch" not in target["message"], "it has none"


def test_a_program_that_ends_in_its_window_keeps_what_was_seen(host: Host) -> None:
    with run(host, python_jobs.SPIN) as pid:
        start = host.begin("start", "--pid", str(pid), "--duration", "10m", "--json")
        until(lambda: held(host, pid) == "recording", "its window is open")
    out, _ = start.communicate()
    (target,) = json.loads(out)["targets"]
    assert target["state"] in ("partial", "failed")  # failed: it ended before the sampler began
    assert target["reason"] == "target_ended"
    assert target["not_honoured"] == []


def held(host: Host, pid: int) -> str | None:
    """The state in which a capture has this process."""
    captures = host.profctl("captures", "--json").json
    return next((each["state"] for capture in captures for each in capture["targets"] if each["pid"] == pid), None)
