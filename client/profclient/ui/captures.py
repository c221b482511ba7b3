"""Captures, as `profctl captures` lists them: how each went, whether it left a trace or not."""

from __future__ import annotations

import re
from typing import Any, Final

from profclient.errors import NotFoundError, UsageError
from profclient.ui.asking import Library

LISTED: Final = "/api/captures"
LISTED_MAX: Final = 200
TARGETS_MAX: Final = 32
"""Of the processes of a capture; the others are counted."""
_CAPTURE: Final = re.compile(r"c[0-9a-f]{1,12}")


def listed(library: Library, asked: Any) -> list[dict[str, Any]]:
    """The latest first; with `capture` that one alone, where it is kept. Rows as `watch_host` has them (docs/json.md).

    Raises ClientError.
    """
    from profproto.v1 import capture_pb2

    from profclient.connection import Daemon

    if library.store is not None:
        raise UsageError("a store's folder keeps traces, and no captures: their traces say which one they are of.")
    one = asked.get("capture", "") if isinstance(asked, dict) else None
    if not isinstance(one, str) or (one and not _CAPTURE.fullmatch(one)):
        raise UsageError("a capture is named by its id; `profctl captures` lists them.")
    with Daemon() as daemon:
        if one:
            try:
                return [_row(daemon.call(daemon.captures.GetCapture, capture_pb2.CaptureRef(id=one)))]
            except NotFoundError:
                return []  # its traces were brought here from elsewhere, or are kept longer
        request = capture_pb2.ListCapturesRequest(limit=LISTED_MAX + 1)
        return [_row(capture) for capture in daemon.call(daemon.captures.ListCaptures, request).captures]


def _row(capture: Any) -> dict[str, Any]:
    from profclient.as_json import capture_json

    row = capture_json(capture)
    some = row["targets"][:TARGETS_MAX]
    for target in some:
        target.pop("load")  # of an answer about one process
    return {
        **row,
        "duration_ns": capture.options.duration_ns or None,
        "iterations": capture.options.iterations or None,
        "targets": some,
        "targets_left_out": len(row["targets"]) - len(some),
    }
