"""A flame graph of two traces: as wide as in the second, in the color of the difference.

The same rules as the page's (profclient/ui/static/flame_both.js).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from profclient.cli.flame.layout import DEVICE, Box, callers, laid_out, whole
from profclient.cli.output import printable
from profclient.cli.units import duration

SHADES: Final = (1 / 32, 1 / 8, 1 / 2)
"""Shares of the largest difference from which on a box has the first, the second and the third shade."""
SCALE_LEAST: Final = 0.01
"""Of the whole: where nothing differs by more, small differences stay pale."""


def boxes(nodes: Sequence[dict[str, Any]], by: str) -> list[Box]:
    """The boxes of nodes of `merged_diff`; a path that takes no time in the second trace has none."""
    (_, second) = times(by)
    return laid_out(nodes, [node[second] for node in nodes], callers([node["depth"] for node in nodes]))


def times(by: str) -> tuple[str, str]:
    """The keys of a node for its time in the first trace and in the second."""
    return ("a_device_ns", "b_device_ns") if by == DEVICE else ("a_ns", "b_ns")


def scale(nodes: Sequence[dict[str, Any]], found: Sequence[Box], by: str) -> float:
    """The difference that is drawn in full, in ns."""
    first, second = times(by)
    largest: float = max((abs(node[second] - node[first]) for node in nodes), default=0)
    return max(whole(found) * SCALE_LEAST, largest)


def shade(difference: int, full: float) -> str:
    """The class of a box: `more-3` to `more-1`, `alike`, `less-1` to `less-3`."""
    strength = sum(abs(difference) >= share * full for share in SHADES) if difference else 0
    return "alike" if not strength else f"{'more' if difference > 0 else 'less'}-{strength}"


class Differences:
    """What the boxes of one graph look like and say."""

    def __init__(self, nodes: Sequence[dict[str, Any]], by: str, per: str) -> None:
        """`per`: of the answer."""
        self.boxes = boxes(nodes, by)
        self._full = scale(nodes, self.boxes, by)
        self._first, self._second = times(by)
        self._per = " per step" if per == "step" else ""

    def look(self, box: Box) -> str:
        """Its class."""
        return shade(box.node[self._second] - box.node[self._first], self._full)

    def words(self, box: Box, total: int) -> str:
        """Its title: what it takes in both."""
        node = box.node
        before, after = duration(node[self._first]), duration(node[self._second])
        calls = f"calls {node['a_count']:,} and {node['b_count']:,}"
        told = f"A {before}, B {after}{self._per}: {self.change(box, total)}; {calls} [{node['kind']}]"
        return f"{printable(node['name'])}\n{told}"

    def change(self, box: Box, total: int) -> str:
        """In words, with a sign."""
        before, after = box.node[self._first], box.node[self._second]
        if not before:
            return "new"
        return f"{after / before - 1:+.0%}"
