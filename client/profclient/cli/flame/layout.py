"""The layout of a flame graph: each path below its caller, as wide as its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

TIME, DEVICE = "time", "device"  # what makes a box wide
WEIGHTS = (TIME, DEVICE)
NOBODY = -1  # above roots


@dataclass(frozen=True, slots=True)
class Box:
    """A path. `left` and `width` in ns of the whole graph; `node` as docs/json.md has it under `tree --merged`."""

    depth: int
    left: int
    width: int
    node: dict[str, Any]


def boxes(nodes: Sequence[dict[str, Any]], by: str = TIME) -> list[Box]:
    """The boxes of nodes that come each before those below it; a path without time has none.

    A box is as wide as its own time and the boxes below it, so that no box is wider than the one it stands on. By
    `device` that time is of kernels, copies and fills, where it was launched; by `time` it is of the threads.
    """
    above = callers([node["depth"] for node in nodes])
    own = _device_times(nodes, above) if by == DEVICE else [_thread_time(node) for node in nodes]
    return laid_out(nodes, _with_callees(own, above), above)


def laid_out(nodes: Sequence[dict[str, Any]], widths: Sequence[int], above: Sequence[int]) -> list[Box]:
    """The boxes of such nodes as wide as is said; a path without width has none. `above`: of `callers`."""
    free = {NOBODY: 0}  # caller -> where its next callee begins
    found = []
    for number, (caller, width) in enumerate(zip(above, widths, strict=True)):
        left = free[number] = free[caller]
        free[caller] += width
        if width > 0:
            found.append(Box(nodes[number]["depth"], left, width, nodes[number]))
    return found


def whole(found: Sequence[Box]) -> int:
    """Ns from the left edge of a graph to its right one."""
    return sum(box.width for box in found if box.depth == 0)


def callers(depths: Sequence[int]) -> list[int]:
    """The place of the caller of each node, or NOBODY, of nodes that come each before those below it."""
    above: list[int] = []
    way: list[int] = []  # from the root down to a node
    for number, depth in enumerate(depths):
        del way[depth:]
        above.append(way[-1] if way else NOBODY)
        way.append(number)
    return above


def _thread_time(node: dict[str, Any]) -> int:
    """Work on a device runs beside its launch: it takes none of the thread's time."""
    return max(node["self_ns"], 0) if node["device_type"] == "CPU" else 0


def _device_times(nodes: Sequence[dict[str, Any]], above: Sequence[int]) -> list[int]:
    own = [node["device_total_ns"] for node in nodes]
    for node, caller in zip(nodes, above, strict=True):
        if caller != NOBODY:
            own[caller] -= node["device_total_ns"]
    return [max(time, 0) for time in own]


def _with_callees(own: Sequence[int], above: Sequence[int]) -> list[int]:
    widths = list(own)
    for number in range(len(own) - 1, -1, -1):
        if above[number] != NOBODY:
            widths[above[number]] += widths[number]
    return widths
