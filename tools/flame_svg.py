"""Folded stacks in, a flame graph as a still SVG out: how the picture in README.md was made.

profctl export -f folded | tools/flame_svg.py "where the time of a training loop goes" > docs/images/flame.svg
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html import escape
from typing import Final

WIDTH: Final = 960
ROW: Final = 19
TOP: Final = 34
DEEPEST: Final = 22
NARROWEST: Final = 0.7
"""Pixels: what is narrower is left out."""
CHAR: Final = 6.7
CALL: Final = re.compile(r"(?:.*/)?([^/]+)\((\d+)\): (.+)")
COLOURS: Final = {
    "python": "#f2b880",
    "operator": "#e07a5f",
    "module": "#81b29a",
    "range": "#e9c46a",
    "thread": "#d8d8d8",
}


@dataclass
class Frame:
    """A frame of the merged stacks, with everything below it."""

    total: int = 0
    """In the unit of the input."""
    below: dict[str, Frame] = field(default_factory=dict)


def merged(lines: Iterable[str]) -> Frame:
    """The tree of `a;b;c 42` lines."""
    root = Frame()
    for line in lines:
        stack, _, count = line.rstrip("\n").rpartition(" ")
        frame = root
        frame.total += int(count)
        for name in stack.split(";"):
            frame = frame.below.setdefault(name, Frame())
            frame.total += int(count)
    return root


def boxes(frame: Frame, x: float, depth: int, scale: float) -> Iterator[tuple[float, int, float, str, int]]:
    """Every box below a frame that is wide enough to be seen: left edge, depth, width, name, total."""
    for name, child in sorted(frame.below.items()):
        width = child.total * scale
        if width >= NARROWEST and depth < DEEPEST:
            yield x, depth, width, name, child.total
            yield from boxes(child, x, depth + 1, scale)
        x += width


def colour(name: str, depth: int) -> str:
    """By what a frame is: a thread, a module's call, a range, a Python function or an operator."""
    if depth == 0:
        return COLOURS["thread"]
    if name.startswith("nn.Module"):
        return COLOURS["module"]
    if "#" in name or name.startswith("ProfilerStep"):
        return COLOURS["range"]
    return COLOURS["python" if ".py" in name or "<" in name else "operator"]


def label(name: str, width: float) -> str:
    """As much of a name as fits, a Python function before its file; nothing where that says nothing."""
    short = CALL.sub(r"\3 (\1:\2)", name)
    room = int((width - 6) / CHAR)
    if room < 4:
        return ""
    return short if len(short) <= room else short[: room - 1] + "…"


def picture(title: str, root: Frame) -> str:
    """The SVG. Nothing in it is fetched from anywhere."""
    found = list(boxes(root, 0.0, 0, WIDTH / root.total))
    height = TOP + ROW * (1 + max(depth for _, depth, *_ in found)) + 6
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="ui-monospace,Menlo,Consolas,monospace" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fffdf8"/>',
        f'<text x="8" y="21" font-size="13" fill="#333">{escape(title)}</text>',
    ]
    for x, depth, width, name, total in found:
        y = TOP + depth * ROW
        said = label(name, width)
        text = f'<text x="{x + 4:.1f}" y="{y + 13}">{escape(said)}</text>' if said else ""
        parts.append(
            f"<g><title>{escape(name)}: {100 * total / root.total:.1f} %</title>"
            f'<rect x="{x:.1f}" y="{y}" width="{max(width - 0.6, 0.4):.1f}" height="{ROW - 1}" rx="2" '
            f'fill="{colour(name, depth)}"/>{text}</g>'
        )
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    sys.stdout.write(picture(sys.argv[1], merged(sys.stdin)))
