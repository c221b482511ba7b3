"""Chrome begin/end streams by the rules of torch's legacy autograd profiler: the dialect `torch-legacy`.

The plain import loses nothing; this one reads as torch.autograd.profiler did
before Kineto. Per thread and in time order:

- An event is open from its begin (B) to its end (E). The two find each other by
  handle (`args.handle` or `id`, with `args.node_id`) where they have one; else an
  end closes the innermost event of its thread with its name, else the latest one
  with its name on any thread of its process.
- A begin that follows a begin of the same name, with nothing in between, is the
  inner half of an operator and its wrapper: it is dropped, with its end.
- The utility operators that torch leaves out are dropped, and do not count as
  something in between.
- An event that ends on another thread than it began is asynchronous: it is a row
  of the thread it began on and nests in nothing.
- A `[memory]` instant adds its bytes to every event that is open on its thread
  (arguments `cpu_memory_usage` and `cuda_memory_usage`), and is a row itself.
- An event that never ends is dropped.
- A remote event (`args.is_remote`), and one of another node (`args.node_id`) than its thread, is a row of a thread
  of its own, as torch nests per node and thread. It has the name that torch exports it with.

Complete events (X) are a begin and an end with a handle of their own.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from profd import limits
from profd.decode import legacy_records as records
from profd.decode.batch import Batch, Decoder
from profd.decode.chrome import base_ns_of
from profd.decode.legacy_rows import Row, Rows
from profd.decode.shared import SharedTracks
from profd.errors import Exhausted
from profd.events import Dictionary, Kind, Tracks

DROPPED: Final = frozenset(
    {
        "profiler::_record_function_enter",
        "profiler::_record_function_exit",
        "aten::is_leaf",
        "aten::output_nr",
        "aten::_version",
    }
)
MEMORY: Final = "[memory]"
_PHASES: Final = frozenset("BEXiI")
_END: Final = 1  # of the places of a record in time: an X ends before what begins at its end


@dataclass(slots=True)
class _Record:
    """One record of the stream. `handle` is None where it has none."""

    phase: str  # B, E or i
    time: int
    name: str
    process: int
    thread: int
    handle: Any
    node: Any
    category: str
    args: dict[str, Any]

    @property
    def key(self) -> Any:
        return self.process, self.handle, self.node


@dataclass(slots=True)
class _Open:
    """An event that has begun; allocated so far on its thread when it did."""

    begin: _Record
    thread: _Thread
    cpu: int
    device: int
    dropped: bool
    closed: bool = False


@dataclass(slots=True)
class _Thread:
    """The events of a thread so far."""

    before: _Record | None = None
    cpu: int = 0
    device: int = 0


class LegacyDecoder(Decoder):
    """Decodes one file, plain or gzip. Memory: all of it, which is limited."""

    def __init__(
        self,
        file: BinaryIO,
        size: int,
        dictionaries: dict[str, Dictionary] | None = None,
        tracks: Tracks | None = None,
    ) -> None:
        super().__init__(file, dictionaries, tracks)
        self._shared = SharedTracks(self.tracks)
        self._rows = Rows(self.dictionaries)
        self._threads: dict[int, _Thread] = {}
        self._by_handle: dict[Any, _Open] = {}
        # By thread, thread and name, process and name: the events that have no handle, the latest last.
        self._without_handle: dict[tuple[Any, ...], list[_Open]] = {}

    def batches(self) -> Generator[Batch]:
        """Yield one batch, or none. Raises BadTrace if nothing is readable, Exhausted if it is too large."""
        text = records.read(self._file)
        if text.problem:
            self.findings.truncated = f"{text.problem}; {len(text.records)} records before it are kept"
            self.findings.lose("truncated")
        self.findings.top_level = records.plain(text.members)
        self.findings.lose("malformed", sum(not isinstance(record, dict) for record in text.records))
        for record in self._in_time_order(text.records, base_ns_of(text.members.get("baseTimeNanoseconds"))):
            self._take(record)
        self.findings.lose("unmatched_begin", self._still_open())
        if not self._rows.rows:
            return
        batch = self._rows.batch()
        self.findings.counted |= self._rows.counted
        yield batch

    def _in_time_order(self, given: list[Any], base_ns: int) -> list[_Record]:
        placed: list[tuple[int, int, int, int, _Record]] = []
        for place, raw, args in records.members(given):
            phase = raw.get("ph")
            if phase == "M":
                self._name_track(raw, args)
                continue
            if phase not in _PHASES:
                self.findings.lose("unknown_phase")
                continue
            time = records.nanoseconds(raw.get("ts"), base_ns)
            if time is None:
                self.findings.lose("bad_time")
                continue
            record = self._record(raw, args, time)
            if phase == "X":
                lasting = records.nanoseconds(raw.get("dur", 0), 0)
                if lasting is None:
                    self.findings.lose("bad_time")
                    continue
                # Nothing else has this handle.
                record.phase, record.handle = "B", ("X", place)
                end = self._record(raw, {}, time + max(0, lasting))
                end.phase, end.handle, end.node = "E", record.handle, record.node
                rank = (end.time, 0, -time) if lasting > 0 else (time, 1, place)
                placed.append((*rank, _END, end))
            placed.append((time, 1, place, 0, record))
        placed.sort(key=lambda entry: entry[:4])
        return [entry[4] for entry in placed]

    def _record(self, raw: dict[str, Any], args: dict[str, Any], time: int) -> _Record:
        process, thread = self._place(raw)
        handle = args.get("handle", raw.get("id"))
        return _Record(
            str(raw["ph"]),
            time,
            records.text_of(raw.get("name")),
            process,
            thread,
            None if handle is None else records.identified(handle),
            records.identified(args.get("node_id")),
            records.text_of(raw.get("cat")),
            {key: value for key, value in args.items() if key != "handle"},
        )

    def _name_track(self, raw: dict[str, Any], args: dict[str, Any]) -> None:
        name = args.get("name")
        if raw.get("name") not in ("process_name", "thread_name") or not isinstance(name, str):
            return
        process, thread = self._place(raw)
        track = self.tracks.processes[process] if raw["name"] == "process_name" else self.tracks.threads[thread]
        track["name"] = records.text_of(name)

    def _place(self, raw: dict[str, Any]) -> tuple[int, int]:
        self._check_room()
        process = self._shared.process(records.identified(raw.get("pid")))
        return process, self._shared.thread(process, records.identified(raw.get("tid")))

    def _check_room(self) -> None:
        if len(self.tracks.threads) >= limits.TRACKS_MAX:
            raise Exhausted(f"The stream names more than {limits.TRACKS_MAX} threads.")

    def _take(self, record: _Record) -> None:
        if record.phase == "B":
            self._begin(record)
        elif record.phase == "E":
            self._end(record)
        else:
            self._mark(record)

    def _thread(self, number: int) -> _Thread:
        return self._threads.setdefault(number, _Thread())

    def _begin(self, record: _Record) -> None:
        thread = self._thread(record.thread)
        before = thread.before
        utility = record.name in DROPPED
        wrapped = (
            before is not None
            and before.phase == "B"
            and (before.name, before.node) == (record.name, record.node)
            and not utility
        )
        if utility or wrapped:
            self.findings.count("utility_op" if utility else "duplicate_wrapper")
        else:
            thread.before = record
        opened = _Open(record, thread, thread.cpu, thread.device, utility or wrapped)
        if record.handle is None:
            place = record.thread
            for key in ((place,), (place, record.name), (record.process, record.name, "process")):
                self._without_handle.setdefault(key, []).append(opened)
        else:
            before_it = self._by_handle.get(record.key)
            self.findings.lose("unmatched_begin", int(before_it is not None and not before_it.dropped))
            self._by_handle[record.key] = opened

    def _end(self, record: _Record) -> None:
        opened = self._by_handle.pop(record.key, None) if record.handle is not None else self._innermost(record)
        if opened is None:
            self.findings.lose("unmatched_end")
            return
        if opened.dropped:
            return
        begin, thread = opened.begin, opened.thread
        thread.before = record  # torch puts the end on the thread of the begin, too
        memory = {"cpu_memory_usage": thread.cpu - opened.cpu, "cuda_memory_usage": thread.device - opened.device}
        args = begin.args | {key: value for key, value in memory.items() if value}
        if record.time < begin.time:
            self.findings.count("end_before_start")
        remote = begin.args.get("is_remote") is True or record.args.get("is_remote") is True
        self._rows.add(
            Row(
                Kind.CPU_OP,
                begin.name,
                begin.category,
                begin.time,
                max(begin.time, record.time),
                begin.process,
                self._track(begin, remote),
                args,
                asynchronous=begin.thread != record.thread,
            )
        )

    def _track(self, begin: _Record, remote: bool) -> int:
        """The thread track of an event: its thread's, or one for its thread on its node."""
        node = begin.node
        if isinstance(node, bool) or not isinstance(node, int) or node < 0:
            return begin.thread
        own = self.tracks.threads[begin.thread]
        if not remote and own.setdefault("node", node) == node:
            return begin.thread
        self._check_room()
        number = self._shared.thread(begin.process, f"node_id:{node}, thread_id:{own['id']}")
        self.tracks.threads[number]["node"] = node
        return number

    def _innermost(self, record: _Record) -> _Open | None:
        """The event without a handle that an end without one closes."""
        if not record.name:
            return self._latest((record.thread,))
        return self._latest((record.thread, record.name)) or self._latest((record.process, record.name, "process"))

    def _latest(self, key: tuple[Any, ...]) -> _Open | None:
        """Close the latest open event of those that were put down under a key."""
        events = self._without_handle.get(key, [])
        while events:
            found = events.pop()
            if not found.closed:
                found.closed = True
                return found
        return None

    def _mark(self, record: _Record) -> None:
        """An instant: of an allocation, or any other."""
        thread = self._thread(record.thread)
        thread.before = record
        size = record.args.get("Bytes")
        if record.name == MEMORY and isinstance(size, int) and abs(size) < 1 << 62:
            if record.args.get("Device Type", 0) == 0:
                thread.cpu += size
            else:
                thread.device += size
        kind = Kind.MEMORY if record.name == MEMORY else Kind.INSTANT
        at = record.time
        self._rows.add(Row(kind, record.name, record.category, at, at, record.process, record.thread, record.args))

    def _still_open(self) -> int:
        begun = [event for key, events in self._without_handle.items() if len(key) == 1 for event in events]
        return sum(not event.dropped and not event.closed for event in (*self._by_handle.values(), *begun))
