"""XSpaces for tests: what two of them have in common, and files of them through the real pipeline."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from typing import Any

from profd.decode.xspace import XSpaceDecoder
from profd.events import EventTable
from profd.export import xspace
from profd.importing.pipeline import store_trace
from profd.segments.reader import TraceReader
from profproto.xspace import xplane_pb2


def decode(content: bytes) -> tuple[XSpaceDecoder, list[EventTable]]:
    """A decoder that has read everything, and its tables."""
    decoder = XSpaceDecoder(io.BytesIO(content), len(content))
    return decoder, [batch.events for batch in decoder.batches()]


def store(content: bytes, directory: Path, kind: str = "xspace") -> TraceReader:
    """The XSpace as a stored trace."""
    return store_all([content], directory, kind)


def store_all(contents: list[bytes], directory: Path, kind: str = "xspace") -> TraceReader:
    """Several XSpaces as one stored trace."""
    directory.mkdir(parents=True)
    with contextlib.ExitStack() as opened:
        files, fds = [], []
        for number, content in enumerate(contents):
            path = directory.with_suffix(f".{number}.pb")
            path.write_bytes(content)
            fds.append(os.open(path, os.O_RDONLY))
            opened.callback(os.close, fds[-1])
            files.append({"format": kind, "label": "x", "fd": number})
        meta = {"trace": "t1", "source": "import"}
        store_trace({"files": files, "staging": str(directory), "meta": meta}, fds, lambda what, share: None)
    return TraceReader(directory)


def exported(reader: TraceReader) -> xplane_pb2.XSpace:
    """The trace as protobuf's own parser reads our export."""
    out = io.BytesIO()
    xspace.write(reader, out, None, lambda what, share: None)
    return xplane_pb2.XSpace.FromString(out.getvalue())


def canonical(space: xplane_pb2.XSpace) -> dict[str, Any]:
    """What an XSpace says, whatever its numbering of metadata and the order of events and stats."""
    return {
        "errors": list(space.errors),
        "warnings": list(space.warnings),
        "hostnames": list(space.hostnames),
        "planes": [_plane(plane) for plane in space.planes],
    }


def _plane(plane: xplane_pb2.XPlane) -> dict[str, Any]:
    metadata = {number: _metadata(plane, entry) for number, entry in plane.event_metadata.items()}
    return {
        "id": plane.id,
        "name": plane.name,
        "stats": _stats(plane, plane.stats),
        "lines": [_line(plane, metadata, line) for line in plane.lines],
        "metadata": sorted(map(repr, metadata.values())),
        "described": {(entry.name, entry.description) for entry in plane.stat_metadata.values() if entry.description},
    }


def _metadata(plane: xplane_pb2.XPlane, entry: xplane_pb2.XEventMetadata) -> tuple[Any, ...]:
    children = [plane.event_metadata[child].name for child in entry.child_id if child in plane.event_metadata]
    return entry.name, entry.display_name, entry.metadata, tuple(_stats(plane, entry.stats)), tuple(children)


def _line(plane: xplane_pb2.XPlane, metadata: dict[int, Any], line: xplane_pb2.XLine) -> tuple[Any, ...]:
    events = [
        (
            event.num_occurrences if event.WhichOneof("data") == "num_occurrences" else None,
            event.offset_ps,
            event.duration_ps,
            repr(metadata.get(event.metadata_id, event.metadata_id)),
            tuple(_stats(plane, event.stats)),
        )
        for event in line.events
    ]
    head = (line.id, line.name, line.timestamp_ns, line.duration_ps, line.display_id, line.display_name)
    return (*head, sorted(events, key=repr))


def _stats(plane: xplane_pb2.XPlane, stats: Any) -> list[str]:
    """Sorted texts: NaN equals itself there."""
    found = []
    for stat in stats:
        which = stat.WhichOneof("value")
        value = getattr(stat, which) if which else None
        if which == "ref_value":
            value = _name(plane, int(value or 0))
        found.append(f"{_name(plane, stat.metadata_id)} {which} {value!r}")
    return sorted(found)


def _name(plane: xplane_pb2.XPlane, number: int) -> str:
    return plane.stat_metadata[number].name if number in plane.stat_metadata else f"#{number}"
