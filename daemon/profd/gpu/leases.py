"""Leases: the right to use CUPTI in a process, and the device-wide counters of a GPU. Pure: no clock, no I/O.

One holder at a time, by epoch:

    free ── grant ──► held ── not renewed for TTL ──► silent ── renew ──► held
                        │                               │
                        └────────────── end ────────────┤  the holder wants it no more
                                                        ▼
              free ◄── clear: the target says so, or is dead ── ending

A lease is free again when both are known: its holder is done (`end`), and
nothing is armed any more in what it is of (`clear`). Neither time nor the
holder's word alone frees it: a process that was stopped while it recorded and
wakes up an hour later still records, and a second holder would meet the first.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from profd.gpu.holders import Holder, HolderKind
from profd.limits import GPU_LEASE_TTL_SECONDS
from profd.targets.process import ProcessId


@dataclass(frozen=True, slots=True)
class GpuId:
    """One GPU, by the device file that its processes have open."""

    device: str


Subject = ProcessId | GpuId
"""Ranks and MPS clients that share a GPU are subjects of their own: tracing is a matter of each process."""


class Stage(StrEnum):
    """Where a lease stands; a label of metrics."""

    HELD = "held"
    SILENT = "silent"
    ENDING = "ending"


class Held(Exception):
    """Somebody has it. str() is a sentence that names the holder; `fix` says what to do."""

    def __init__(self, lease: Lease) -> None:
        self.holder = lease.holder
        self.fix = lease.holder.fix
        super().__init__(lease.sentence())


@dataclass(slots=True)
class Lease:
    """A grant. Of others' business only to read; `epoch` is the one that a target is armed with."""

    subject: Subject
    holder: Holder
    epoch: int
    renewed_s: float  # by the clock of the table
    stage: Stage = Stage.HELD
    cleared: bool = True  # nothing of this epoch is armed
    image: int = 0  # incarnation of the program that was armed; 0: not known

    def sentence(self) -> str:
        """A holder and the thing held, for a refusal."""
        if isinstance(self.subject, GpuId):
            return f"the counters of GPU {self.subject.device} are held by {self.holder}"
        said = f"CUPTI in pid {self.subject.pid} is held by {self.holder}"
        if self.stage is Stage.ENDING:
            return f"{said}, which is over, but the process has not said that it is disarmed; is it stopped?"
        return f"{said}, and the process is silent; is it stopped?" if self.stage is Stage.SILENT else said


@dataclass(frozen=True, slots=True)
class LeaseStatistics:
    """Counts for metrics; keys are label values."""

    now: dict[tuple[str, str], int] = field(default_factory=dict)  # (process or gpu, stage)
    refused: dict[str, int] = field(default_factory=dict)  # by the kind of who held it


class Leases:
    """The table. Bounded by the captures that may run, and by processes that have not confirmed their end."""

    def __init__(
        self, clock: Callable[[], float], epochs: Callable[[], int] = lambda: secrets.randbits(63) | 1
    ) -> None:
        """`clock` in seconds, monotonic; `epochs` never gives one twice, nor 0."""
        self._clock = clock
        self._epochs = epochs
        self._leases: dict[Subject, Lease] = {}
        self._refused: Counter[HolderKind] = Counter()

    def __iter__(self) -> Iterator[Lease]:
        return iter(list(self._leases.values()))

    def get(self, subject: Subject) -> Lease | None:
        """Its holder, if there is one."""
        lease = self._leases.get(subject)
        if lease is not None:
            self._age(lease)
        return lease

    def grant(self, subject: Subject, holder: Holder, epoch: int = 0) -> Lease:
        """A new epoch (or one that a daemon before us has given). Raises Held."""
        known = self.get(subject)
        if known is not None:
            self._refused[known.holder.kind] += 1
            raise Held(known)
        lease = Lease(subject, holder, epoch or self._epochs(), self._clock())
        self._leases[subject] = lease
        return lease

    def refused_by(self, holder: Holder) -> None:
        """CUPTI itself has refused us, and names another tool: for the count."""
        self._refused[holder.kind] += 1

    def arm(self, lease: Lease, image: int = 0) -> bool:
        """From now on something may be armed. False: the lease is over, and its holder must not arm."""
        if not self.renew(lease):
            return False
        lease.cleared, lease.image = False, image
        return True

    def renew(self, lease: Lease) -> bool:
        """What it is of has been heard. False: it is over."""
        if self._leases.get(lease.subject) is not lease or lease.stage is Stage.ENDING:
            return False
        lease.renewed_s = self._clock()
        lease.stage = Stage.HELD
        return True

    def end(self, lease: Lease) -> None:
        """Its holder is done with it. Free if nothing is armed; else when `clear` says so. Idempotent."""
        if self._leases.get(lease.subject) is lease:
            lease.stage = Stage.ENDING
            self._free_if_over(lease)

    def clear(self, subject: Subject, epoch: int | None = None) -> None:
        """Nothing of `epoch` is armed there (None: nothing at all, it has ended). What is of others is left alone."""
        lease = self._leases.get(subject)
        if lease is not None and epoch in (None, lease.epoch):
            lease.cleared = True
            self._free_if_over(lease)

    def statistics(self) -> LeaseStatistics:
        """Of now, and refusals since the start."""
        now: Counter[tuple[str, str]] = Counter()
        for lease in self:
            self._age(lease)
            now["gpu" if isinstance(lease.subject, GpuId) else "process", lease.stage.value] += 1
        return LeaseStatistics(dict(now), {kind.value: self._refused[kind] for kind in HolderKind})

    def _age(self, lease: Lease) -> None:
        if lease.stage is Stage.HELD and self._clock() - lease.renewed_s > GPU_LEASE_TTL_SECONDS:
            lease.stage = Stage.SILENT

    def _free_if_over(self, lease: Lease) -> None:
        if lease.stage is Stage.ENDING and lease.cleared:
            del self._leases[lease.subject]
