"""What a page that watches the host costs a job that is being recorded: its steps with it and without, turn about.

A watcher does what `profctl ui` does for a tab of the page Now; the browser itself is not part of it: it may run
elsewhere. All blocks are within one capture.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from bench import pairing
from bench.live import Live, ask, profd, wait_until
from bench.measure import Row

ROUNDS = 40
BLOCK_SECONDS = 2.0
WATCHERS = 8
WATCHED = "watched"
STEPS_BAR = 1.01

LOOP = """
import sys, time
import profclient
profclient.attach()
def step():
    with profclient.record_function("step"):
        for _ in range(40):
            with profclient.record_function("part"):
                total = 0
                for number in range(500):
                    total += number * number
for line in sys.stdin:
    end, steps, begin = time.perf_counter() + float(line), 0, time.perf_counter()
    while time.perf_counter() < end:
        step()
        steps += 1
    print((time.perf_counter() - begin) * 1e9 / steps, flush=True)
"""

WATCH = """
import socket, sys
from pathlib import Path
from profclient.ui.asking import Library
from profclient.ui.now import Watches
ours, theirs = socket.socketpair()
for part in Watches(Library(None)).lines(ours):
    print("", flush=True)
"""


def rows(events: int) -> Iterator[Row]:
    """The row of this case."""
    del events
    taken: list[pairing.Round] = []
    with profd() as live:
        job = live.job(LOOP, enabled=False)
        wait_until("the job attaches", lambda: job.pid in live.attached())
        live.profctl("start", "--pid", str(job.pid), "--duration", "10m", "--detach")
        ask(job, str(BLOCK_SECONDS))
        for number in range(ROUNDS):
            ways = (pairing.WITHOUT, WATCHED) if number % 2 else (WATCHED, pairing.WITHOUT)
            taken.append({way: _block(live, job, WATCHERS if way == WATCHED else 0) for way in ways})

    what = (
        f"steps of a recorded job while {WATCHERS} tabs watch, while none does, {ROUNDS} pairs of {BLOCK_SECONDS:g} s"
    )
    yield pairing.steps_row("watched", what, taken, WATCHED, STEPS_BAR)


def _block(live: Live, job: subprocess.Popen[str], watchers: int) -> float:
    """Mean ns of a step."""
    tabs = [_watcher(live) for _ in range(watchers)]
    try:
        return ask(job, str(BLOCK_SECONDS))
    finally:
        for tab in tabs:
            tab.kill()
            tab.wait()
            assert tab.stdout is not None
            tab.stdout.close()


def _watcher(live: Live) -> subprocess.Popen[str]:
    """One that has been told of everything there is."""
    words = [sys.executable, "-c", WATCH]
    tab = subprocess.Popen(words, env=live.environment, stdout=subprocess.PIPE, text=True)
    assert tab.stdout is not None
    if not tab.stdout.readline():
        raise RuntimeError("a watcher was told nothing")
    return tab
