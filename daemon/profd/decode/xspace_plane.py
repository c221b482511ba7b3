"""A plane of an XSpace without its lines: names, statistics and metadata, and what of them is kept with the track.

The track of a plane (`Tracks.processes`) has a member `xspace`, read back by profd.export.xspace:

    id                  of the plane
    stats               [[name, type, value], …]; bytes in base64
    event_metadata      [{id, name, display_name, metadata (base64), stats, child_id}, …]
    stat_metadata       [[name, description], …] that are described, or used nowhere
    stat_keys           [[argument key, its type, name, type], …]
    correlation_type    type of the stat `correlation_id`, whose values are in the column `correlation`
    base_ns             added to the times of lines, which count from the start of the session

Kept of the event metadata are those that hold more than a name, that share theirs, or that no event refers to.
"""

from __future__ import annotations

import base64
import math
from collections import Counter
from typing import Any, Final

from profproto.xspace import xplane_pb2

from profd import limits
from profd.decode.xspace_wire import Span, Wire, parsed

ID, NAME, LINES, EVENT_METADATA, STAT_METADATA, STATS = range(1, 7)
STAT_TYPES: Final = {2: "double", 3: "uint64", 4: "int64", 5: "str", 6: "bytes", 7: "ref"}
_VALUES: Final = {f"{name}_value": name for name in STAT_TYPES.values()}
Stat = tuple[str, str, Any]  # name, type, value


class Plane:
    """One plane. `metadata_room` is how many bytes of metadata its trace may still keep."""

    def __init__(self, wire: Wire, span: Span, metadata_room: int = limits.XSPACE_METADATA_BYTES_MAX) -> None:
        self.wire = wire
        self.id = 0
        self.name = ""
        self.lines: list[Span] = []
        self.stat_names: dict[int, str] = {}
        self.used_stats: set[int] = set()
        self.events: dict[int, tuple[str, str]] = {}  # metadata id -> name, display name
        self.kept_ids: set[int] = set()  # rows of these say so: their name alone does not tell
        self.used_events: set[int] = set()
        self.metadata_room = metadata_room
        self._descriptions: dict[int, str] = {}
        self._metadata: dict[int, Any] = {}
        self._raw_stats: list[Any] = []
        self._entries: dict[int, dict[str, Any]] = {}
        for number, value in wire.fields(span, ID, NAME, LINES, EVENT_METADATA, STAT_METADATA, STATS):
            self._take(number, value)
        self._find_kept()

    def _take(self, number: int, value: Span | int) -> None:
        if not isinstance(value, Span):
            self.id = value if number == ID else self.id
        elif number == NAME:
            self.name = self.wire.text(value)
        elif number == LINES:
            self.lines.append(value)
        elif number == STATS:
            if (stat := parsed(xplane_pb2.XStat, self.wire, value)) is not None:
                self._raw_stats.append(stat)
        elif number == STAT_METADATA:
            if (entry := parsed(xplane_pb2.XPlane.StatMetadataEntry, self.wire, value)) is not None:
                self.stat_names[entry.key] = entry.value.name
                self._descriptions[entry.key] = entry.value.description
        elif number == EVENT_METADATA:
            entry = parsed(xplane_pb2.XPlane.EventMetadataEntry, self.wire, value)
            if entry is not None:
                self.events[entry.key] = (entry.value.name, entry.value.display_name)
                self._add_metadata(entry)

    def _add_metadata(self, entry: Any) -> None:
        """Protobuf's objects of plain entries would take most of the memory: only the others are held."""
        value = entry.value
        self._metadata.pop(entry.key, None)
        if not (value.metadata or value.stats or value.child_id):
            return
        size = value.ByteSize()
        if size > self.metadata_room:
            self.wire.findings.lose("metadata_too_large")
            return
        self.metadata_room -= size
        self._metadata[entry.key] = value

    def _find_kept(self) -> None:
        names = Counter(self.events.values())
        children = {child for value in self._metadata.values() for child in value.child_id}
        self.kept_ids = {
            number
            for number, pair in self.events.items()
            if number in self._metadata or number in children or names[pair] > 1
        }

    def stat_name(self, number: int) -> str:
        """The name of a stat; its number where the plane does not name it."""
        self.used_stats.add(number)
        name = self.stat_names.get(number)
        if name is None:
            return f"#{number}"
        return name

    def stats(self) -> list[Stat]:
        """Stats of the plane as a whole."""
        return self._stats(self._raw_stats)

    def stat(self, name: str) -> Any:
        """The value of a stat of the plane, None where it has none of that name."""
        return next((value for key, _, value in self.stats() if key == name), None)

    def _stats(self, messages: Any) -> list[Stat]:
        found = []
        for message in messages:
            which = message.WhichOneof("value")
            if which is None:
                self.wire.findings.lose("stat_without_value")
                continue
            kind, value = _VALUES[which], getattr(message, which)
            if kind == "ref":
                value = self.stat_name(value)
            elif kind == "bytes":
                value = base64.b64encode(value).decode()
            elif kind == "double" and not math.isfinite(value):
                value = str(value)  # JSON has no such numbers
            found.append((self.stat_name(message.metadata_id), kind, value))
        return found

    def record(self) -> dict[str, Any]:
        """What is kept with the track, as far as this class knows it; after its lines have been read."""
        unused = self.events.keys() - self.used_events
        kept = [self.kept(number) for number in self.events if number in self.kept_ids or number in unused]
        stats = self.stats()
        described = [
            [name, self._descriptions[number]]
            for number, name in self.stat_names.items()
            if self._descriptions[number] or number not in self.used_stats
        ]
        found = {"stats": stats, "event_metadata": kept, "stat_metadata": described}
        return {"id": self.id} | {key: value for key, value in found.items() if value}

    def kept(self, number: int) -> dict[str, Any]:
        """One of the event metadata, as the track keeps it."""
        if number not in self._entries:
            self._entries[number] = self._entry(number)
        return self._entries[number]

    def _entry(self, number: int) -> dict[str, Any]:
        name, display = self.events[number]
        entry: dict[str, Any] = {"id": number, "name": name}
        if display:
            entry["display_name"] = display
        value = self._metadata.get(number)
        if value is None:
            return entry
        if value.metadata:
            entry["metadata"] = base64.b64encode(value.metadata).decode()
        if value.stats:
            entry["stats"] = self._stats(value.stats)
        if value.child_id:
            entry["child_id"] = list(value.child_id)
        return entry
