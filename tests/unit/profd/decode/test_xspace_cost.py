"""Small XSpaces that would be dear to decode: refused before the work, and linear where they are not."""

from __future__ import annotations

import io
from typing import Any

import pytest
from profd import limits
from profd.decode import xspace as module
from profd.decode import xspace_tracks as tracks_module
from profd.decode.xspace import XSpaceDecoder
from profd.decode.xspace_plane import Plane
from profd.errors import Exhausted
from profd.events import Tracks
from profproto.xspace import xplane_pb2

PLANE = b"\x0a\x02\x08\x01"  # nothing but an id


def decoder(content: bytes, tracks: Tracks | None = None) -> XSpaceDecoder:
    return XSpaceDecoder(io.BytesIO(content), len(content), tracks=tracks)


@pytest.fixture
def looked_into(monkeypatch: pytest.MonkeyPatch) -> list[Plane]:
    """The planes that were decoded."""
    found: list[Plane] = []

    class Counted(Plane):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            found.append(self)

    monkeypatch.setattr(module, "Plane", Counted)
    return found


def test_a_million_planes_are_refused_before_any_is_decoded(looked_into: list[Plane]) -> None:
    with pytest.raises(Exhausted, match="more than 10,000 planes"):
        list(decoder(PLANE * 1_000_000).batches())
    assert looked_into == []


def test_lines_are_counted_over_all_planes(looked_into: list[Plane]) -> None:
    lines = b"\x1a\x00" * (limits.XSPACE_LINES_MAX // 2 + 1)
    plane = b"\x0a" + varint(len(lines)) + lines
    with pytest.raises(Exhausted, match="more than 50,000 lines"):
        list(decoder(plane * 2).batches())
    assert looked_into == []


def test_metadata_is_counted_over_all_planes(looked_into: list[Plane], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "XSPACE_METADATA_ENTRIES_MAX", 5)
    space = xplane_pb2.XSpace()
    for _ in range(2):
        plane = space.planes.add(name="x")
        plane.event_metadata[1].id = plane.stat_metadata[1].id = 1
        plane.stats.add(metadata_id=1, int64_value=1)
    with pytest.raises(Exhausted, match="more than 5 names and statistics"):
        list(decoder(space.SerializeToString()).batches())
    assert looked_into == []


class Counting(dict[str, int]):
    """Counts how often it is asked."""

    asked = 0

    def get(self, *args: Any) -> Any:
        self.asked += 1
        return super().get(*args)


@pytest.mark.parametrize("files", [1, 2])
def test_planes_of_one_name_are_told_apart_in_linear_time(files: int) -> None:
    """In the second file each goes on in its own track."""
    tracks = Tracks()
    for _ in range(files):
        decoding = decoder(PLANE * 5000, tracks)
        decoding._identities = asked = Counting(decoding._identities)
        list(decoding.batches())
        assert asked.asked <= 2 * 5000
    assert len({str(process["id"]) for process in tracks.processes}) == len(tracks.processes) == 5000


class CountingSet(set[int]):
    """Counts how often it is asked."""

    asked = 0

    def __contains__(self, item: object) -> bool:
        CountingSet.asked += 1
        return super().__contains__(item)


def test_numbers_that_clash_are_given_anew_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files of one process that number their metadata alike."""
    monkeypatch.setattr(tracks_module, "set", CountingSet, raising=False)
    tracks = Tracks()
    for text in ("first", "second"):
        space = xplane_pb2.XSpace()
        plane = space.planes.add(name="x")
        for number in range(1, 2001):
            entry = plane.event_metadata[number]
            entry.id, entry.name, entry.metadata = number, f"{text} {number}", b"m"
        decoding = decoder(space.SerializeToString(), tracks)
        list(decoding.batches())
    (process,) = tracks.processes
    ids = [entry["id"] for entry in process["xspace"]["event_metadata"]]
    assert len(set(ids)) == len(ids) == 4000
    assert 2000 < CountingSet.asked <= 4 * 4000


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
