"""A trace, or all of a capture, or the part of it that Perfetto can hold, as a file that Perfetto reads."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final

from profclient.errors import UsageError
from profclient.merged_head import Head
from profclient.traces import Traces, is_capture
from profclient.ui.asking import Library, checked

BYTES_MAX: Final = 256 << 20
"""Of a file: a tab takes ten times that (113 MB: 1.16 GB)."""
WHOLE_EVENTS_MAX: Final = 1_000_000
"""Of a trace that is handed over whole, where a window was to be looked at: Perfetto's engine takes 12 s for it."""
_WINDOW: Final = frozenset(("from_ns", "to_ns"))
_TITLE_MAX: Final = 200  # letters; it travels in a header


@contextmanager
def handed(library: Library, asked: Any, asker: socket.socket) -> Iterator[tuple[dict[str, Any], BinaryIO]]:
    """What is handed over, and its file, which goes with the block.

    `asked`: `trace` (or a capture), `arguments` as `export` has them (`redact` with commas), and `cut`: whether a
    window is all that is wanted, even of a trace that could be had whole. Raises ClientError.
    """
    if not isinstance(asked, dict) or not isinstance(asked.get("cut", False), bool):
        raise UsageError("a request is a JSON object, and cut a flag.")
    question = checked({**asked, "question": "summary"})  # whose trace and arguments are as those of any
    words = [word for word in str(question.arguments.pop("redact", "") or "").split(",") if word]
    with library.asked(asker) as traces, tempfile.TemporaryFile(prefix="profctl-perfetto-") as file:
        whole_capture = is_capture(question.trace)
        found = _of_capture(traces, question.trace) if whole_capture else traces.get(question.trace)
        part = question.arguments
        whole = not asked.get("cut", False) and found["events"] <= WHOLE_EVENTS_MAX
        if whole:
            part = {name: value for name, value in part.items() if name not in _WINDOW}
        written = 0
        pieces = Head(traces.ask("export", found["id"], format="perfetto", gzip=False, redact=words, **part))
        for piece in pieces:
            written += len(piece)
            if written > BYTES_MAX:
                raise UsageError(_TOO_LARGE)
            file.write(piece)
        told = {
            "id": found["id"],
            "title": (found["title"] or "")[:_TITLE_MAX],
            "events": found["events"],
            "whole": whole,
        }
        told["whole_events_max"] = WHOLE_EVENTS_MAX
        about = pieces.about("perfetto", gzip=False) if whole_capture else None
        told["clocks"] = about and about["clocks"]["message"]
        yield told, file


def _of_capture(traces: Traces, capture: str) -> dict[str, Any]:
    """What is told of a capture, as of a trace."""
    answer = traces.ask("traces", capture).value()
    events = sum(one["events"] for one in answer["traces"])
    return {"id": answer["capture"], "title": f"Capture {answer['capture']}", "events": events}


_TOO_LARGE: Final = (
    f"this is more than Perfetto can hold (files of {BYTES_MAX >> 20} MiB): choose a narrower window in the timeline, "
    "or a step. The timeline of profctl ui has events of any number."
)
