"""Merged spans in the slow, obvious way, the twin of `profd._engine.merge_spans`.

Of a line with levels (scopes within scopes) at most one event is open per level, those of deeper
levels lie within it. Times in ps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from profd.derive.timeline.lines import DerivedEvent

_NS: Final = 1000
_GAP: Final = 2  # durations of an event that may lie between it and what continues it


@dataclass(slots=True)
class _Open:
    event: DerivedEvent
    key: str
    scope: int | None


class LineBuilder:
    """Builds a line from spans that come in the order of their start.

    `close_gaps`: a span continues the open event however long after it comes. Lines in
    `dependents` begin anew when an event of the outermost level ends.
    """

    def __init__(self, dependents: Sequence[LineBuilder] = (), *, close_gaps: bool = True) -> None:
        self.events: list[DerivedEvent] = []
        self._dependents = dependents
        self._close_gaps = close_gaps
        self._open: list[_Open] = []

    def put(
        self,
        levels: Sequence[tuple[str, str]],
        span: tuple[int, int],
        group: int | None,
        scopes: Sequence[int] | None = None,
    ) -> None:
        """Add a span to each level, outermost first: (key, name shown); deeper levels end.

        Open events go on where key, group and scope agree; no scope agrees with any. Without levels nothing happens.
        """
        if not levels:
            return
        start, end = span
        stack = self._open
        for level, (key, shown) in enumerate(levels):
            scope = scopes[level] if scopes is not None else None
            if level < len(stack) and self._continues(stack[level], key, start, group, scope):
                event = stack[level].event
                if event.end < end:
                    event.end = end
                continue
            if level == 0 or level < len(stack):
                self.close(level)
            event = DerivedEvent(shown, start, end, group, key if key != shown else "")
            self.events.append(event)
            stack.append(_Open(event, key, scope))
        if len(levels) < len(stack):
            self.close(len(levels))

    @property
    def innermost(self) -> DerivedEvent:
        """The event that the last `put` began or went on with. IndexError if none is open."""
        return self._open[-1].event

    def close(self, level: int = 0) -> None:
        """End the open events from a level on. What depends on this line ends with the outermost level."""
        if len(self._open) - level > 1:
            self._shrink([entry.event for entry in self._open[level:]])
        del self._open[level:]
        if level == 0:
            for line in self._dependents:
                line.close()

    def _continues(self, entry: _Open, key: str, start: int, group: int | None, scope: int | None) -> bool:
        event = entry.event
        if entry.key != key or event.group != group:
            return False
        if scope is not None and entry.scope is not None and scope != entry.scope:
            return False
        return self._close_gaps or group is not None or start <= event.end + _GAP * (event.end - event.start)

    @staticmethod
    def _shrink(events: list[DerivedEvent]) -> None:
        """Spans that are equal get shorter by 1 ns per level, lest a viewer stacks them in any order."""
        most = (events[-1].end - events[-1].start) // _NS - 1  # the innermost keeps 1 ns
        by, outer = 0, None
        for event in events:
            here = (event.start, event.end)
            if by < most and here == outer:
                by += 1
            outer = here
            event.end -= by * _NS
