"""Several traces in one file: whose processes are whose, which part of each there is, where it lies on one axis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from secrets import token_bytes
from typing import Any, Final

from profd.answers.ranks.axis import Placed, axis_of
from profd.errors import BadInput
from profd.events import Tracks
from profd.export.perfetto_tracks import system_id
from profd.export.redact import RedactedReader
from profd.query.captured import Captured, LeftOut, Member, named_in_errors, where_there_is
from profd.query.part import part_of_member
from profd.segments.reader import TraceReader, Window
from profd.workers.jobs import Progress

ABOUT: Final = "profd"
"""The key of what a file of several traces says of itself (docs/json.md)."""
_FIRST_OWN_PID: Final = (1 << 22) + 1
"""Of processes whose number another trace has already: Linux gives none so high."""
_NOT_AS_LISTED: Final = "it is not what it was listed as"
_TITLE_CHARS: Final = 100  # of a host's name


@dataclass(frozen=True, slots=True)
class Part:
    """A trace in the file. Times of `window` are by its own clock, in Unix ns; None: all of it."""

    placed: Placed
    title: str  # whose processes they are, for people; every trace of the file has another one
    window: Window | None

    @property
    def member(self) -> Member:
        """The trace."""
        return self.placed.member


Write = Callable[[int, Part, TraceReader, Progress], int]
"""(its place among them, the trace, its reader, what hears how far it is) -> events that were written."""


@dataclass(slots=True)
class Merged:
    """What a file of several traces is to hold. `about` is what it says of itself, by `docs/json.md`."""

    parts: list[Part]
    about: dict[str, Any]
    min_duration_ns: int = 0
    redact: Collection[str] = ()
    _key: bytes = field(default_factory=lambda: token_bytes(16))  # one for all: what is alike stays alike

    @property
    def start_ns(self) -> int:
        """Of the first event of all, on the axis."""
        return min((start for one in self.parts if (start := one.placed.start_ns) is not None), default=0)

    @property
    def first_ns(self) -> int:
        """The same, or what a clock of theirs says of a first event, where that is earlier."""
        return min([self.start_ns, *(one.member.start_ns for one in self.parts if one.member.start_ns is not None)])

    def write_each(self, write: Write, progress: Progress) -> int:
        """Have each trace written, one after the other; how many events they have. Errors name the trace."""
        total = max(1, sum(one.member.events for one in self.parts))
        events = before = 0
        for number, part in enumerate(self.parts):
            heard = _from(before / total, part.member.events / total, progress)
            with named_in_errors(part.member):
                events += write(number, part, self._reader(part.member), heard)
            before += part.member.events
        return events

    def _reader(self, member: Member) -> TraceReader:
        reader = member.open()
        return RedactedReader(reader.directory, self.redact, self._key) if self.redact else reader


def _from(first: float, share: float, progress: Progress) -> Progress:
    return lambda what, done: progress(what, min(1.0, first + share * done))


def merged(capture: Captured, min_duration_ns: int, redact: Collection[str], **part: Any) -> Merged:
    """All traces of a capture, or the part of each that `from_ns` and the like name (`query/part.py`).

    A window is counted from the first event of all on the axis; steps are those of each trace, and a trace that has
    none of them is left out. BadInput where none has, and for a part that is empty.
    """
    axis = axis_of(capture)
    edges = _edges(axis.placed)
    shown = _Shown(capture, hosts=not redact)
    parts, left_out = [], []
    for placed in axis.placed:
        window = _window(placed, edges, part)
        if isinstance(window, LeftOut):
            left_out.append(window)
        else:
            parts.append(Part(placed, shown.title(placed.member), window))
    if not parts:
        raise BadInput(left_out[0].why if left_out else "the capture has no traces")
    about = _about(capture, shown, parts, left_out, axis.message)
    # Remarks name groups as the program does.
    return Merged(parts, about | {"remarks": [] if redact else axis.remarks}, min_duration_ns, redact)


def _edges(placed: list[Placed]) -> Window:
    """Of all of them, on the axis."""
    starts = [start for one in placed if (start := one.start_ns) is not None]
    ends = [end for one in placed if (end := one.end_ns) is not None]
    return min(starts, default=0), max(ends, default=0)


def _window(placed: Placed, edges: Window, part: dict[str, Any]) -> Window | LeftOut | None:
    if all(value is None for value in part.values()):
        return None
    own = edges[0] + placed.ahead_ns, edges[1] + placed.ahead_ns

    def look(member: Member) -> Window | None:
        return part_of_member(member.open(), own, **part).window

    if part.get("first_step") is None:  # a window that is wrong is so for all of them
        return look(placed.member)
    with named_in_errors(placed.member):
        return where_there_is(look)(placed.member)


class _Shown:
    """What is shown of the places that traces come from."""

    def __init__(self, capture: Captured, *, hosts: bool) -> None:
        self._hosts = hosts
        self._numbers: dict[str | None, int] = {}
        self._titles = Counter(self._words(one) for one in capture.members)

    def host(self, name: str | None) -> str | None:
        """A host's name, or its number among them where names are not to be seen."""
        if self._hosts or name is None:
            return name
        return f"host {self._numbers.setdefault(name, len(self._numbers) + 1)}"

    def origin(self, member: Member) -> dict[str, Any]:
        """The keys that say which trace is meant."""
        return {**member.origin, "host": self.host(member.host)}

    def unread(self, one: Mapping[str, Any]) -> dict[str, Any]:
        """A trace that is not what it was listed as; the reason names folders and hosts."""
        return dict(one) if self._hosts else {**one, "host": self.host(one.get("host")), "why": _NOT_AS_LISTED}

    def title(self, member: Member) -> str:
        """Of its processes: `rank 3 node1`; with the id of the trace where there are several of these."""
        words = self._words(member)
        return words if self._titles[words] == 1 or member.rank is None else f"{words} {member.trace}"

    def _words(self, member: Member) -> str:
        whose = f"trace {member.trace}" if member.rank is None else f"rank {member.rank}"
        return f"{whose} {(self.host(member.host) or '')[:_TITLE_CHARS]}".rstrip()


