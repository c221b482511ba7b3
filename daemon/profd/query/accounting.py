"""Where the time of a window went, on each thread: all of it, by what is known of it.

Two answers that each add up to the window. By what was recorded: in operators and calls into a device's library, in
Python calls outside of these, in functions that samples saw outside of both, in ranges alone, and nothing. By what
the kernel counted (`model/run_times.py`): on a CPU, ready and waiting for one, off the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

from profd.events import NO_END, EventTable, Kind, Tracks
from profd.events.table import Array
from profd.model.run_times import RunTimes, ThreadTimes, of_profd, python_name
from profd.query import rules
from profd.query.covered import Covered
from profd.segments.meta import TraceMeta
from profd.segments.reader import TraceReader

COVER_COLUMNS: Final = ("start", "end", "kind", "thread", "device_type", *rules.ASYNC_COLUMNS)
THREADS_MAX: Final = 64  # in the answer, the busiest first
OUTSIDE_SHARE: Final = 0.2  # of a window: less is not worth another capture
LOOKS_MIN: Final = 10  # at what a thread waits for, that say something of it
SHORT_NS: Final = 50_000_000
"""The kernel adds to a thread that runs at its ticks, 1 to 10 ms apart: of a shorter window its counts say little."""

# What a row says of its thread, what says most first. What is in none of these is a range.
KNOWN: Final = (
    (Kind.CPU_OP, Kind.RUNTIME, Kind.DRIVER, Kind.SYNC, Kind.OVERHEAD),
    (Kind.PYTHON_FUNCTION,),
    (Kind.SAMPLE,),
)
_LAYERS: Final = len(KNOWN) + 1
_INT64_MAX: Final = int(np.iinfo(np.int64).max)


class Coverage:
    """How long each thread was within what: fed with tables in start order."""

    def __init__(self, meta: TraceMeta) -> None:
        self._window = window_of(meta)
        self._beside = beside_of(meta.tracks)
        self._layers = [Covered(0 if self._window is None else self._window[0]) for _ in range(_LAYERS)]

    def add(self, table: EventTable) -> None:
        """Take in the next stretch of the trace."""
        if self._window is None:
            return
        kinds, thread = table.column("kind"), table.column("thread")
        apart = rules.is_kind(kinds, *rules.NOT_WORK) | rules.is_async(table) | (thread < 0)
        rows = np.flatnonzero(rules.is_cpu(table.column("device_type")) & ~apart)
        if not len(rows):
            return
        first, last = self._window
        end = table.column("end")[rows]
        start = np.clip(table.columns["start"][rows], first, last)
        end = np.clip(np.where(end == NO_END, last, end), start, last)
        thread = thread[rows]
        if len(self._beside):
            thread = np.where(
                thread < len(self._beside), self._beside[np.minimum(thread, len(self._beside) - 1)], thread
            )
        layer = np.full(len(rows), _LAYERS - 1, dtype=np.uint8)
        for number, of_layer in enumerate(KNOWN):
            layer[rules.is_kind(kinds[rows], *of_layer)] = number
        for number, covered in enumerate(self._layers):
            rows = np.flatnonzero(layer <= number)
            covered.add(thread[rows], start[rows], end[rows])

    def by_thread(self) -> Iterator[tuple[int, list[int]]]:
        """The tracks that have something, ascending: ns within each layer and no earlier one, then in none."""
        threads = self._layers[-1].threads
        reached = np.zeros((_LAYERS + 2, len(threads)), dtype=np.int64)
        for number, covered in enumerate(self._layers, start=1):
            reached[number, np.searchsorted(threads, covered.threads)] = covered.spent
        reached[-1] = 0 if self._window is None else min(self._window[1] - self._window[0], _INT64_MAX)
        yield from zip(threads.tolist(), np.maximum(np.diff(reached, axis=0), 0).T.tolist(), strict=True)


def by_thread(thread: Array, rows: Array) -> Iterator[tuple[int, Array]]:
    """Rows of each thread, in order: at once, since a trace may have as many threads as rows."""
    rows = rows[np.argsort(thread[rows], kind="stable")]
    on = thread[rows]
    for part in np.split(rows, np.flatnonzero(on[1:] != on[:-1]) + 1):
        if len(part):
            yield int(thread[part[0]]), part


def window_of(meta: TraceMeta) -> tuple[int, int] | None:
    """First and last ns: as its source told, else of the events."""
    start = meta.start_ns if meta.window_start_ns is None else meta.window_start_ns
    end = meta.end_ns if meta.window_end_ns is None else meta.window_end_ns
    return None if start is None or end is None or end <= start else (start, end)


def beside_of(tracks: Tracks) -> Array:
    """The track of the thread itself for each track of its samples; every other is its own."""
    numbers = {(track.get("process"), str(track.get("id"))): number for number, track in enumerate(tracks.threads)}
    found = np.arange(len(tracks.threads))
    for number, track in enumerate(tracks.threads):
        name = str(track.get("id"))
        if name.startswith("samples of "):
            found[number] = numbers.get((track.get("process"), name.removeprefix("samples of ")), number)
    return found


@dataclass(slots=True)
class ThreadAccount:
    """One thread over the window. Times in ns; those by the kernel are None where they are not known."""

    id: Any
    name: str | None
    operators_ns: int = 0
    calls_ns: int = 0
    sampled_ns: int = 0
    ranges_ns: int = 0
    nothing_ns: int = 0
    cpu_ns: int | None = None
    run_queue_ns: int | None = None
    off_cpu_ns: int | None = None
    gil_ns: int | None = None  # of that: waiting for the GIL, by looks
    lock_ns: int | None = None  # the same of other locks, conditions and queues

    @property
    def recorded_ns(self) -> int:
        """In what happened as it was recorded; samples and ranges say less."""
        return self.operators_ns + self.calls_ns


@dataclass(slots=True)
class Account:
    """The window of a trace. `None`: not known."""

    window_ns: int | None
    threads: list[ThreadAccount] = field(default_factory=list)  # of the program, the busiest first
    leading: int | None = None  # of these, the one with most recorded of its time; else the busiest that samples saw
    more_threads: int = 0  # beyond THREADS_MAX
    ran_threads: int | None = None  # that the kernel did run
    idle_threads: int | None = None  # that it did not
    unseen_threads: int | None = None  # that it was not asked for: they began, or ended, in the window, or are too many
    cpu_ns: int | None = None  # of all threads that it was asked for
    own_threads: int = 0  # that profd has started in the process, and that are in no number above
    own_cpu_ns: int | None = None  # CPU time of these
    cores: int | None = None
    message: str | None = None  # why the kernel's times are missing
    hint: str | None = None  # what would say more of the leading thread


def window_of_trace(trace: TraceReader) -> dict[str, Any]:
    """The question `window`: the `accounting` of the summary alone."""
    coverage = Coverage(trace.meta)
    for table in trace.iterate(COVER_COLUMNS, args=False):
        coverage.add(table)
    return asdict(account(coverage, trace.meta))


def account(coverage: Coverage, meta: TraceMeta) -> Account:
    """An account of a trace's window, from its rows and from the kernel's counts."""
    window = window_of(meta)
    if window is None:
        return Account(None)
    lasted, times = window[1] - window[0], meta.run_times
    message = why_no_times(meta, lasted)
    found, own = _threads(coverage, meta, times if message is None else RunTimes(), lasted)
    found.sort(key=lambda thread: (-(thread.cpu_ns or 0), thread.nothing_ns, str(thread.id)))
    answer = Account(lasted, found[:THREADS_MAX], more_threads=max(0, len(found) - THREADS_MAX), message=message)
    answer.own_threads = len(own)
    if answer.threads:
        leading = max(answer.threads, key=_weight)
        answer.leading, answer.hint = answer.threads.index(leading), _hint(leading, lasted, meta)
    if message is None:
        theirs = [thread for thread in times.threads if not of_profd(thread.name)]
        answer.ran_threads = len(theirs) + times.others
        answer.idle_threads, answer.unseen_threads = times.idle, times.unseen
        answer.cpu_ns = sum(thread.ran_ns for thread in theirs) + times.others_ran_ns
        answer.own_cpu_ns = sum(thread.ran_ns for thread in times.threads if of_profd(thread.name))
        answer.cores = times.cores or None
    return answer


def _weight(thread: ThreadAccount) -> tuple[int, bool, int]:
    """Which thread an answer is about: what the kernel alone saw says nothing of causes."""
    return thread.recorded_ns, thread.sampled_ns > 0, thread.cpu_ns or 0


def why_no_times(meta: TraceMeta, window_ns: int) -> str | None:
    """Why the kernel's counts say nothing of a window of this length; None: they do."""
    times = meta.run_times
    if not meta.capture and not times.lasted_ns:
        return "an imported trace has no run times of its threads"
    if window_ns < SHORT_NS:
        return "the window is too short for the kernel's counts of CPU time, which it keeps by ticks of 1 to 10 ms"
    return None if times.lasted_ns else "the threads' run times are not known: the process ended before they were read"


