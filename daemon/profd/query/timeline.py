"""Derived lines of a stored XSpace as JSON lines: `profctl timeline` (docs/json.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from typing import Any, Final

import msgspec
import numpy as np

from profd.derive.timeline.classic import derive_classic
from profd.derive.timeline.current import derive
from profd.derive.timeline.groups import Groups
from profd.derive.timeline.lines import NAMES, DerivedLine, What
from profd.events import NO_END
from profd.query.space import derived_lines, is_xspace, read_space
from profd.query.torch_space import torch_space
from profd.segments.reader import TraceReader

CURRENT: Final = "current"
CLASSIC: Final = "classic"
_EVENTS_AT_ONCE: Final = 1 << 14
_ENCODER: Final = msgspec.json.Encoder()
_COLUMNS: Final = ("name", "start", "end", "start_ps", "end_ps", "thread")
_OLDER_NAMES: Final = {"TensorFlow Name Scope": What.SCOPES, "TensorFlow Ops": What.OPS}
_WHAT: Final = {**{name: what for what, name in NAMES.items()}, **_OLDER_NAMES}


class Event(msgspec.Struct, gc=False):
    """One event of `profctl timeline --json`; absent is null."""

    plane: str
    line: str
    what: str
    origin: str  # derived, recorded
    stream: int | None
    start_ns: int  # Unix
    start_ps: int  # after start_ns, below 1000
    duration_ps: int
    name: str
    long_name: str | None
    group: int | None
    step: str | None
    args: dict[str, Any]


def timeline_lines(
    reader: TraceReader, lines: Collection[str] = (), rules: str = CURRENT
) -> Iterator[tuple[int, bytes]]:
    """(number of events, their JSON lines) piece by piece; all kinds of lines if `lines` is empty.

    Nothing for a trace that is no XSpace and has no device work. `rules` is CURRENT or CLASSIC.
    """
    kinds = {what for what in What if not lines or what.value in lines}
    space = read_space(reader) if is_xspace(reader) else torch_space(reader)
    if space is None:
        return
    if rules == CLASSIC:
        derived, groups = derive_classic(space, step_info_only=not kinds - {What.STEPS, What.LAUNCHES})
    else:
        derived, groups = derive(space)
    zero = reader.meta.start_ns or 0
    shown = sorted((line for line in derived if line.what in kinds), key=_place)
    yield from _pieces(event for line in shown for event in _events(line, groups, zero))
    if is_xspace(reader):
        yield from _pieces(_recorded(reader, kinds))


def _place(line: DerivedLine) -> tuple[str, bool, int]:
    """Lines of a whole plane come before those of its streams."""
    return line.plane, line.stream is not None, line.row


def _pieces(events: Iterator[Event]) -> Iterator[tuple[int, bytes]]:
    some: list[Event] = []
    for event in events:
        some.append(event)
        if len(some) == _EVENTS_AT_ONCE:
            yield len(some), _ENCODER.encode_lines(some)
            some = []
    if some:
        yield len(some), _ENCODER.encode_lines(some)


def _events(line: DerivedLine, groups: Groups, zero: int) -> Iterator[Event]:
    plane, name, what, stream = line.plane, line.name, line.what.value, line.stream
    step = cache(groups.name)
    for start, end, group, (shown, long_name), args in line.events.rows():
        start_ns, start_ps = divmod(start, 1000)
        yield Event(
            plane,
            name,
            what,
            "derived",
            stream,
            zero + start_ns,
            start_ps,
            end - start,
            shown,
            long_name or None,
            group,
            None if group is None else step(group),
            args,
        )


def _recorded(reader: TraceReader, kinds: Collection[What]) -> Iterator[Event]:
    """Lines that were derived before the trace came here."""
    whats = {}
    for number, (plane, name) in derived_lines(reader).items():
        what = _WHAT.get(name.partition(" - from #")[0])
        if what is not None and what in kinds:
            whats[number] = (plane, name, what)
    if not whats:
        return
    for table in reader.iterate(_COLUMNS, args=False):
        thread, names = table.column("thread"), table.dictionaries["name"].values
        rows = np.flatnonzero(np.isin(thread, list(whats)))
        end = table.column("end")
        end = np.where(end == NO_END, table.columns["start"], end)
        columns = [thread, table.column("name"), table.columns["start"], table.column("start_ps"), end]
        columns.append(table.column("end_ps"))
        for number, code, start, start_ps, until, until_ps in zip(
            *(column[rows].tolist() for column in columns), strict=True
        ):
            plane, line, what = whats[number]
            yield Event(
                plane=plane,
                line=line,
                what=what.value,
                origin="recorded",
                stream=None,
                start_ns=start,
                start_ps=start_ps,
                duration_ps=(until - start) * 1000 + until_ps - start_ps,
                name=names[code] if code >= 0 else "",
                long_name=None,
                group=None,
                step=None,
                args={},
            )
