"""Planes and lines as processes and threads, those of several XSpaces of one process together.

A long window of a JAX process is recorded as many short ones, each with planes of its own. A plane
that an earlier file of the trace had goes on in the same track, and so do its lines. Metadata is
numbered anew where the numbers clash, and kept once where it is the same.
"""

from __future__ import annotations

from typing import Any

from profd import limits
from profd.decode.xspace_plane import Plane
from profd.errors import Exhausted
from profd.events import Tracks


class PlaneTrack:
    """The track of a plane. `record` is what it keeps (see profd.decode.xspace_plane)."""

    def __init__(self, tracks: Tracks, number: int, plane: Plane) -> None:
        self.number = number
        self.record: dict[str, Any] = tracks.processes[number]["xspace"]
        self._tracks = tracks
        self._earlier = {_content(entry): entry["id"] for entry in self.record.get("event_metadata", ())}
        self._ids = set(self._earlier.values())
        self._unused_from = 0  # of the numbers that were looked at, all before it are taken
        self._free: dict[tuple[Any, str], list[int]] = {}
        if self.record:
            for thread, track in enumerate(tracks.threads):
                if track["process"] == number:
                    self._free.setdefault((track["id"], track["name"]), []).append(thread)
        # Number in the file -> number in the record, of the metadata that rows refer to.
        self.numbers = {entry: self._number(plane.kept(entry)) for entry in sorted(plane.kept_ids)}

    def _number(self, entry: dict[str, Any]) -> int:
        number: int | None = self._earlier.get(_content(entry))
        if number is None:
            number = int(entry["id"])
            if number in self._ids:
                number = max(number, self._unused_from)
                while number in self._ids:
                    number += 1
                self._unused_from = number + 1
            self._ids.add(number)
        return number

    def thread(self, identity: int, name: str, record: dict[str, Any]) -> int:
        """The track number of a line."""
        free = self._free.get((identity, name))
        if free:
            return free.pop(0)
        if len(self._tracks.threads) >= limits.TRACKS_MAX:
            raise Exhausted(f"The XSpace has more than {limits.TRACKS_MAX} lines.")
        self._tracks.threads.append({"id": identity, "process": self.number, "name": name, "xspace": record})
        return len(self._tracks.threads) - 1

    def keep(self, given: dict[str, Any]) -> None:
        """Take what a plane says of itself when its lines have been read."""
        new = [entry for entry in given.pop("event_metadata", ()) if _content(entry) not in self._earlier]
        if new:
            self.record.setdefault("event_metadata", []).extend(map(self._renumbered, new))
        for key, value in given.items():
            if isinstance(value, list) and key in self.record:
                self.record[key] = [*self.record[key], *(one for one in value if one not in self.record[key])]
            else:
                self.record.setdefault(key, value)

    def _renumbered(self, entry: dict[str, Any]) -> dict[str, Any]:
        number = self.numbers.get(entry["id"])
        renumbered = entry | {"id": self._number(entry) if number is None else number}
        if "child_id" in entry:
            renumbered["child_id"] = [self.numbers.get(child, child) for child in entry["child_id"]]
        return renumbered


def _content(entry: dict[str, Any]) -> str:
    return repr([(key, entry[key]) for key in sorted(entry) if key != "id"])
