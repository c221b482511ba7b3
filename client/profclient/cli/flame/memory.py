"""A flame graph of memory at its peak: boxes as wide as the bytes that were allocated in them or below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from profclient.cli.flame import svg
from profclient.cli.flame.layout import Box, callers, laid_out
from profclient.cli.output import counted, printable
from profclient.cli.units import duration, size


def boxes(nodes: Sequence[dict[str, Any]]) -> list[Box]:
    """The boxes of nodes of `memory_peak`."""
    return laid_out(nodes, [node["bytes"] for node in nodes], callers([node["depth"] for node in nodes]))


def title(answer: dict[str, Any]) -> str:
    """How much there was, where and when."""
    blocks = counted(answer["blocks"], "block")
    when = f"{duration(answer['after_ns'])} after the first event"
    return f"{size(answer['peak_bytes'])} in {blocks} on {answer['name']}, {when}"


def meaning(answer: dict[str, Any]) -> str:
    """What the width of a box means, and what is in none."""
    used = answer["in_use_bytes"]
    counts = f" The allocator counted {size(used)} then." if used is not None else ""
    box = "A box is as wide as what was allocated in it since the begin of the window and alive then"
    return f"{box}; what is older is in none.{counts}"


def words(box: Box, total: int) -> str:
    """The title of a box: how much it has."""
    node = box.node
    own = f"itself {size(node['self_bytes'])}"
    share = f"{box.width / max(total, 1):.2%}"
    blocks = counted(node["blocks"], "block")
    return f"{printable(node['name'])}\n{size(box.width)} ({share}), {own}, {blocks} [{node['kind']}]"


def _told(box: Box, _: int) -> str:
    return size(box.width)


LOOK: Final = svg.Appearance(svg.kind_of, words, _told, size, "memory")
