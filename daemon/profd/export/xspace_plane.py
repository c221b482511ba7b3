"""Planes and lines of an XSpace while they are written."""

from __future__ import annotations

import base64
from typing import Any, Final

from profproto.xspace import xplane_pb2

from profd.decode.xspace_stats import DEFAULT_TYPES
from profd.events import DeviceType
from profd.model.text import encodable

StatType = tuple[str, str]  # name, type ("int64", "ref" …)
_DEVICE_PLANES: Final = {DeviceType.TPU: "/device:TPU:{}"}
_INT64: Final = 1 << 63


class Plane:
    """An XPlane under construction: names get their ids when they are first used."""

    def __init__(self, name: str) -> None:
        self.message = xplane_pb2.XPlane(name=encodable(name))
        self._stats: dict[str, int] = {}
        self._events: dict[tuple[str, str], int] = {}
        self._next_event = 1
        self._next_stat = 1
        self._line_ids: set[int] = set()
        self._keys: dict[tuple[str, str], StatType] = {}
        self.base_ns = 0  # Unix time of 0 in lines that count from the start of the session
        self.correlation_type = "uint64"

    @classmethod
    def recorded(cls, name: str, record: dict[str, Any]) -> Plane:
        """The plane that a track was, by what profd.decode.xspace_plane keeps of it."""
        plane = cls(name)
        plane.message.id = record.get("id", 0)
        plane.base_ns = record.get("base_ns", 0)
        plane.correlation_type = record.get("correlation_type", "uint64")
        plane._keys = {(key, kind): (stat, type_) for key, kind, stat, type_ in record.get("stat_keys", ())}
        for stat_name, description in record.get("stat_metadata", ()):
            number = plane.stat_id(stat_name)
            if description:
                plane.message.stat_metadata[number].description = encodable(description)
        for kept in record.get("event_metadata", ()):
            plane._restore(kept)
        for stat in record.get("stats", ()):
            plane.add_stat(plane.message.stats, *stat)
        return plane

    def _restore(self, kept: dict[str, Any]) -> None:
        entry = self.message.event_metadata[kept["id"]]
        entry.id, entry.name, entry.display_name = (
            kept["id"],
            encodable(kept["name"]),
            encodable(kept.get("display_name", "")),
        )
        entry.metadata = base64.b64decode(kept.get("metadata", ""))
        entry.child_id.extend(kept.get("child_id", ()))
        for stat in kept.get("stats", ()):
            self.add_stat(entry.stats, *stat)

    def line(self, thread: dict[str, Any]) -> Any:
        """A new XLine for a recorded track."""
        record = thread.get("xspace", {})
        return self.message.lines.add(
            id=thread["id"],
            name=encodable(record.get("name", thread.get("name", ""))),
            timestamp_ns=record.get("timestamp_ns", 0),
            duration_ps=record.get("duration_ps", 0),
            display_id=record.get("display_id", 0),
            display_name=encodable(record.get("display_name", "")),
        )

    def new_line(self, wanted: Any, name: str) -> Any:
        """A new XLine of a track that was none; its id is the wanted one if that is a free number."""
        number = wanted if isinstance(wanted, int) and not isinstance(wanted, bool) else 0
        while number in self._line_ids or not -_INT64 <= number < _INT64:
            number = len(self._line_ids) + 1 if not 0 < number < _INT64 - 1 else number + 1
        self._line_ids.add(number)
        return self.message.lines.add(id=number, name=encodable(name))

    def stat_of(self, key: str, kind: str) -> StatType:
        """Which stat an argument column is."""
        found = self._keys.get((key, kind))
        return found if found is not None else (key, DEFAULT_TYPES[kind])

    def stat_id(self, name: str) -> int:
        """The id of a stat's name (or of a text that stats refer to)."""
        number = self._stats.get(name)
        if number is None:
            number = self._stats[name] = self._next_stat
            self._next_stat += 1
            entry = self.message.stat_metadata[number]
            entry.id, entry.name = number, encodable(name)
        return number

    def event_id(self, name: str, display_name: str = "") -> int:
        """The id of event metadata that is a name and nothing else."""
        number = self._events.get((name, display_name))
        if number is None:
            while self._next_event in self.message.event_metadata:
                self._next_event += 1
            number = self._events[name, display_name] = self._next_event
            entry = self.message.event_metadata[number]
            entry.id, entry.name, entry.display_name = number, encodable(name), encodable(display_name)
        return number

    def add_stat(self, to: Any, name: str, type_: str, value: Any) -> None:
        """Append a stat, its value as an ArgColumn or a record has it."""
        number = self.stat_id(name)
        if type_ == "int64":
            to.add(metadata_id=number, int64_value=value)
        elif type_ == "uint64":
            to.add(metadata_id=number, uint64_value=int(value))
        elif type_ == "double":
            to.add(metadata_id=number, double_value=float(value))
        elif type_ == "str":
            to.add(metadata_id=number, str_value=encodable(value))
        elif type_ == "ref":
            to.add(metadata_id=number, ref_value=self.stat_id(value))
        else:
            to.add(metadata_id=number, bytes_value=base64.b64decode(value))


def device_plane(device_type: int, device: int) -> str:
    """The name of a device's plane."""
    return _DEVICE_PLANES.get(DeviceType(device_type), "/device:GPU:{}").format(max(device, 0))
