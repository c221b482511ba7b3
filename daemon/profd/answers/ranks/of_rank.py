"""What one rank did in its measured steps: computed, communicated, copied, stood still."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from profd.answers.calls import Call
from profd.answers.facts import Facts
from profd.answers.measured import Measured
from profd.answers.ranks import names
from profd.answers.ranks.breakdown import breakdown
from profd.answers.ranks.matched import Clock
from profd.answers.ranks.recorded import Recorded, recorded
from profd.answers.spans import Spans
from profd.derive.steps import PROFILER_STEP
from profd.events import Kind
from profd.events.table import Array
from profd.query.captured import Member
from profd.query.whole import check_size
from profd.segments.meta import TraceMeta


@dataclass(frozen=True, slots=True)
class Rank:
    """One trace of a capture. Times in ns; sets of moments are those of the measured steps."""

    member: Member
    meta: TraceMeta
    measured: Measured
    recorded: Recorded
    computing: int  # a kernel that is no collective ran; without devices, an operator
    exposed: Spans  # a collective ran, and nothing was computed beside it
    copying: int  # copies and fills beside neither
    idle: int  # nothing of these
    loading: int  # of it the program waited for its DataLoader
    late: int  # of the rest the host had not launched what came next
    on_device: bool  # what is computed was seen on a device
    step_thread_queued: float | None  # share of its time that the thread of the steps waited for a CPU
    device: dict[str, Any] | None  # of the whole window: `breakdown`

    @property
    def clock(self) -> Clock | None:
        """Where the times come from, if the source says that."""
        within = self.meta.clock_error_ns
        return None if within is None or not self.member.host else Clock(self.member.host, within)


def look_at(member: Member) -> Rank:
    """Read one trace, twice. Raises Exhausted for one of too many events."""
    reader = member.open()
    # `recorded` keeps operators, which any row may be.
    check_size(len(reader), "export a --window of the trace, import that, and ask it")
    facts, found = Facts(reader), recorded(reader)
    measured = facts.measured
    talking = facts.measured_part(found.spans)
    talks, kernel = _talks(facts), facts.work.kind == Kind.KERNEL
    kernels = facts.work.take(np.flatnonzero(kernel & ~talks))
    on_device = len(facts.work) > 0
    computing = facts.measured_part(Spans.union(kernels.start, kernels.end) if on_device else found.operators)
    exposed = talking.without(computing)
    busy = Spans.union(
        *(np.concatenate([getattr(one, edge) for one in (computing, exposed)]) for edge in ("start", "end"))
    )
    copies = facts.work.take(np.flatnonzero(~kernel))
    copying = facts.measured_part(Spans.union(copies.start, copies.end)).without(busy)
    idle = measured.spans.without(busy).without(copying)
    loading = idle.common(facts.on_step_thread(Call.LOADS).spans)
    late = idle.common(facts.late.spans).without(loading) if on_device else Spans.union(*_NOTHING)
    return Rank(
        member,
        reader.meta,
        measured,
        found,
        computing.total,
        exposed,
        copying.total,
        idle.total,
        loading.total,
        late.total,
        on_device,
        _queued(facts),
        breakdown(facts.work, talks, _last_step(measured)),
    )


_NOTHING = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


def _talks(facts: Facts) -> Array:
    """Which work is a collective."""
    name, code = np.unique(facts.work.name, return_inverse=True)
    talks = np.array([names.is_kernel(facts.name(one)) for one in name.tolist()], dtype=bool)
    found: Array = talks[code] & (facts.work.kind == Kind.KERNEL) if len(name) else np.zeros(0, dtype=bool)
    return found


def _last_step(measured: Measured) -> int | None:
    return int(measured.start[-1]) if measured.steps and measured.how == PROFILER_STEP else None


def _queued(facts: Facts) -> float | None:
    """As the kernel counted over the window."""
    number, tracks = facts.measured.thread, facts.reader.tracks.threads
    known = str(tracks[number].get("id")) if 0 <= number < len(tracks) else ""
    for thread in facts.reader.meta.run_times.threads:
        if str(thread.id) == known and thread.lasted_ns:
            return thread.queued_ns / thread.lasted_ns
    return None
