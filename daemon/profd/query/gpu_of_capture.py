"""What the devices of all ranks of a capture did (docs/json.md)."""

from __future__ import annotations

from typing import Any, Final

from profd.query.captured import Captured
from profd.query.gpu import gpu_of_trace

_LISTS: Final = ("devices", "streams", "copies", "ops", "metrics")
_COUNTS: Final = ("device_events", "linked", "stated")


def gpu_of_capture(capture: Captured) -> dict[str, Any]:
    """`profctl gpu CAPTURE --json`: the rows of each trace, with its rank, host and id; links are added up."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in _LISTS}
    left_out = {"streams_left_out": 0, "copies_left_out": 0}
    links = dict.fromkeys(_COUNTS, 0)
    without: list[dict[str, Any]] = []
    reasons: dict[str, str] = {}
    for member, found in capture.each(gpu_of_trace):
        for name in _LISTS:
            rows[name] += [{**member.origin, **row} for row in found[name]]
        for name in left_out:
            left_out[name] += found[name]
        for name in _COUNTS:
            links[name] += found["links"][name]
        if "ops_message" in found:
            reasons["ops_message"] = found["ops_message"]
        if found["message"]:
            without.append({**member.origin, "why": found["message"]})
    share = links["linked"] / links["stated"] if links["stated"] else None
    return {
        **capture.described(),
        "left_out": without,
        "window_ns": max(capture.end_ns - capture.start_ns, 0),
        "message": without[0]["why"] if len(without) == len(capture.members) else None,
        **rows,
        **reasons,
        **left_out,
        "links": {**links, "share": share},
    }
