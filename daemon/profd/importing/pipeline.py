"""Raw files to a stored trace: decode, collate, tree, store. The job `store_trace`.

Memory is bounded by a slice of input and a segment of rows, whatever the size
of the trace; only flow records (34 bytes each) and strings grow with it. What the
input that is read last says is settled is stored while the rest of it is decoded:
events of a program are read behind the samples of its stacks.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from profd.collate.collator import Collator
from profd.decode.batch import Batch, Decoder, Findings
from profd.decode.nvprof import NvprofDecoder
from profd.decode.open import open_decoder
from profd.errors import BadInput, BadTrace, Exhausted
from profd.events import Dictionary, EventTable, Tracks
from profd.importing.remembered import remembered_from_untrusted
from profd.limits import TRACE_EVENTS_MAX
from profd.model.capture import Loss
from profd.model.remembered import REMEMBERED
from profd.model.run_times import of_profd
from profd.segments.meta import TraceMeta
from profd.segments.read_ahead import read_ahead
from profd.segments.writer import TraceWriter
from profd.store.handover import ORIGIN_FIELDS
from profd.tree.build import Patch, TreePass, apply
from profd.workers.jobs import Progress

_DECODE_SHARE = 0.6  # of the progress bar


@dataclass(slots=True)
class _Stages:
    """Where the time goes, in ns. The stages take turns, so each adds up."""

    spent: dict[str, int] = field(default_factory=lambda: {"decode": 0, "collate": 0, "tree": 0, "store": 0})
    _since: int = field(default_factory=time.perf_counter_ns)

    def end(self, stage: str) -> None:
        """Everything since the last call was this stage."""
        now = time.perf_counter_ns()
        self.spent[stage] += now - self._since
        self._since = now


def store_trace(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """See `workers/jobs.py`. Also returned: launches, anomalies and timings_ns.

    `lost` are the losses of this job; the stored trace has those of `meta` as
    well. Raises BadTrace when nothing can be made of any file, Exhausted when
    a limit or the disk is in the way.
    """
    return _Import(Path(args["staging"]), _meta(args["meta"]), progress).run(args["files"], fds)


def _meta(given: dict[str, Any]) -> TraceMeta:
    try:
        return msgspec.convert(given, TraceMeta)
    except msgspec.ValidationError as error:
        raise BadInput(f"The description of the trace is malformed: {error}.") from error


@dataclass(frozen=True, slots=True)
class _Input:
    """A file that is read, and its place among the files."""

    number: int
    label: str
    fd: int
    decoder: Decoder


class _Import:
    """One run of the job."""

    def __init__(self, staging: Path, meta: TraceMeta, progress: Progress) -> None:
        self._staging = staging
        self._meta = meta
        self._progress = progress
        self._stages = _Stages()
        self._dictionaries: dict[str, Dictionary] = {}
        self._tracks = Tracks()
        self._collator = Collator(staging)
        self._writer = TraceWriter(staging)
        self._tree: TreePass | None = None
        self._closed = False
        self._lost: list[Loss] = []
        self._launches = 0
        self._stored = 0  # rows

    def run(self, files: list[dict[str, Any]], fds: list[int]) -> dict[str, Any]:
        beside = [file for file in files if file["format"] == REMEMBERED]  # no events
        with self._writer:
            self._decode_all([file for file in files if file not in beside], fds)
            for file in beside:
                self._remember(fds[file["fd"]])
            self._store()
            meta = self._finish()
        return {
            "events": meta.events,
            "gpu_events": meta.gpu_events or 0,
            "launches": self._launches,
            "start_ns": meta.start_ns,
            "end_ns": meta.end_ns,
            "bytes": meta.bytes,
            "lost": msgspec.to_builtins(self._lost),
            "warnings": meta.warnings,
            "truncated": meta.truncated,
            "anomalies": meta.anomalies,
            "timings_ns": self._stages.spent,
        }

    def _decode_all(self, files: list[dict[str, Any]], fds: list[int]) -> None:
        read: list[_Input] = []
        unreadable: list[BadTrace] = []
        late: _Input | None = None  # behind all others it may say what is settled
        for number, file in enumerate(files):
            label = file.get("label") or f"file {number + 1}"
            fd = fds[file["fd"]]
            with self._counted(label, unreadable):
                decoder = open_decoder(file["format"], fd, self._dictionaries, self._tracks, self._staging)
                one = _Input(number, label, fd, decoder)
                if late is None and decoder.settles:
                    decoder.begin()
                    late = one
                else:
                    self._decode(one, last=False)
                    read.append(one)
        if late is not None:
            with self._counted(late.label, unreadable):
                self._decode(late, last=True)
                read.append(late)
        if unreadable and not read:
            raise unreadable[-1]
        for one in sorted(read, key=lambda one: one.number):
            self._take(one.decoder.findings, one.label)

    @contextlib.contextmanager
    def _counted(self, label: str, unreadable: list[BadTrace]) -> Iterator[None]:
        """An input of which nothing can be read is a loss of the trace."""
        try:
            yield
        except BadTrace as error:
            unreadable.append(error)
            self._meta.warnings.append(f"{label}: {error}")
            self._lost.append(Loss("decode", "unreadable_file", 1))

    def _decode(self, one: _Input, *, last: bool) -> None:
        size = max(1, os.fstat(one.fd).st_size)
        batches = one.decoder.batches()
        if not isinstance(one.decoder, NvprofDecoder):  # SQLite's objects keep to their thread
            batches = read_ahead(batches)  # the next one is decoded while this one is sorted and spilled
        with contextlib.closing(batches):
            for batch in batches:
                self._stages.end("decode")
                if not last:
                    batch.settled = None  # events of other inputs may start at any time
                self._place(batch, one.number, one.label)
                self._progress(
                    f"decoding {one.label}", _DECODE_SHARE * min(os.lseek(one.fd, 0, os.SEEK_CUR) / size, 1.0)
                )
        self._stages.end("decode")

    def _remember(self, fd: int) -> None:
        """What torch's flight recorder said at the window's end; a malformed answer takes nothing from the trace."""
        try:
            self._meta.remembered = remembered_from_untrusted(fd)
        except BadInput as error:
            self._meta.warnings.append(f"groups and sequence numbers of collectives are not recorded: {error}")

    def _place(self, batch: Batch, number: int, label: str) -> None:
        """Sort it in, and store what nothing comes before any more."""
        self._collator.add(batch, number)
        if self._collator.rows > TRACE_EVENTS_MAX:
            raise Exhausted(
                f"{label} has more than {TRACE_EVENTS_MAX} events, the most a trace can have. Capture a shorter window."
            )
        for segment in self._collator.ready(self._dictionaries):
            self._store_segment(segment)
        self._stages.end("collate")

    def _take(self, findings: Findings, label: str) -> None:
        meta = self._meta
        self._lost += [Loss("decode", reason, count) for reason, count in findings.lost.items() if count]
        for name, count in findings.counted.items():
            meta.anomalies[name] = meta.anomalies.get(name, 0) + count
        meta.warnings += findings.warnings
        for track, name in findings.thread_names.items():
            self._tracks.threads[track]["name"] = name
        if findings.clock_error_ns is not None:
            gpu = meta.gpu.get("clock_error_ns")
            errors = (meta.clock_error_ns or 0, findings.clock_error_ns, gpu if isinstance(gpu, int) else 0)
            meta.clock_error_ns = max(errors)
        if findings.truncated:
            meta.truncated = f"{meta.truncated} {label}: {findings.truncated}".lstrip()
        for key, value in findings.top_level.items():
            meta.top_level.setdefault(key, value)
        if findings.origin is not None:
            self._take_origin(findings.origin)

    def _take_origin(self, origin: TraceMeta) -> None:
        """What a trace from another store says of itself; what the tree counts is counted anew."""
        for name in (*ORIGIN_FIELDS, "waterfall", "versions", "gpu"):
            if value := getattr(origin, name):
                setattr(self._meta, name, value)
        self._lost += origin.lost
        self._meta.anomalies = {**origin.anomalies, **self._meta.anomalies}

    def _store(self) -> None:
        rows = self._collator.rows
        for segment in self._collator.segments(self._dictionaries):
            done = (segment.first_row + len(segment)) / rows
            self._store_segment(segment, last=done == 1)
            self._progress("storing", _DECODE_SHARE + (1 - _DECODE_SHARE) * done)
        if not self._closed:  # nothing was left to store
            self._patch(self._close())
        if self._stored != rows:  # a fault of ours: told, not hidden
            self._lost.append(Loss("collate", "missing", rows - self._stored))

    def _store_segment(self, segment: EventTable, last: bool = False) -> None:
        self._stages.end("collate")
        self._forest().feed(segment)
        # What the end of the trace says of the last segment needs no patch: it is not written yet.
        late = [rest for patch in self._close() if (rest := apply(patch, segment))] if last else []
        self._stages.end("tree")
        self._writer.write_segment(segment)
        self._stored += len(segment)
        self._patch(late)
        self._stages.end("store")

    def _patch(self, late: list[Patch]) -> None:
        for patch in late:
            self._writer.write_late(patch.rows, patch.columns)

    def _forest(self) -> TreePass:
        """The tree pass; not before the flow records are known, which is when the first segment is there."""
        if self._tree is None:
            dictionaries = self._dictionaries
            self._tree = TreePass(
                self._tracks,
                dictionaries,
                self._collator.flows(),
                lambda flows: self._writer.write_flows(flows, dictionaries),
            )
        return self._tree

    def _close(self) -> list[Patch]:
        tree = self._forest()
        outcome = tree.finish()
        self._closed = True
        self._meta.anomalies |= outcome.anomalies
        self._launches = tree.launches
        return outcome.patches

    def _finish(self) -> TraceMeta:
        meta = self._meta
        meta.lost += self._lost
        meta.tracks = self._tracks
        _name_threads(meta)
        meta.timings = self._stages.spent
        if meta.rank is None and meta.source == "import":
            meta.rank = _rank_in(meta.top_level)
        meta = self._writer.finish(meta)
        self._stages.end("store")
        return meta


def _name_threads(meta: TraceMeta) -> None:
    """Threads by Python's names, where the process told them: the kernel's is the program's for most."""
    for track in meta.tracks.threads:
        known = meta.run_times.names.get(str(track.get("id")))
        if known and not of_profd(track.get("name")):
            track["name"] = known


def _rank_in(top_level: dict[str, Any]) -> int | None:
    """The rank that Kineto writes into a file of a distributed job."""
    said = top_level.get("distributedInfo")
    rank = said.get("rank") if isinstance(said, dict) else None
    return rank if isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < 1 << 31 else None
