"""py-spy's samples to EventTable batches. The raw format `pyspy`.

A file is one JSON array of begin and end records per thread, as `py-spy record
--format chrometrace --threads --function` writes it, and the line of
`decode/anchor.py`. py-spy merges neighbouring samples: a record says that a
frame was first seen, or no longer seen, at that time. So each row here is a
frame over a stretch of samples, with `weight` = how many samples that stretch
stands for. Times are exact to one sample.

Rows are named as torch.profiler names Python functions, `file.py(first line):
function`; native frames `function (library.so)`.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

import msgspec
import numpy as np

from profd import limits
from profd.decode import anchor
from profd.decode.batch import Batch, Decoder
from profd.decode.shared import SharedTracks
from profd.errors import BadTrace, Exhausted
from profd.events import COLUMNS, NO_END, DeviceType, Dictionary, EventTable, Kind, Tracks
from profd.model.decodable import decodable
from profd.model.text import encodable

SLICE_BYTES: Final = 4 << 20
BATCH_ROWS: Final = 1 << 16
STACK_DEPTH_MAX: Final = 16_384  # py-spy's own limit is 4096 Python frames
NAME_CHARACTERS: Final = 4096
_ID_MAX: Final = (1 << 63) - 1
_TIME_US_MAX: Final = 1 << 52  # 142 years; no sum with a Unix time overflows

# Between two records. Inside a JSON string a quote is escaped, and a quote that ends one is
# followed by a comma, a colon or a bracket: so this text is nowhere else.
_BETWEEN: Final = b'},{"args":'
_THREAD: Final = re.compile(r"^thread \((0x[0-9A-Fa-f]{1,15}|\d{1,18})\)(?:: (.*))?$", re.DOTALL)
_LIBRARY_FOLDERS: Final = re.compile(r"^.*/(?:site-packages|dist-packages|lib/(?:python|pypy)3\.\d+t?)/")
_MALFORMED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_COLUMNS: Final = ("name", "kind", "cat", "phase", "start", "end", "process", "thread", "device_type", "weight")


class _Args(msgspec.Struct):
    filename: str = ""
    line: int | None = None


@decodable
class _Record(msgspec.Struct):
    name: str
    ph: str
    pid: int
    tid: int
    ts: int
    args: _Args = msgspec.field(default_factory=_Args)


@dataclass(slots=True)
class _Frame:
    """A frame that is on the stack of its thread; `code` -1 for the one that only names the thread."""

    text: tuple[str, str, int | None]
    code: int
    track: int
    start: int
    depth: int


@dataclass(slots=True)
class _Thread:
    """One thread of the file. `closing` are frames that ended together at `closed`, innermost first.

    They become rows together, outermost first: of rows with equal times the
    first is taken to enclose the others.
    """

    process: int
    track: int = -1
    beside: bool = False  # another recording has this thread
    id: str = ""
    stack: list[_Frame] = field(default_factory=list)
    closing: list[_Frame] = field(default_factory=list)
    closed: int = 0


class SampleDecoder(Decoder):
    """Decodes one seekable file of `size` bytes.

    Adds to the given dictionaries and tracks. Memory: a slice, and the frames that are open.
    """

    def __init__(
        self,
        file: BinaryIO,
        size: int,
        dictionaries: dict[str, Dictionary] | None = None,
        tracks: Tracks | None = None,
        slice_bytes: int = SLICE_BYTES,
    ) -> None:
        super().__init__(file, dictionaries, tracks)
        for name in ("name", "cat"):
            self.dictionaries.setdefault(name, Dictionary())
        self._shared = SharedTracks(self.tracks)
        # Threads that another recording has, and that have samples on a track beside their own: a sample is exact
        # to its period only, and would take the time of operators whose edges it reaches over.
        self._recorded = {(each["process"], each["id"]): number for number, each in enumerate(self.tracks.threads)}
        self.position = 0
        self._slice_bytes = slice_bytes
        tail = anchor.read(file, size)
        self._anchor, self._last_us, self._text_bytes = tail.anchor, tail.last_us, tail.text_bytes
        self._same_us = self._anchor.last_of_same_us(self._last_us)
        self._category = self.dictionaries["cat"].code(self._anchor.reader)
        self._names: dict[tuple[str, str, int | None], int] = {}
        self._name_bytes = 0
        self._threads: dict[tuple[int, int], _Thread] = {}
        self._processes: dict[int, int] = {}
        self._zero_ns: int | None = None  # known with the first record
        self._rows: list[tuple[int, int, int, int, int, int]] = []  # name, start, end, thread, process, depth
        self._records = msgspec.json.Decoder(list[_Record])

    def batches(self) -> Generator[Batch]:
        """Yield batches of about BATCH_ROWS. Raises BadTrace if it is no array of records at all."""
        for text in self._slices():
            for record in self._decoded(text):
                self._take(record)
            if len(self._rows) >= BATCH_ROWS:
                yield self._batch()
        self._finish()
        if self._rows:
            yield self._batch()

    def _slices(self) -> Iterator[bytes]:
        """Runs of whole records, separated by commas, without the brackets of the array."""
        rest = self._read().lstrip()
        if not rest.startswith(b"["):
            raise BadTrace("These are no samples of py-spy: the file does not begin with '['.", 0)
        rest = rest[1:]
        while piece := self._read():
            rest += piece
            cut = rest.rfind(_BETWEEN)
            if cut >= 0:
                yield rest[: cut + 1]
                rest = rest[cut + 2 :]
            if len(rest) > limits.EVENT_BYTES_MAX:
                self._truncated(f"the record before byte {self.position} is too large", "too_large")
                return
        rest = rest.rstrip()
        if rest.endswith(b"]"):
            yield rest[:-1]
            return
        cut = rest.rfind(_BETWEEN)
        if cut >= 0:
            yield rest[: cut + 1]
        self._truncated(f"the array of samples is cut off at byte {self.position}", "truncated")

    def _read(self) -> bytes:
        piece = self._file.read(min(self._slice_bytes, self._text_bytes - self.position))
        self.position += len(piece)
        return piece

    def _truncated(self, what: str, reason: str) -> None:
        self.findings.truncated = f"{what}; the samples before it are kept"
        self.findings.lose(reason)

    def _decoded(self, text: bytes) -> Iterator[_Record]:
        """The records of a run; one that is malformed costs only itself."""
        try:
            yield from self._records.decode(b"[" + text + b"]")
            return
        except _MALFORMED:
            pass
        pieces = text.split(_BETWEEN)
        for number, piece in enumerate(pieces):
            whole = (_BETWEEN[2:] if number else b"") + piece + (b"}" if number < len(pieces) - 1 else b"")
            try:
                yield from self._records.decode(b"[" + whole + b"]")
            except _MALFORMED:
                self.findings.lose("malformed")

    def _take(self, record: _Record) -> None:
        if not 0 <= record.ts <= _TIME_US_MAX:
            self.findings.lose("bad_time")
            return
        if not (0 <= record.pid <= _ID_MAX and 0 <= record.tid <= _ID_MAX):
            self.findings.lose("bad_id")
            return
        if self._same_us is not None and record.ts > self._same_us:
            return  # what is open then was seen until then
        if self._zero_ns is None:
            self._zero_ns = self._anchor.zero_ns(record.ts, self._last_us)
        thread = self._thread(record)
        time = self._zero_ns + record.ts * 1000
        if thread.closing and (record.ph != "E" or time != thread.closed):
            self._close(thread)
        if record.ph == "B":
            self._begin(thread, record, time)
        elif record.ph == "E":
            self._end(thread, record, time)
        else:
            self.findings.lose("unknown_phase")

    def _thread(self, record: _Record) -> _Thread:
        key = (record.pid, record.tid)
        thread = self._threads.get(key)
        if thread is None:
            if len(self._threads) >= limits.TRACKS_MAX:
                raise Exhausted(f"The samples name more than {limits.TRACKS_MAX} threads.")
            thread = self._threads[key] = _Thread(self._process(record.pid))
        return thread

    def _process(self, pid: int) -> int:
        track = self._processes.get(pid)
        if track is None:
            track = self._processes[pid] = self._shared.process(pid)
            if pid == self._anchor.pid:
                self.tracks.processes[track].setdefault("name", self._anchor.command)
        return track

    def _begin(self, thread: _Thread, record: _Record, time: int) -> None:
        if len(thread.stack) >= STACK_DEPTH_MAX:
            self.findings.lose("too_deep")
            return
        text = (record.name, record.args.filename, record.args.line)
        named = _THREAD.match(record.name) if not record.args.filename and not thread.stack else None
        if named:
            self._new_track(thread, named[1], named[2] or "")
            thread.stack.append(_Frame(text, -1, thread.track, time, 0))
            return
        if thread.track < 0:
            self._new_track(thread, str(record.tid), "")
        thread.stack.append(_Frame(text, self._name(text), thread.track, time, len(thread.stack)))

    def _new_track(self, thread: _Thread, identity: str, name: str) -> None:
        """A track per thread; an interpreter thread whose id is used again becomes another one."""
        if thread.track >= 0 and thread.id == identity:
            if name:
                self.tracks.threads[thread.track]["name"] = _track_name(name, thread.beside)
            return
        if len(self.tracks.threads) >= limits.TRACKS_MAX:
            raise Exhausted(f"The samples name more than {limits.TRACKS_MAX} threads.")
        number = int(identity, 16) if identity.startswith("0x") else int(identity)
        recorded = self._recorded.get((thread.process, number))
        beside = recorded is not None
        if recorded is not None and name:  # Python's says more than the kernel's, which is the program's for most
            self.findings.thread_names[recorded] = _storable(name)
        thread.track, thread.id, thread.beside = len(self.tracks.threads), identity, beside
        known = {"name": _track_name(name, beside)} if name else {}
        self.tracks.threads.append(
            {"id": f"samples of {number}" if beside else number, "process": thread.process, **known}
        )

    def _name(self, text: tuple[str, str, int | None]) -> int:
        code = self._names.get(text)
        if code is None:
            name = _storable(_named(*text))
            self._name_bytes += len(name) + sum(len(part) for part in text[:2])
            if self._name_bytes > limits.DICTIONARY_BYTES_MAX:
                raise Exhausted(
                    f"The names in the samples exceed {limits.DICTIONARY_BYTES_MAX >> 20} MiB. "
                    "Capture a shorter window."
                )
            code = self._names[text] = self.dictionaries["name"].code(name)
        return code

    def _end(self, thread: _Thread, record: _Record, time: int) -> None:
        if not thread.stack or thread.stack[-1].text[:2] != (record.name, record.args.filename):
            self.findings.count("unmatched_end")
            return
        thread.closing.append(thread.stack.pop())
        thread.closed = time

    def _close(self, thread: _Thread) -> None:
        """Turn the frames that ended together into rows."""
        end = thread.closed
        ended = self._anchor.ended.get(thread.id)
        for frame in reversed(thread.closing):
            if frame.code < 0:
                continue
            # py-spy leaves the frames of a thread that has ended open until the recording ends.
            last = max(frame.start, min(end, ended)) if ended is not None else end
            if last < frame.start:
                self.findings.count("end_before_start")
            self._rows.append((frame.code, frame.start, last, frame.track, thread.process, frame.depth))
        thread.closing.clear()

    def _finish(self) -> None:
        """What is open when the file ends has no known end, but where the file goes on with what is nobody's to see."""
        until = NO_END if self._same_us is None else (self._zero_ns or 0) + self._same_us * 1000
        for thread in self._threads.values():
            if thread.closing:
                self._close(thread)
            for frame in thread.stack:
                if frame.code >= 0:
                    self._rows.append((frame.code, frame.start, until, frame.track, thread.process, frame.depth))
            thread.stack.clear()
        if self._zero_ns is None and not self.findings.truncated and not self.findings.lost:
            why = "no thread ran Python code in the window" if self._same_us is None else "it ended too soon"
            self.findings.warnings.append(f"No stack was sampled: {why}.")

    def _batch(self) -> Batch:
        rows = np.array(self._rows, dtype=np.int64).reshape(-1, 6)
        self._rows = []
        # They came as they ended; viewers take what stands first to enclose what begins with it.
        last = np.where(rows[:, 2] == NO_END, np.iinfo(np.int64).max, rows[:, 2])
        name, start, end, thread, process, _ = rows[np.lexsort((rows[:, 5], -last, rows[:, 1]))].T
        count = len(rows)
        lasted = np.where(end == NO_END, 0, np.maximum(end - np.where(end == NO_END, 0, start), 0))
        interval = max(1, self._anchor.interval_ns)
        values: dict[str, Any] = {
            "name": name,
            "kind": np.full(count, Kind.SAMPLE),
            "cat": np.full(count, self._category),
            # Not the pairs that they were: of pairs that begin together the file order would be the nesting.
            "phase": np.where(end == NO_END, ord("B"), ord("X")),
            "start": start,
            "end": end,
            "process": process,
            "thread": thread,
            "device_type": np.full(count, DeviceType.CPU),
            "weight": np.maximum(1, (lasted + interval // 2) // interval),
        }
        columns = {key: np.ascontiguousarray(values[key], dtype=COLUMNS[key].dtype) for key in _COLUMNS}
        return Batch(EventTable(columns, self.dictionaries))


def _named(function: str, filename: str, line: int | None) -> str:
    """As torch.profiler does: packages without the folder they are installed in."""
    if filename.endswith(".so") or ".so." in filename:
        return f"{function} ({filename.rpartition('/')[2]})"
    if not filename:
        return function
    return f"{_LIBRARY_FOLDERS.sub('', filename)}({line or 0}): {function}"


def _track_name(name: str, beside: bool) -> str:
    return _storable(name) + (" (samples)" if beside else "")


def _storable(text: str) -> str:
    """Bounded, and free of surrogates, which cannot be stored as UTF-8."""
    return encodable(text[:NAME_CHARACTERS])
