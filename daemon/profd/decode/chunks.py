"""Event chunks (docs/wire-format.md) to EventTable batches. The format `chunks`.

A file is gone through twice. First front to back, for what chunks need of each
other: which there are, their texts, the ends of events that began in others.
Then chunk by chunk in the order of their times, so that what follows finds rows
that are nearly sorted.

One Unix time per CLOCK_MONOTONIC time: the first chunk's. A wall clock that is
stepped while a trace is recorded moves no event; it is said in a warning.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np

from profd import limits
from profd._scan import ChunkReader
from profd.decode.batch import Batch, Decoder
from profd.decode.chunk_args import ChunkArguments
from profd.decode.chunk_bodies import bodies, inflate
from profd.decode.chunk_file import ChunkFile
from profd.decode.chunk_frames import OpenFrames
from profd.decode.chunk_header import Header
from profd.decode.op_inputs import Malformed, signature
from profd.decode.shared import Numbers, SharedDictionary, SharedTracks
from profd.errors import BadTrace, Exhausted
from profd.events import LISTS, NO_ROW, ArgColumn, Dictionary, EventTable, Tracks

BATCH_ROWS: Final = 1 << 16
BATCH_TENSORS: Final = 1 << 20
# In the order of the codes in native/scan/chunk_reader.cpp.
_CATEGORIES: Final = [
    "cpu_op",
    "user_annotation",
    "python_function",
    "cpu_instant_event",
    "cuda_runtime",
    "cuda_driver",
    "kernel",
    "gpu_memcpy",
    "gpu_memset",
    "cuda_sync",
    "overhead",
]
_NESTING: Final = 3  # categories before this one have children
_STRINGS: Final = ("name", "module", "stack")
_FLAGS: Final = (("failed", "failed"), ("open_at_start", "open at start"), ("allow_tf32", "allow_tf32"))
_STEP_NS: Final = 1_000_000  # by less than that a wall clock may seem to step: two clocks are not read at once
_STEPS_SAID: Final = 4
_TIME_MAX: Final = 1 << 62
_FOREVER: Final = (1 << 63) - 1

_Place = tuple[int, int, int, int, int, int, int, int, int, int]


class _Known(NamedTuple):
    """A chunk that was indexed. In the order in which chunks are read again."""

    start: int  # Unix ns of its base time
    at: int  # offset in the file
    crc: int
    earliest: int  # Unix ns: it has no event before
    opens: bool  # it has frames that were open when recording began
    space: int


@dataclass(slots=True)
class _Stream:
    """One stream's chunks that were met."""

    sequences: set[int] = field(default_factory=set)

    @property
    def missing(self) -> int:
        """Numbers below the largest that were not met."""
        return max(self.sequences) + 1 - len(self.sequences)


