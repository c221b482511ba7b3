"""The traces of a capture as an archive that Perfetto merges, from its version 58 on: a tar with a file for each, and a
manifest that says how far their clocks are apart (https://perfetto.dev/docs/reference/perfetto-manifest).

A trace has a machine of its own there: processes of different hosts, and containers, may have one number.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from pathlib import Path
from typing import Any, BinaryIO, Final, Self, cast

from profd.answers.ranks.axis import By
from profd.disk.files import disk
from profd.errors import BadInput
from profd.export.merged import ABOUT, Merged, Part, named
from profd.export.perfetto import Place, TraceFile, shift_for
from profd.export.tar import add_file, end_archive
from profd.limits import ARCHIVE_TRACE_BYTES_MAX
from profd.segments.reader import TraceReader
from profd.workers.jobs import Progress

MANIFEST: Final = "perfetto_manifest.json"
_CLOCK: Final = "BOOTTIME"  # in which our files have their times


def write_merged(merged: Merged, out: BinaryIO, progress: Progress) -> int:
    """Write all traces, each by its own clock, and what these are apart."""
    manifest = json.dumps({"perfetto_manifest": _manifest(merged)}).encode()
    add_file(out, MANIFEST, len(manifest), io.BytesIO(manifest))
    shift = shift_for(merged.first_ns)

    def one(number: int, part: Part, reader: TraceReader, heard: Progress) -> int:
        # How long it is stands before it in the archive.
        with _Spool() as spool:
            place = Place(named(reader.tracks, part, number), shift)
            events = TraceFile(reader, spool.file, place).run(part.window, merged.min_duration_ns, heard)
            add_file(out, _name(number, part), *spool.whole())
        return events

    events = merged.write_each(one, progress)
    end_archive(out)
    return events


class _Spool:
    """A file on the daemon's disk, until all of a trace is in it."""

    def __init__(self) -> None:
        self._place = Path(tempfile.gettempdir())
        with disk(self._place):
            # With a name, by which the daemon sees how large it is.
            self._kept = tempfile.NamedTemporaryFile(prefix="profd-archive-")  # noqa: SIM115 - closed at the end
        self._bytes = 0
        self.file = cast(BinaryIO, self)  # of which a writer uses `write` alone

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # what a full disk does not take: nobody reads it
            self._kept.close()

    def write(self, data: bytes) -> int:
        """BadInput where it becomes too large, Exhausted where the disk is full."""
        self._bytes += len(data)
        if self._bytes > ARCHIVE_TRACE_BYTES_MAX:
            limit = ARCHIVE_TRACE_BYTES_MAX >> 20
            raise BadInput(f"a trace has more than {limit:,} MiB in an archive: choose a part with --window or --step")
        with disk(self._place):
            return self._kept.write(data)

    def whole(self) -> tuple[int, BinaryIO]:
        """(its bytes, the file at its begin)."""
        with disk(self._place):
            self._kept.seek(0)
        return self._bytes, cast(BinaryIO, self._kept)


def _manifest(merged: Merged) -> dict[str, Any]:
    axis = next((at for at, one in enumerate(merged.parts) if one.placed.by is By.REFERENCE), 0)
    reference = {"file": _name(axis, merged.parts[axis]), "clock": _CLOCK}
    apart = merged.parts[axis].placed.ahead_ns  # 0, but where the trace whose clock is the axis was left out
    files: list[dict[str, Any]] = []
    for number, part in enumerate(merged.parts):
        entry: dict[str, Any] = {"path": _name(number, part), "machine": {"name": part.title}}
        if number != axis:
            # Its clock reads T when that of the reference reads T + offset_ns.
            offset = apart - part.placed.ahead_ns
            entry["clocks"] = {"clock": _CLOCK, "sync_to": reference, "offset_ns": offset}
        files.append(entry)
    # Values are strings or integers there.
    attributes = {f"{ABOUT}.capture": merged.about["capture"], f"{ABOUT}.clocks": json.dumps(merged.about)}
    return {"version": 1, "trace_time": reference, "files": files, "attributes": attributes}


def _name(number: int, part: Part) -> str:
    whose = "" if part.member.rank is None else f"-rank{part.member.rank}"
    return f"{number:03}{whose}.pftrace"