def _about(
    capture: Captured, shown: _Shown, parts: list[Part], left_out: list[LeftOut], message: str
) -> dict[str, Any]:
    described = capture.described()
    rows = [
        {
            **shown.origin(one.member),
            "title": one.title,
            "joined_by": one.placed.by,
            "moved_ns": -one.placed.ahead_ns,
            "within_ns": one.placed.within_ns,
        }
        for one in parts
    ]
    return {
        "capture": described["capture"],
        "traces": rows,
        "missing_ranks": described["missing_ranks"],
        "missing_hosts": [shown.host(one) for one in described["missing_hosts"]],
        "unread": [shown.unread(one) for one in described["unread"]],
        "shared_ranks": described["shared_ranks"],
        "left_out": [{**one.as_json(), "host": shown.host(one.member.host)} for one in left_out],
        "clocks": {
            "within_ns": max((row["within_ns"] for row in rows if row["within_ns"] is not None), default=None),
            "message": message,
        },
    }


class Pids:
    """Numbers of processes in the file. A number that another trace has already becomes another one."""

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._next = _FIRST_OWN_PID

    def tracks(self, tracks: Tracks, part: Part, place: int, *, all_numbered: bool) -> Tracks:
        """The tracks of a trace under numbers of their own, named by whose they are.

        `all_numbered`: what is no number of a process (a device's, or text) becomes one, too.
        """
        pids = [system_id(process["id"]) for process in tracks.processes]
        kept = {pid for pid in pids if pid is not None} - self._taken
        self._taken |= kept
        processes = []
        for process, pid in zip(tracks.processes, pids, strict=True):
            is_shown = pid in kept or (pid is None and not all_numbered)
            shown = process["id"] if is_shown else self._new()
            processes.append(_named(process, shown, part.title, place))
        return replace(tracks, processes=processes)

    def _new(self) -> int:
        while self._next in self._taken:
            self._next += 1
        self._taken.add(self._next)
        return self._next


def named(tracks: Tracks, part: Part, place: int) -> Tracks:
    """The tracks of a trace under their own numbers, named by whose they are."""
    return replace(tracks, processes=[_named(one, one["id"], part.title, place) for one in tracks.processes])


def _named(process: dict[str, Any], shown: Any, title: str, place: int) -> dict[str, Any]:
    given = process["id"]
    name = str(process.get("name") or ("" if given is None else given))
    was = f" (pid {given})" if system_id(given) is not None and shown != given and process.get("name") else ""
    return {**process, "id": shown, "name": f"{title}: {name}{was}", "sort_index": place}
