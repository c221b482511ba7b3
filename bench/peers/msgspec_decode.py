"""msgspec's typed decode of the same bytes: the fastest JSON parse on PyPI."""

from __future__ import annotations

from pathlib import Path

import msgspec


class Event(msgspec.Struct, gc=False):
    """What a reader of traces needs of an event."""

    ph: str
    name: str = ""
    cat: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0.0
    dur: float = 0.0


class Arguments(msgspec.Struct, gc=False, rename={"external": "External id"}):
    """The arguments that link events."""

    external: int = 0
    correlation: int = 0
    stream: int = 0
    device: int = 0


class TypedEvent(Event, gc=False):
    """With the arguments that link events."""

    args: Arguments | None = None


class Trace(msgspec.Struct, gc=False):
    """A trace file."""

    traceEvents: list[TypedEvent]  # noqa: N815  the file's own key


def decode(path: str) -> int:
    """Decode a file; the number of records."""
    return len(msgspec.json.decode(Path(path).read_bytes(), type=Trace).traceEvents)
