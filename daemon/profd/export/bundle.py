"""A stored trace as one file for a colleague: `profctl import` reads it back, nothing lost.

The archive is described in `profd.segments.bundle`. A whole trace is copied as the
store holds it; what is cut or redacted is written anew, without what an import
computes (the tree, links, self times).
"""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import numpy as np

from profd.disk.files import disk
from profd.events import NO_ROW, EventTable, Flows
from profd.export.redact import RedactedReader
from profd.export.rows import tables
from profd.export.tar import add_file, end_archive
from profd.query.captured import Captured
from profd.query.part import numbers_of
from profd.segments.bundle import DERIVED, MANIFEST, VERSION, VERSION_FILE
from profd.segments.meta import FLOWS_FILE, LATE_FILE, META_FILE, TraceMeta, encode_json
from profd.segments.reader import TraceReader, Window
from profd.segments.segment import reading
from profd.segments.writer import TraceWriter
from profd.workers.jobs import Progress

_NO_TIME: Final = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


def write(
    reader: TraceReader, out: BinaryIO, window: Window | None, progress: Progress, min_duration_ns: int = 0
) -> int:
    """Write the trace, or what a window (Unix ns) and a minimum duration leave of it; returns the events."""
    archive = _Archive(out, progress)
    archive.add_bytes(VERSION_FILE, f"{VERSION}\n".encode())
    if window is None and not min_duration_ns and not isinstance(reader, RedactedReader):
        archive.add_trace(reader.directory, reader.meta)
        archive.finish()
        return len(reader)
    with tempfile.TemporaryDirectory(prefix="profd-bundle-") as folder:
        meta = _written_anew(reader, Path(folder), window, min_duration_ns, progress)
        archive.add_trace(Path(folder), meta)
    archive.finish()
    return meta.events


def write_all(capture: Captured, out: BinaryIO, progress: Progress) -> int:
    """Write all traces of a capture, each with its id and `/` before the names of its files; returns the events."""
    archive = _Archive(out, progress)
    archive.add_bytes(VERSION_FILE, f"{VERSION}\n".encode())
    for member in capture.members:
        reader = member.open()
        archive.add_trace(reader.directory, reader.meta, f"{member.trace}/")
    archive.finish()
    return sum(member.events for member in capture.members)


class _Archive:
    """Members one after another, into a file that need not be seekable."""

    def __init__(self, out: BinaryIO, progress: Progress) -> None:
        self._out = out
        self._progress = progress
        self._files: dict[str, dict[str, int | str]] = {}

    def add_trace(self, directory: Path, meta: TraceMeta, before: str = "") -> None:
        """The files of a trace directory that `meta` names, and `meta` itself. `before`: the names."""
        self.add_bytes(before + META_FILE, encode_json(meta))
        names = [info.file for info in meta.segments]
        names += [FLOWS_FILE] * bool(meta.flows) + [LATE_FILE] * bool(meta.late)
        for number, name in enumerate(names):
            self._progress("packing", number / len(names))
            path = directory / name
            with reading(path), path.open("rb") as file:
                self._add(before + name, path.stat().st_size, file)

    def add_bytes(self, name: str, data: bytes) -> None:
        """A small member."""
        self._add(name, len(data), io.BytesIO(data))

    def finish(self) -> None:
        """The manifest and the end of the archive."""
        stated = {name: entry for name, entry in self._files.items() if name != MANIFEST}
        self.add_bytes(MANIFEST, json.dumps({"files": stated}, indent=1).encode())
        end_archive(self._out)

    def _add(self, name: str, size: int, file: BinaryIO) -> None:
        digest = add_file(self._out, name, size, file)
        self._files[name] = {"bytes": size, "sha256": digest}


def _written_anew(
    reader: TraceReader, folder: Path, window: Window | None, min_duration_ns: int, progress: Progress
) -> TraceMeta:
    cut = window is not None or min_duration_ns > 0
    kept = np.full(len(reader), not cut)
    with disk(folder), TraceWriter(folder) as writer:
        for table in tables(reader, None, window, min_duration_ns):
            kept[numbers_of(table)] = True
            columns = {name: table.columns[name] for name in table.columns if name not in DERIVED}
            writer.write_segment(EventTable(columns, table.dictionaries, table.args, writer.rows))
            progress("rewriting", min(1.0, writer.rows / max(1, len(reader))))
        if reader.meta.flows:
            writer.write_flows(_kept_flows(reader.flows(), kept, window, cut), reader.dictionaries)
        # The writer fills in what is true of the part; what it counts as events of devices, too.
        meta = msgspec.structs.replace(reader.meta, gpu_events=None, start_ns=None, end_ns=None)
        return writer.finish(meta)


def _kept_flows(
    flows: Flows, kept: np.ndarray[tuple[int], np.dtype[np.bool_]], window: Window | None, cut: bool
) -> Flows:
    """Records of events that stay; those that no event was found for by their time."""
    low, high = window or _NO_TIME
    bound = flows.row != NO_ROW
    inside = (flows.time >= low) & (flows.time < high)
    chosen = np.where(bound, kept[np.where(bound, flows.row, 0)] if len(kept) else False, inside)
    rows = np.flatnonzero(chosen) if cut else np.arange(len(flows.id))
    columns = {name: getattr(flows, name)[rows] for name in Flows.__dataclass_fields__}
    columns["row"] = np.full(len(rows), NO_ROW, dtype=np.int64)
    return Flows(**columns)
