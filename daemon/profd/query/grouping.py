"""Groups of `top` besides the name: input shapes, modules, the innermost frames; and nodes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgspec
import numpy as np

from profd import _engine
from profd.decode.torch_frames import is_shown_frame
from profd.derive.ancestors import nearest
from profd.derive.autograd import Links, context_rows
from profd.derive.flops import parse_signature
from profd.derive.modules import module_paths
from profd.events import NO_CODE, NO_ROW, Dictionary, EventTable, Kind
from profd.events.table import Array
from profd.query import rules
from profd.query.view import nest

STACK_FRAMES_MAX: Final = 256  # a table grouped by more frames than this is a trace, not a table
_SEPARATOR: Final = ";"


@dataclass(frozen=True, slots=True)
class Labels:
    """A label per row: `texts[code[row]]`."""

    code: Array  # int64
    texts: list[str]


def by_node(table: EventTable, nodes: tuple[int | None, ...]) -> Labels:
    """The node of a distributed job that each row is of, by its thread track; "" where that says none."""
    texts = Dictionary([""])
    codes = texts.codes(["" if node is None else str(node) for node in nodes])
    of_thread = np.array([*codes, 0], dtype=np.int64)  # the last answers for rows without a thread
    return Labels(of_thread[table.column("thread")], texts.values)


def by_shapes(table: EventTable) -> Labels:
    """Input shapes as torch shows them, as JSON: a list of tensors counts as `[]`, no record as `[]`."""
    known = table.dictionaries.get("inputs")
    signatures = known.values if known is not None else []
    texts: dict[str, int] = {"[]": 0}
    place = np.zeros(len(signatures) + 1, dtype=np.int64)
    for code, signature in enumerate(signatures):
        place[code] = texts.setdefault(_shapes(signature), len(texts))
    return Labels(place[table.column("inputs")], list(texts))


def _shapes(signature: str) -> str:
    parsed = parse_signature(signature)
    dims: list[Any] = [] if parsed is None else parsed.dims
    plain = [[] if _is_list_of_tensors(entry) else entry for entry in dims]
    return msgspec.json.encode(plain).decode()


def _is_list_of_tensors(entry: object) -> bool:
    return isinstance(entry, list) and any(isinstance(inner, list) for inner in entry)


def by_module(table: EventTable, parent: Array, links: Links | None) -> Labels:
    """The path of the module around each row, of device rows that of their launch. `parent` as in `Calls`.

    With `links` what runs in a backward op has the path of the forward op.
    """
    code, texts = module_paths(table, parent)
    if links is not None:
        code = _as_forward(code, links.function | links.backward, links, parent)
    launch = table.column("linked")
    launched = np.flatnonzero((launch >= 0) & (launch < len(table)))
    code[launched] = code[launch[launched]]
    return Labels(code, texts)


def _as_forward(code: Array, tops: Array, links: Links, parent: Array) -> Array:
    """Labels (0: none) in which the backward ops `tops` and what is below them have those of the forward ops."""
    if not tops.any():
        return code
    rows, forward = context_rows(tops, links, parent)
    code = code.copy()
    code[rows] = np.where(forward == NO_ROW, 0, code[forward])
    return code


def by_stack(table: EventTable, frames: int, parent: Array, links: Links | None) -> Labels:
    """The innermost frames of each row, joined by `;`, innermost first.

    The recorded call stack where there is one, else the functions, traced or
    sampled, that enclose the row on its thread. With `links` what runs in a
    backward function has the stack of the forward op. `parent` as in `Calls`.
    """
    frames = min(frames, STACK_FRAMES_MAX)
    recorded = table.column("stack")
    enclosing = _enclosing(table, frames)
    texts: dict[str, int] = {"": 0}
    known = table.dictionaries.get("stack")
    stacks = known.values if known is not None else []
    cut = [_SEPARATOR.join(_innermost(stack, frames)) for stack in stacks]
    place = np.array([texts.setdefault(text, len(texts)) for text in [*cut, ""]], dtype=np.int64)
    code = place[recorded]
    bare = np.flatnonzero(recorded == NO_CODE)
    labels = [texts.setdefault(text, len(texts)) for text in enclosing.texts]
    code[bare] = np.array(labels, dtype=np.int64)[enclosing.code[bare]]
    if links is not None:
        # As in torch, the engine's own rows around backward functions keep their stacks.
        code = _as_forward(code, links.function, links, parent)
    return Labels(code, list(texts))


def _innermost(stack: str, frames: int) -> list[str]:
    shown = (frame for frame in stack.split(_SEPARATOR) if frame and is_shown_frame(frame))
    return list(islice(shown, frames))


def _enclosing(table: EventTable, frames: int) -> Labels:
    """Names of the innermost Python functions around each row, not counting the row itself."""
    hidden = frozenset(name for name in rules.names_of(table) if not is_shown_frame(name))
    functions = rules.is_kind(table.column("kind"), *rules.FUNCTIONS) & ~rules.is_named(table, hidden)
    if not functions.any():
        return Labels(np.zeros(len(table), dtype=np.int64), [""])
    at = _function_around(table, functions)
    name = np.ascontiguousarray(table.column("name"), dtype=np.int64)
    found: list[Array] = []
    current = at
    while len(found) < frames and (current != NO_ROW).any():
        found.append(np.where(current == NO_ROW, np.int64(NO_CODE), name[current]))
        current = np.where(current == NO_ROW, NO_ROW, at[current])
    if not found:
        return Labels(np.zeros(len(table), dtype=np.int64), [""])
    group, first = _engine.group_rows(found)
    names = rules.names_of(table)
    texts = [
        _SEPARATOR.join(names[code] for code in (int(column[row]) for column in found) if code != NO_CODE)
        for row in first
    ]
    return Labels(group, texts)


def _function_around(table: EventTable, functions: Array) -> Array:
    """Row of the innermost Python function that encloses each CPU row on its thread."""
    include = rules.is_cpu(table.column("device_type")) & rules.is_work(table.column("kind"))
    include &= ~rules.is_kind(table.column("kind"), Kind.OVERHEAD)
    parent, _ = nest(table, include)
    return nearest(parent, functions)
