"""A flame graph as one SVG file: nothing is fetched for it, and no name of a trace is ever markup in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from xml.sax.saxutils import escape, quoteattr

from profclient.cli.flame.layout import Box, whole
from profclient.cli.flame.names import shortened
from profclient.cli.output import counted, printable
from profclient.cli.units import duration

SHARE_LEAST = 1 / 20_000  # of the graph: twenty zooms of a narrow screen show no narrower box
_ROW = 18  # pixels
_HEAD = 48
_COLUMNS = 165  # for a reader without scripts: 1,200 pixels of text
_FUNCTIONS = frozenset(("python_function", "sample"))
_OPERATORS = frozenset(("cpu_op", "module", "module_scope"))
_RANGES = frozenset(("user_annotation", "range"))


@dataclass(frozen=True, slots=True)
class Appearance:
    """What boxes look like and say. Of `words` and `told`: given the width of all."""

    kind: Callable[[Box], str]
    """The class of a box in flame.css."""
    words: Callable[[Box, int], str]
    """Its title."""
    told: Callable[[Box, int], str] | None = None
    """Behind its name in a terminal; None: its share."""
    amount: Callable[[int], str] = duration
    """The width of all, in its unit."""
    little: str = "time"
    """What boxes that are too narrow have too little of."""


def drawing(found: Sequence[Box], title: str, what: str, look: Appearance | None = None) -> Iterator[str]:
    """The file, piece by piece. `what`: what the width of a box means, in a few words. `look`: absent: CALLS."""
    look = look or CALLS
    total = whole(found)
    shown = [box for box in found if box.width >= total * SHARE_LEAST]
    height = _HEAD + _ROW * (2 + max((box.depth for box in shown), default=0)) + 8
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="{height}" role="img" '
        f"aria-label={quoteattr(printable(title))}>\n"
        f"<style>{_asset('flame.css')}</style>\n"
        f'<text x="8" y="18">{escape(printable(title))}</text>\n'
        f'<text x="8" y="36">{escape(what)}</text>\n'
        '<text id="reset" class="button" x="60%" y="18" role="button">whole graph (Esc)</text>\n'
        '<text id="search" class="button" x="78%" y="18" role="button">search (/)</text>\n'
        '<text id="told" x="78%" y="36"></text>\n'
    )
    yield _group("all", f"all\n{look.amount(total)}", 0, total, -1, total)
    for box in shown:
        yield _group(look.kind(box), look.words(box, total), box.left, box.width, box.depth, total)
    yield f"<script><![CDATA[\n{_asset('flame.js')}]]></script>\n</svg>\n"


def left_out(found: Sequence[Box]) -> int:
    """The number of boxes that are too narrow to draw."""
    total = whole(found)
    return sum(box.width < total * SHARE_LEAST for box in found)


def _words(box: Box, total: int) -> str:
    node = box.node
    calls = counted(node["count"], "call")
    own = f"itself {duration(node['self_ns'])}"
    return (
        f"{printable(node['name'])}\n{duration(box.width)} ({box.width / total:.2%}), {own}, {calls} [{node['kind']}]"
    )


def _group(kind: str, words: str, left: int, width: int, depth: int, total: int) -> str:
    top = _HEAD + _ROW * (depth + 1)
    begin, share = 100 * left / total, 100 * width / total
    text = shortened(words.partition("\n")[0], int(_COLUMNS * share / 100) - 1)
    return (
        f'<g class="box {kind}" tabindex="0" data-left="{left}" data-width="{width}" data-depth="{depth}">'
        f"<title>{escape(words)}</title>"
        f'<rect x="{begin:.4f}%" y="{top}" width="{share:.4f}%" height="{_ROW - 1}"/>'
        f'<text x="{begin:.4f}%" dx="3" y="{top + 13}">{escape(text)}</text></g>\n'
    )


def kind_of(box: Box) -> str:
    """The class of a box by the kind of its call."""
    if box.node["device_type"] != "CPU":
        return "device"
    kind = box.node["kind"]
    for name, kinds in (("function", _FUNCTIONS), ("operator", _OPERATORS), ("range", _RANGES)):
        if kind in kinds:
            return name
    return "other"


def _asset(name: str) -> str:
    return files("profclient.cli.flame").joinpath(name).read_text(encoding="utf-8")


CALLS = Appearance(kind_of, _words)
"""Of a call tree."""
