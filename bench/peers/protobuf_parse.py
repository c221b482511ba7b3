"""protobuf's own parse of an XSpace, which every reader of it needs before it can begin."""

from __future__ import annotations

from pathlib import Path

from profproto.xspace import xplane_pb2


def parse(path: str) -> int:
    """Parse a file; the number of its events."""
    space = xplane_pb2.XSpace.FromString(Path(path).read_bytes())
    return sum(len(line.events) for plane in space.planes for line in plane.lines)