def _hint(thread: ThreadAccount, lasted: int, meta: TraceMeta) -> str | None:
    """Where much of its time is in no operator and no call, what would record it; None: nothing more to be had."""
    outside = lasted - thread.recorded_ns
    recorded = meta.options.get("stacks") or meta.options.get("modules") or meta.known_traits.samples
    if not meta.capture or recorded or outside < OUTSIDE_SHARE * lasted:
        return None
    share = f"outside operators {100 * outside / lasted:.0f} %: " if thread.operators_ns else ""
    if thread.sampled_ns:
        return f"{share}samples show its Python functions; --stacks records every call (about 0.1 us each)"
    samples = "--samples 100hz (it costs the job nothing) or " if meta.known_traits.samples_beside else ""
    return f"{share}add {samples}--stacks (about 0.1 us a call)"


def _threads(
    coverage: Coverage, meta: TraceMeta, times: RunTimes, lasted: int
) -> tuple[list[ThreadAccount], list[ThreadAccount]]:
    """Threads of the program, and those that profd has started in it."""
    counted = {str(thread.id): thread for thread in times.threads}
    found: tuple[list[ThreadAccount], list[ThreadAccount]] = ([], [])
    for number, spent in coverage.by_thread():
        track = meta.tracks.threads[number] if number < len(meta.tracks.threads) else {}
        kernel = counted.pop(str(track.get("id")), None) or _asleep(track.get("id"), times)
        name = track.get("name") or (kernel_name(kernel, meta) if kernel else None)
        own = of_profd(name) or (kernel is not None and of_profd(kernel.name))
        found[own].append(_thread(track.get("id"), name, spent, kernel, lasted))
    unrecorded = [0] * _LAYERS
    for each in counted.values():
        account_of = _thread(each.id, kernel_name(each, meta), [*unrecorded, lasted], each, lasted)
        found[of_profd(each.name)].append(account_of)
    return found


