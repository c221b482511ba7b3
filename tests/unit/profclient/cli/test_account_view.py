"""The account of a window, for people."""

from __future__ import annotations

from typing import Any

import pytest
from profclient.cli.account_view import account_lines

WAITS = "on a CPU 40 %, waiting for one 0 %, off the CPU 60 %"


def account(off: int, **waits: int | None) -> dict[str, Any]:
    """Of one thread, over 1,000 ns."""
    recorded = dict.fromkeys(("operators_ns", "calls_ns", "sampled_ns", "ranges_ns", "nothing_ns"), 200)
    kernel = {"cpu_ns": 1000 - off, "run_queue_ns": 0, "off_cpu_ns": off}
    thread = {"id": 7, "name": "MainThread", **recorded, **kernel, **waits}
    nothing = {"message": None, "hint": None, "idle_threads": None}
    return {"window_ns": 1000, "leading": 0, "threads": [thread], **nothing}


@pytest.mark.parametrize(
    ("waits", "said"),
    [
        ({"gil_ns": 500, "lock_ns": 0}, " (estimated: for the GIL 50 %, for other locks 0 %)"),
        ({"gil_ns": None, "lock_ns": 100}, " (estimated: for the GIL not recorded, for other locks 10 %)"),
        ({}, ""),  # of an earlier daemon
    ],
    ids=["both", "no-gil", "earlier"],
)
def test_what_the_leading_thread_waited_for(waits: dict[str, int | None], said: str) -> None:
    assert account_lines(account(600, **waits))[1] == ("", WAITS + said)


def test_a_thread_that_hardly_waits() -> None:
    assert account_lines(account(40, gil_ns=40, lock_ns=0))[1][1].endswith("off the CPU 4 %")


def test_a_name_that_a_program_chose_takes_no_more_than_a_part_of_a_line() -> None:
    long = account(0)
    long["threads"][0]["name"] = "x" * 5000
    assert account_lines(long)[0][1].startswith(f"1.00 us of {'x' * 39}…: ")
