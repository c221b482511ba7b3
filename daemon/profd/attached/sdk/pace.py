"""How often a process is sampled where nobody said how often: samplers of a user take a hundredth of the host's cores,
and where several users have such samplers, each a part of that.

Measured with py-spy 0.4 on a core of 2.1 GHz: a sample of one thread takes 0.16 ms of CPU time, of a program with torch
1 ms, each further thread 0.03 ms more; its start takes 50 ms. With our own reader 0.05 ms, and 0.002 ms more; its start
5 ms. The real cost of a sample of a process is known after its first recording.
docs/decisions/0019-samples-beside-recordings.md, 0047-stacks.md.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profd.model.newest import Newest
from profd.sources.pyspy.recording import Reader
from profd.targets.process import ProcessId

CORES_SHARE: Final = 0.01
HZ_MAX: Final = 100
SHORTEST_SECONDS: Final = 0.5
"""Of a window with samples that nobody asked for: a sampler begins within 0.2 s, more on a busy host."""

START_SECONDS: Final = 0.05  # of CPU time, with a warden 0.08
_SAMPLE_SECONDS: Final = 0.001
_THREAD_SECONDS: Final = 0.00003
_OWN_START_SECONDS: Final = 0.01  # of our own reader
_OWN_SAMPLE_SECONDS: Final = 0.0001
_OWN_THREAD_SECONDS: Final = 0.000005
_OWN_VERSIONS: Final = ("3.11.", "3.12.", "3.13.")  # of CPython: of most builds it knows the layout
_OWN_PART: Final = 0.5  # of its room: still ten times as many samples as py-spy has in all of it
_KNOWN_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class Beside:
    """Samples that are not needed, and cost little in a window of so many seconds."""

    hz: int
    window_seconds: float


class Paces:
    """Of one daemon: what its samplers take, by the user whose processes they look at.

    A sampler keeps its rate while it runs, so the second of two users has a half, whatever the first one has: all users
    together take 1 + 1/2 + 1/3 ... hundredths at most.
    """

    def __init__(self, cores: int = 0) -> None:
        """`cores`: of the host; 0: as many as it has."""
        self._share = CORES_SHARE * (cores or os.cpu_count() or 1)  # seconds of CPU time a second
        # uid -> its captures, and the same of each of their samplers
        self._held: defaultdict[int, list[tuple[str, float]]] = defaultdict(list)
        self._known = Newest[ProcessId, float](_KNOWN_MAX)  # seconds of CPU time that a sample took
        self._own = Newest[ProcessId, bool](_KNOWN_MAX)  # does our own reader take them, as far as is known?

    def hz(self, uid: int, process: ProcessId, threads: int, together: int = 1, capture: str = "") -> int:
        """Samples a second of a process of so many threads, one of so many that are captured together; at least one."""
        part = _OWN_PART if self._own.get(process, False) else 1.0
        most = part * self.cores(uid, together, capture) / self._of_sample(process, threads)
        return max(1, min(HZ_MAX, int(most)))

    def beside(self, uid: int, process: ProcessId, threads: int, together: int = 1, capture: str = "") -> Beside | None:
        """The same for a process that records much itself, with its sampler's start in the share: a half for each.

        None: not once a second.
        """
        room = self.cores(uid, together, capture) / 2
        hz = min(HZ_MAX, int(room / self._of_sample(process, threads)))
        start = _OWN_START_SECONDS if self._own.get(process, False) else START_SECONDS
        return Beside(hz, max(start / room, SHORTEST_SECONDS)) if hz else None

    def cores(self, uid: int, together: int = 1, capture: str = "") -> float:
        """Cores of the host that a sampler of one of so many processes may really take: it ends when it has.

        The others of its capture have their parts of the same room; other captures have left it.
        """
        users = len(self._held.keys() | {uid})
        others = sum(takes for of, takes in self._held.get(uid, ()) if not capture or of != capture)
        return max(self._share / users - others, 0.0) / max(together, 1)

    @contextlib.contextmanager
    def holding(self, uid: int, process: ProcessId, threads: int, hz: float, capture: str = "") -> Iterator[None]:
        """It is sampled so often meanwhile: its user's other captures have less room."""
        takes = capture, hz * self._of_sample(process, threads)
        self._held[uid].append(takes)
        try:
            yield
        finally:
            self._held[uid].remove(takes)
            if not self._held[uid]:
                del self._held[uid]

    def note_python(self, process: ProcessId, version: str) -> None:
        """Note which Python it runs, as `3.11.7`: that says what samples take that have not been measured yet."""
        if process not in self._own:
            self._own[process] = version.startswith(_OWN_VERSIONS)

    def note_reader(self, process: ProcessId, reader: str) -> None:
        """Note what took its samples: py-spy where our own reader does not know this build of its Python."""
        self._own[process] = reader == Reader.OWN

    def learn(self, process: ProcessId, sample_seconds: float) -> None:
        """Note the cost of a sample of it. One that took no time that could be measured says nothing of the next."""
        if sample_seconds > 0:
            self._known[process] = sample_seconds

    def _of_sample(self, process: ProcessId, threads: int) -> float:
        if self._own.get(process, False):
            return self._known.get(process, _OWN_SAMPLE_SECONDS + _OWN_THREAD_SECONDS * threads)
        return self._known.get(process, _SAMPLE_SECONDS + _THREAD_SECONDS * threads)