def kernel_name(thread: ThreadTimes, meta: TraceMeta) -> str:
    """As the process said that Python has it, else as the kernel does, which of most threads has their program's."""
    processes = {str(meta.pid), *(str(process.get("id")) for process in meta.tracks.processes)}
    return meta.run_times.names.get(str(thread.id)) or python_name(thread.name, str(thread.id) in processes)


def _asleep(known: Any, times: RunTimes) -> ThreadTimes | None:
    """Of a thread that did not run at all: what waits for the GIL does, every 5 ms. None: it is not known to be one."""
    if not isinstance(known, int) or not any(first <= known <= last for first, last in times.idle_ids):
        return None
    return ThreadTimes(known, "", times.lasted_ns, 0, 0)


def _thread(known: Any, name: str | None, spent: list[int], kernel: ThreadTimes | None, lasted: int) -> ThreadAccount:
    thread = ThreadAccount(known, name, *spent)
    if kernel is not None and kernel.lasted_ns:
        # The looks are not at the very ends of the window: what they say of their own stretch is said of it.
        scale = lasted / kernel.lasted_ns
        thread.cpu_ns = min(lasted, round(kernel.ran_ns * scale))
        thread.run_queue_ns = min(lasted - thread.cpu_ns, round(kernel.queued_ns * scale))
        thread.off_cpu_ns = lasted - thread.cpu_ns - thread.run_queue_ns
        if not (kernel.ran_ns or kernel.queued_ns):
            thread.gil_ns = 0
        if kernel.looks >= LOOKS_MIN:
            share = lasted / kernel.looks
            thread.lock_ns = min(thread.off_cpu_ns, round(kernel.in_lock * share))
            if kernel.in_gil is not None:
                thread.gil_ns = min(thread.off_cpu_ns - thread.lock_ns, round(kernel.in_gil * share))
    return thread
