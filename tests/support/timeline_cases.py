"""The worked cases of derived lines (tests/data/derived-timeline-cases.json) as XSpaces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from profproto.xspace import xplane_pb2

CASES: Final[list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[1] / "data" / "derived-timeline-cases.json").read_text("utf-8")
)["cases"]
_SCOPE_TREE: Final = "/host:__ScopeRangeCallStack__"
_FIRST_ID: Final = 1000  # of metadata: those below are ids of scopes


def case(name: str) -> dict[str, Any]:
    """One of them."""
    return next(one for one in CASES if one["id"] == name)


def xspace_of(given: dict[str, Any]) -> bytes:
    """The input of a case as a file."""
    space = xplane_pb2.XSpace()
    for number, plane in enumerate(given["planes"]):
        _add_plane(space.planes.add(id=number, name=plane["name"]), plane)
    if given.get("scope_parents"):
        tree = space.planes.add(id=len(given["planes"]), name=_SCOPE_TREE)
        for child, parent in given["scope_parents"].items():
            tree.stats.add(metadata_id=int(child), int64_value=parent)
    return bytes(space.SerializeToString())


def _add_plane(message: xplane_pb2.XPlane, plane: dict[str, Any]) -> None:
    stats: dict[str, int] = {}
    names: dict[str, int] = {}

    def stat_id(name: str) -> int:
        number = stats.setdefault(name, _FIRST_ID + len(stats))
        message.stat_metadata[number].id = number
        message.stat_metadata[number].name = name
        return number

    for line in plane["lines"]:
        target = message.lines.add(id=line["id"], name=line["name"])
        for event in line["events"]:
            number = names.setdefault(event["name"], 1 + len(names))
            message.event_metadata[number].id = number
            message.event_metadata[number].name = event["name"]
            made = target.events.add(metadata_id=number, offset_ps=event["offset_ps"], duration_ps=event["duration_ps"])
            for name, typed in event["stats"].items():
                ((kind, value),) = typed.items()
                field = f"{kind}_value"
                made.stats.add(metadata_id=stat_id(name), **{field: stat_id(value) if kind == "ref" else value})
