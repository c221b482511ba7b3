"""How often a process is sampled where nobody said how often: the samplers of a host take a hundredth of its cores.

Measured with py-spy 0.4 on a core of 2.1 GHz: a sample of one thread takes 0.16 ms of CPU time, of a program with torch
1 ms, each further thread 0.03 ms more; its start takes 50 ms. The real cost of a process is known after its first
recording. docs/decisions/0019-samples-beside-recordings.md.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profd.targets.process import ProcessId

CORES_SHARE: Final = 0.01
HZ_MAX: Final = 100
SHORTEST_SECONDS: Final = 0.5
"""Of a window with samples that nobody asked for: a sampler begins within 0.2 s, more on a busy host."""

START_SECONDS: Final = 0.05  # of CPU time, with a warden 0.08
_SAMPLE_SECONDS: Final = 0.001
_THREAD_SECONDS: Final = 0.00003
_KNOWN_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class Beside:
    """Samples that are not needed, and cost little in a window of so many seconds."""

    hz: int
    window_seconds: float


class Paces:
    """Of one daemon: what its samplers take together."""

    def __init__(self, cores: int = 0) -> None:
        """`cores`: of the host; 0: as many as it has."""
        self._room = CORES_SHARE * (cores or os.cpu_count() or 1)  # seconds of CPU time a second
        self._known: dict[ProcessId, float] = {}  # seconds of CPU time that a sample took

    def hz(self, process: ProcessId, threads: int, together: int = 1) -> int:
        """Samples a second of a process of so many threads, one of so many that are captured together; at least one."""
        most = max(self._room, 0.0) / max(together, 1) / self._of_sample(process, threads)
        return max(1, min(HZ_MAX, int(most)))

    def beside(self, process: ProcessId, threads: int, together: int = 1) -> Beside | None:
        """The same for a process that records much itself, with its sampler's start in the share: a half for each.

        None: not once a second.
        """
        room = max(self._room, 0.0) / 2 / max(together, 1)
        hz = min(HZ_MAX, int(room / self._of_sample(process, threads)))
        return Beside(hz, START_SECONDS / room) if hz else None

    def cores(self, together: int = 1) -> float:
        """Cores of the host that a sampler of one of so many processes may really take: it ends when it has."""
        return max(self._room, 0.0) / max(together, 1)

    @contextlib.contextmanager
    def holding(self, process: ProcessId, threads: int, hz: float) -> Iterator[None]:
        """It is sampled so often meanwhile: others have less room."""
        takes = hz * self._of_sample(process, threads)
        self._room -= takes
        try:
            yield
        finally:
            self._room += takes

    def learn(self, process: ProcessId, sample_seconds: float) -> None:
        """Note the cost of a sample of it."""
        self._known.pop(process, None)
        while len(self._known) >= _KNOWN_MAX:
            self._known.pop(next(iter(self._known)))
        self._known[process] = sample_seconds

    def _of_sample(self, process: ProcessId, threads: int) -> float:
        return self._known.get(process, _SAMPLE_SECONDS + _THREAD_SECONDS * threads)
