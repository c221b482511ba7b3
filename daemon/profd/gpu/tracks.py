"""Readings of the GPUs that a process uses, as counter tracks of its trace: Chrome JSON, named as the gauges are.

Times are CLOCK_REALTIME as of the first reading: a wall clock that is stepped
meanwhile moves no sample, as it moves no event.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from profd.gpu.readings import GPM_VALUES, THROTTLE_REASONS, VALUES, Gpu, Reading
from profd.limits import GPU_SAMPLES_MAX

CATEGORY: Final = "gpu_metric"
HEADER_KEY: Final = "profd_gpu_metrics"
_LEFT_OUT: Final = frozenset({"memory_total_bytes"})  # it never changes


class Tracks:
    """The samples of one recording: at most GPU_SAMPLES_MAX readings, then every second one, and so on.

    `gpus`: device nodes (/dev/nvidia0 is 0) that the process holds; empty: not known. Where that, or the node of a
    GPU, is not known, then those that the driver says it computes on, else all.
    """

    def __init__(self, pid: int, gpus: Iterable[int], interval_ns: int, realtime_offset_ns: int) -> None:
        self._pid = pid
        self._nodes = frozenset(gpus)
        self._offset_ns = realtime_offset_ns
        self._kept: list[tuple[Gpu, ...]] = []
        self._seen = 0
        self._every = 1
        self.interval_ns = interval_ns
        self.driver = ""
        self.absent = ""  # why there is nothing, as a sentence

    def add(self, reading: Reading) -> None:
        """One more, later than all before it."""
        self.driver, self.absent = reading.driver or self.driver, reading.absent
        if reading.absent:
            return
        if self._seen % self._every == 0:
            self._kept.append(tuple(self._without_others(gpu) for gpu in self._own(reading.gpus)))
        self._seen += 1
        if len(self._kept) == GPU_SAMPLES_MAX:
            del self._kept[1::2]
            self._every *= 2

    def chrome(self, start_ns: int | None, end_ns: int | None) -> Iterator[bytes] | None:
        """The samples within these Unix times as a trace file, in pieces of some kilobytes; None where there are none.

        As a whole ten minutes of eight GPUs would take 0.5 GB.
        """
        lowest = start_ns if start_ns is not None else 0
        highest = end_ns if end_ns is not None else 1 << 62
        chosen = [
            (self._offset_ns + gpu.taken_ns, gpu)
            for gpus in self._kept
            for gpu in gpus
            if lowest <= self._offset_ns + gpu.taken_ns <= highest
        ]
        if not chosen:
            return None
        head = {
            "interval_ns": self.interval_ns * self._every,
            "clock_error_ns": max(gpu.error_ns for _, gpu in chosen),
            "driver": self.driver,
        }
        return self._pieces(head, chosen)

    def _pieces(self, head: dict[str, Any], chosen: Iterable[tuple[int, Gpu]]) -> Iterator[bytes]:
        before = f'{{"{HEADER_KEY}": {json.dumps(head)}, "traceEvents": [\n'
        for time_ns, gpu in chosen:
            events = ",\n".join(_event(time_ns, *event) for event in _counters(gpu, self._pid))
            if events:
                yield (before + events).encode()
                before = ",\n"
        yield (before if before != ",\n" else "").encode() + b"\n]}\n"

    def _without_others(self, gpu: Gpu) -> Gpu:
        """It, holding nothing of other processes: there may be hundreds, and readings are kept by the thousand."""
        if gpu.processes.keys() <= {self._pid}:
            return gpu
        used = gpu.processes.get(self._pid)
        return replace(gpu, processes={} if used is None else {self._pid: used})

    def _own(self, gpus: Iterable[Gpu]) -> list[Gpu]:
        found = list(gpus)
        own = [gpu for gpu in found if gpu.minor in self._nodes]
        if self._nodes and self._nodes <= {gpu.minor for gpu in own}:
            return own
        unknown = [gpu for gpu in found if gpu.minor is None] if self._nodes else found
        computing = {gpu.index for gpu in unknown if self._pid in gpu.processes}
        return own + ([gpu for gpu in unknown if gpu.index in computing] if computing else unknown)


def track_of(gpu: Gpu) -> str:
    """The device of its counters. Not `device 0`: kernels are of devices as CUDA numbers what the process may see."""
    return f"GPU {gpu.index}" if gpu.mig is None else f"GPU {gpu.index} MIG {gpu.mig}"


def _counters(gpu: Gpu, pid: int) -> Iterator[tuple[str, str, dict[str, float]]]:
    """(track, name, series) of everything that the driver has said."""
    track = track_of(gpu)
    for name in (*VALUES, *GPM_VALUES):
        value = gpu.value(name)
        if value is not None and name not in _LEFT_OUT:
            yield track, name, {"value": value}
    if gpu.throttled is not None:
        yield track, "throttled", {reason: int(reason in gpu.throttled) for reason in THROTTLE_REASONS.values()}
    used = gpu.processes.get(pid)
    if used is not None:
        yield track, "process_memory_used_bytes", {"value": used}


def _event(time_ns: int, track: str, name: str, series: dict[str, Any]) -> str:
    microseconds = f"{time_ns // 1000}.{time_ns % 1000:03d}"
    head = f'"ph": "C", "cat": "{CATEGORY}", "name": "{name}", "pid": "{track}"'
    return f'{{{head}, "ts": {microseconds}, "args": {json.dumps(series)}}}'
