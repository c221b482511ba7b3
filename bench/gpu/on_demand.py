"""What a capture costs a step: a job under a daemon, captured now and then, and let alone in between."""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

from profproto.v1 import capture_pb2 as pb

from bench.gpu import device
from bench.gpu.end_to_end import job
from tests.support.attached import WAIT_SECONDS, Captures
from tests.support.daemon import running_daemon

WAYS = ("kineto", "sdk")
CAPTURES = device.of(4, rehearsed=2)
WINDOW_NS = device.of(1_000_000_000, rehearsed=500_000_000)
_SLACK_NS = WINDOW_NS // 10  # the daemon says that it records when it has seen it


class NotRecorded(Exception):
    """A capture failed, or no step fell into a window; str() says which."""


def steps(loop: str, way: str) -> dict[str, Any]:
    """Median step seconds of each window, in the order of time: `off`, `way`, `off` … Raises NotRecorded."""
    order, windows, states = ["off"], [], []
    with running_daemon() as daemon, job(daemon, way, loop, "timed") as process:
        windows.append(_let_alone())
        for _ in range(CAPTURES):
            window, state = _captured(Captures(daemon), process.pid, way)
            windows += [window, _let_alone()]
            states.append(state)
            order += [way, "off"]
        said, _ = process.communicate(input="", timeout=WAIT_SECONDS)
    taken = json.loads(said.splitlines()[-1])
    return {"order": order, "times": [_median_seconds(taken, window) for window in windows], "states": states}


def _let_alone() -> tuple[int, int]:
    begin = time.time_ns()
    time.sleep(WINDOW_NS / 1e9)
    return begin, begin + WINDOW_NS


def _captured(captures: Captures, pid: int, way: str) -> tuple[tuple[int, int], str]:
    """From when it recorded to when that ended, less what is not known better. Returns when its trace is stored."""
    capture = captures.start(pid, source=way, force=way == "kineto", duration_ns=WINDOW_NS).id
    captures.until(capture, lambda state: all(target.state >= pb.STATE_RECORDING for target in state.targets))
    begin = time.time_ns()
    [target] = captures.ended(capture).targets
    state = f"{pb.State.Name(target.state)} {target.message}".strip()
    if not target.trace:
        raise NotRecorded(f"{way} on demand: {state}")
    return (begin, begin + WINDOW_NS - _SLACK_NS), state


def _median_seconds(taken: list[tuple[int, int]], window: tuple[int, int]) -> float:
    inside = [length for begin, length in taken if window[0] <= begin < window[1]]
    if not inside:
        raise NotRecorded(f"no step began within a window of {WINDOW_NS / 1e9:.1f} s")
    return statistics.median(inside) / 1e9