class ChunkDecoder(Decoder):
    """Decodes one seekable file of `size` bytes."""

    settles = True

    def __init__(
        self,
        file: BinaryIO,
        size: int,
        dictionaries: dict[str, Dictionary] | None = None,
        tracks: Tracks | None = None,
    ) -> None:
        super().__init__(file, dictionaries, tracks)
        self._chunks = ChunkFile(file, size)
        self._reader = ChunkReader(
            dictionary_bytes=limits.DICTIONARY_BYTES_MAX,
            open_events=limits.OPEN_EVENTS_MAX,
            tracks=limits.TRACKS_MAX,
        )
        self._codes = {
            name: SharedDictionary(self.dictionaries.setdefault(name, Dictionary()))
            for name in ("cat", "inputs", *_STRINGS)
        }
        self._codes["cat"].extend(_CATEGORIES)
        self._arguments = ChunkArguments()
        self._true = Dictionary(["true"])
        self._frames = OpenFrames()
        self._shared_tracks = SharedTracks(self.tracks)
        self._processes, self._threads = Numbers(), Numbers()
        self._spaces: dict[tuple[int, int], int] = {}
        self._streams: dict[tuple[int, int], _Stream] = {}
        self._offset: int | None = None  # of Unix time from CLOCK_MONOTONIC
        self._steps: list[int] = []
        self._order: list[_Known] = []  # the chunks to read
        self._earliest: dict[int, int] = {}  # of each space: the time before which it has no event
        self._opening: list[tuple[int, int]] = []  # (first row, space) of those of a batch that have open frames
        # By offset: those that there is room to keep until they are read again.
        self._bodies: dict[int, tuple[_Place, bytes]] = {}
        self._bodies_bytes = 0

    def begin(self) -> None:
        """The first pass. Raises as `batches` does."""
        for at, header, body in bodies(self._chunks.chunks()):
            self._index(at, header, body)
        if not self._order and not self._streams:
            self._take_damage()
            raise BadTrace("no event chunk in it is readable", 0)
        self._order.sort()
        self._take_tracks(self._reader.take())

    def batches(self) -> Generator[Batch]:
        """Yield batches of about BATCH_ROWS. Raises BadTrace if no chunk is readable, Exhausted beyond a limit."""
        if not self._streams:
            self.begin()
        settled = self._settled()
        for number, known in enumerate(self._order, 1):
            self._add(known)
            if self._reader.rows >= BATCH_ROWS or self._reader.tensors >= BATCH_TENSORS:
                more = number < len(self._order)
                yield self._batch(self._order[number].start if more else None, settled[number])
        if self._reader.rows:
            yield self._batch(None, _FOREVER)
        self._conclude()

    def _settled(self) -> list[int]:
        """After so many chunks: the time before which none of the others has an event."""
        first = [self._floor(known.space) if known.opens else known.earliest for known in self._order]
        times: list[int] = np.minimum.accumulate(np.array(first, dtype=np.int64)[::-1])[::-1].tolist()
        return [*times, _FOREVER]

    def _floor(self, space: int) -> int:
        """Where frames that were open when recording began are put at the earliest: around all that was recorded."""
        return self._earliest[space] - 1

    def _index(self, at: int, header: Header, body: bytes | None) -> None:
        """First pass."""
        if len(self._order) >= limits.CHUNKS_MAX:
            raise Exhausted(f"The recording has more than {limits.CHUNKS_MAX} chunks. Capture a shorter window.")
        space = self._spaces.setdefault((header.incarnation, header.epoch), len(self._spaces))
        stream = self._streams.setdefault((space, header.stream), _Stream())
        if len(self._streams) > limits.TRACKS_MAX:
            raise Exhausted(f"The recording has more than {limits.TRACKS_MAX} streams. Capture fewer threads.")
        if header.sequence in stream.sequences:
            self.findings.count("duplicate_chunks")
            return
        stream.sequences.add(header.sequence)
        start = self._time(header)
        if body is None or not 0 <= start < _TIME_MAX:
            self._lose("inflate" if body is None else "bad_time", header.events)
        elif (found := self._reader.index(*(place := self._place(header, space, start)), body)) is not None:
            earliest, opens = found
            self._order.append(_Known(start, at, header.crc, earliest, opens, space))
            self._earliest[space] = min(earliest, self._earliest.get(space, earliest))
            self._keep(at, place, body)
        else:
            self._lose("malformed", header.events)

    def _keep(self, at: int, place: _Place, body: bytes) -> None:
        if self._bodies_bytes + len(body) <= limits.CHUNK_BODIES_BYTES:
            self._bodies[at] = place, body
            self._bodies_bytes += len(body)

    def _time(self, header: Header) -> int:
        offset = header.real_ns - header.base_ns
        if self._offset is None:
            self._offset = offset
        self.findings.clock_error_ns = max(self.findings.clock_error_ns or 0, header.error_ns)
        step = offset - self._offset
        allowed = _STEP_NS + header.error_ns
        if all(abs(step - known) > allowed for known in (0, *self._steps)):
            self.findings.count("clock_steps")
            if len(self._steps) < _STEPS_SAID:
                self._steps.append(step)
        return header.base_ns + self._offset

    def _place(self, header: Header, space: int, start: int) -> _Place:
        place = (space, header.pid, header.stream, header.sequence, header.tid, header.thread_name, header.id_base)
        return (*place, start, header.slots, header.events)

    def _add(self, known: _Known) -> None:
        """Second pass."""
        if known.opens:
            self._opening.append((self._reader.rows, known.space))
        kept = self._bodies.pop(known.at, None)
        place, body = self._read(known) if kept is None else kept
        if body is None or not self._reader.add(*place, body):
            self._lose("malformed", place[-1])

    def _read(self, known: _Known) -> tuple[_Place, bytes | None]:
        """Once more from the file."""
        header, raw = self._chunks.again(known.at, known.crc)
        return self._place(header, known.space, known.start), inflate(header, raw)

    def _batch(self, before: int | None, settled: int) -> Batch:
        taken = self._reader.take()
        for name in _STRINGS:
            self._codes[name].extend(taken["strings"][name])
        self._codes["inputs"].extend([self._signature(blob) for blob in taken["inputs"]])
        self._arguments.extend(taken["arguments"])
        self._take_tracks(taken)
        columns = taken["columns"]
        self._place_frames(columns, taken["open_at_start"])
        for name in ("cat", "inputs", *_STRINGS):
            if name in columns:
                columns[name] = self._codes[name].map(columns[name])
        for name, numbers in (("process", self._processes), ("thread", self._threads), ("end_thread", self._threads)):
            if name in columns:
                columns[name] = numbers.map(columns[name])
        if "end_thread" in columns:
            elsewhere = columns["end_thread"] != NO_ROW  # outside the nesting, which its begin could not say
            columns["is_async"] = np.array(columns.get("is_async", 0) | elsewhere, dtype=np.uint8)
        return Batch(EventTable(columns, self.dictionaries, self._args(taken)), before=before, settled=settled)

    def _signature(self, blob: bytes) -> str:
        try:
            return signature(blob)
        except Malformed:
            self.findings.count("bad_inputs")
            return "{}"

    def _take_tracks(self, taken: dict[str, Any]) -> None:
        tracks = self._shared_tracks
        self._processes.extend([tracks.process(f"device {n}" if gpu else n) for gpu, n in taken["processes"]])
        self._threads.extend([tracks.thread(self._processes[process], _signed(n)) for process, n in taken["threads"]])
        for thread, name in taken["thread_names"]:
            self.tracks.threads[self._threads[thread]]["name"] = name

    def _place_frames(self, columns: dict[str, Any], frames: Any) -> None:
        nests = columns["cat"] < _NESTING
        if "is_async" in columns:
            nests &= columns["is_async"] == 0
        self._frames.place(columns["thread"], columns["start"], columns["end"], nests, frames, self._floors(frames))

    def _floors(self, frames: Any) -> Any:
        first = [row for row, _ in self._opening]
        floors = [self._floor(space) for _, space in self._opening]
        self._opening.clear()
        return np.array(floors, dtype=np.int64)[np.searchsorted(first, frames, "right") - 1] if len(frames) else frames

    def _args(self, taken: dict[str, Any]) -> dict[tuple[str, str], ArgColumn]:
        args = self._arguments.columns(*taken["args"])
        for key, name in _FLAGS:
            rows = taken[key]
            if len(rows):
                args[name, "json"] = ArgColumn("json", rows, np.zeros(len(rows), dtype=np.int32), self._true)
        for name in LISTS:
            rows, values = taken[name]
            if len(rows):
                args[name, "ints"] = ArgColumn("ints", rows, values)
        return args

    def _lose(self, reason: str, count: int) -> None:
        self._chunks.damage.lose(reason, max(1, count))

    def _take_damage(self) -> None:
        self.findings.lost |= self._chunks.damage.lost
        self.findings.truncated = self._chunks.damage.truncated

    def _conclude(self) -> None:
        for reason, count in self._reader.lost.items():
            self._lose(reason, count)
        if missing := sum(stream.missing for stream in self._streams.values()):
            self._lose("missing_chunks", missing)
        self._take_damage()
        for anomaly, count in self._reader.counted.items():
            self.findings.count(anomaly, count)
        self.findings.count("too_many_open", self._frames.forgotten)
        self.findings.count("unmatched_end", self._reader.unmatched_ends)
        self.findings.count("bad_arguments", self._arguments.bad)
        self.findings.warnings += [
            f"the wall clock was stepped by {step / 1e9:+.3f} s while this was recorded; its times go on as before"
            for step in self._steps
        ]


def _signed(number: int) -> int:
    """A tid or a stream; no stream in particular is -1."""
    return number - (1 << 64) if number >> 63 else number
