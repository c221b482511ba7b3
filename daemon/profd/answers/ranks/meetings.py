"""When ranks met in the measured steps, and how long the steps had lasted, had a rank worked otherwise. Times in ns.

A meeting is a collective that no rank leaves before the last has come. A rank comes to it so long after it has left the
meeting before; all leave it so long after the last has come as that one was in it. Both distances stay as they were
measured when the steps are played again. So no clocks are compared, but to order meetings of several groups.

Some meetings, and some work, last longer than the same in other steps: a busy host runs a thread that it wakes only
when another has had its turn, a network is shared. Whether such delays stay when a rank works less no trace says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from profd.answers.ranks import names
from profd.answers.ranks.matched import Group, Matched
from profd.answers.ranks.of_rank import Rank
from profd.answers.ranks.work import Aligned, columns_of
from profd.events.table import Array

NONE: Final = -1
MEETINGS_MAX: Final = 50_000  # that are played; 0.2 s for 10,000
USUAL: Final = 0.25  # quantile of the same work or meeting that is not delayed: on a busy host more than half are
BATCHES_MIN, BATCH_STEPS, STUDENT = 10, 4, 1.33  # the quantile of Student's t for a few of these, in which 8 of 10 lie
OTHERS_MIN: Final = 3  # ranks whose middle tells what a step asks of each


@dataclass(frozen=True, slots=True)
class Met:
    """Meetings of one group; a row for each rank, a column for each meeting."""

    group: Group
    ranks: Array  # places in the list of ranks
    at: Array  # int64: the place of each meeting among all, in order
    column: Array  # int64: of each, in the group
    work: Array  # float64: from the end of the meeting before to the arrival
    before: Array  # int64: that meeting's place among all; NONE: the window begins
    shared: Array  # float64, a value for each meeting: from the last arrival until all leave
    step: int  # meetings in a step; 0: steps differ

    @property
    def place_in_step(self) -> Array | None:
        """Of each meeting; None where steps differ."""
        return np.arange(len(self.at)) % self.step if self.step else None

    @property
    def alike(self) -> Array:
        """A number for meetings that should take equally long: those in one place of a step, or of one operation."""
        place = self.place_in_step
        if place is not None:
            return place
        found: Array = np.unique([self.group.op[column] for column in self.column.tolist()], return_inverse=True)[1]
        return found


@dataclass(frozen=True, slots=True)
class Lasts:
    """The steps, in ns."""

    measured: float  # with delays as they were
    undelayed: float  # where nothing takes longer than usual
    unhindered: float  # where no rank works unusually long beyond the others
    delayed: float  # of what is measured, delays of meetings alone
    error: float  # a share: by how much as many other steps on a host as busy differ, in 8 of 10


@dataclass(frozen=True, slots=True)
class Meetings:
    """All of a job, in order; places of meetings are by this order."""

    met: list[Met]
    count: int
    of: Array  # int64: which of `met` each is of
    left_out: int  # behind MEETINGS_MAX
    on_devices: bool = False  # all of the ranks have theirs

    def play(self, changed: dict[int, Array] | None = None, variants: int = 1) -> Array:
        """When each meeting ends, a row for each variant. `changed`: work by the place in `met`, variants first."""
        return self._play(changed or {}, variants, [one.shared[None] for one in self.met])

    def lasts(self, changed: dict[int, Array], variants: int) -> Lasts:
        """How long all steps last, the mean of the variants; `changed` as for `play`."""
        undelayed = {
            place: usual_of(changed.get(place, one.work[None]), one.place_in_step) for place, one in enumerate(self.met)
        }
        usual = [usual_of(one.shared, one.alike)[None] for one in self.met]
        ends = self.play(changed, variants)
        met, least = (float(self._play(each, variants, usual)[:, -1].mean()) for each in (changed, undelayed))
        alone = {
            place: _unhindered(changed.get(place, one.work[None]), one.place_in_step)
            for place, one in enumerate(self.met)
        }
        measured, unhindered = (float(each[:, -1].mean()) for each in (ends, self.play(alone, variants)))
        return Lasts(measured, least, unhindered, measured - met, self._error(ends.mean(axis=0)))

    def _error(self, ends: Array) -> float:
        """By how much as many other steps on a host as busy differ, in 8 of 10, as a share.

        Batches of steps are compared with the next: a host that is busier for a while makes both longer.
        """
        steps = [one.step for one in self.met]
        whole = sum(steps) if all(steps) else 1
        size = min(max(self.count // whole // BATCHES_MIN, 1), BATCH_STEPS) * whole
        lasted = np.diff(ends[size - 1 :: size], prepend=0.0)
        if len(lasted) < BATCHES_MIN:
            return 1.0
        deviation = math.sqrt(float((np.diff(lasted) ** 2).mean()) / 2)
        return STUDENT * math.sqrt(2 / len(lasted)) * deviation / float(lasted.mean())

    def _play(self, changed: dict[int, Array], variants: int, shared: Sequence[Array]) -> Array:
        works = [
            changed.get(place, np.broadcast_to(one.work, (variants, *one.work.shape)))
            for place, one in enumerate(self.met)
        ]
        ends = np.zeros((variants, self.count + 1))  # the last column is NONE: where the window begins
        next_of = [0] * len(self.met)
        for at, which in enumerate(self.of.tolist()):
            one, column = self.met[which], next_of[which]
            arrivals = ends[:, one.before[:, column]] + works[which][:, :, column]
            ends[:, at] = arrivals.max(axis=1) + shared[which][:, column]
            next_of[which] += 1
        found: Array = ends[:, : self.count]
        return found


def meetings(ranks: Sequence[Rank], found: Matched, aligned: Aligned) -> Meetings:
    """Of the steps that all ranks have; there may be none."""
    chosen: list[tuple[Group, Array]] = []
    for group in found.groups:
        first = int(group.ranks[0])
        if first not in aligned.place:
            continue
        step = columns_of(ranks[first], first, aligned, group.start[0])
        all_wait = np.array([op in names.WAIT_FOR_ALL for op in group.op], dtype=bool)
        there = np.flatnonzero((step >= 0) & all_wait)
        if len(there):
            chosen.append((group, there))
    ahead = found.clocks.ahead if found.clocks is not None else np.zeros(len(ranks))
    if found.clocks is None and len(chosen) > 1:  # nothing tells their order
        chosen = [max(chosen, key=lambda one: len(one[1]) * len(one[0].ranks))]
    left = [_left(group, there, ahead) for group, there in chosen]
    order = np.argsort(np.concatenate(left), kind="stable") if left else np.zeros(0, dtype=np.int64)
    whose = np.concatenate([np.full(len(one), place) for place, one in enumerate(left)]) if left else order
    left_out = max(len(order) - MEETINGS_MAX, 0)
    order = order[:MEETINGS_MAX]
    place_of = np.full(len(whose), NONE)
    place_of[order] = np.arange(len(order))
    met, from_ = [], 0
    for group, there in chosen:
        places = place_of[from_ : from_ + len(there)]
        from_ += len(there)
        kept = places != NONE
        met.append((group, there[kept], places[kept]))
    on_devices = all(one.on_device for one in ranks)
    return Meetings(_met(ranks, met, aligned), len(order), whose[order], left_out, on_devices)


def _left(group: Group, there: Array, ahead: Array) -> Array:
    """When all have left each meeting, by one clock."""
    end = group.end[:, there] - ahead[group.ranks][:, None]
    found: Array = np.maximum.accumulate(end.max(axis=0))
    return found


def _met(ranks: Sequence[Rank], chosen: list[tuple[Group, Array, Array]], aligned: Aligned) -> list[Met]:
    """The groups with what each rank did before it came to each meeting."""
    by_rank: dict[int, list[tuple[Array, Array, Array]]] = {}
    for group, there, places in chosen:
        for row, rank in enumerate(group.ranks.tolist()):
            by_rank.setdefault(rank, []).append((places, group.start[row, there], group.end[row, there]))
    came = {rank: _came(*map(np.concatenate, zip(*parts, strict=True))) for rank, parts in by_rank.items()}
    found = []
    for group, there, places in chosen:
        work, before = (
            np.stack([came[rank][which][np.searchsorted(came[rank][0], places)] for rank in group.ranks.tolist()])
            for which in (1, 2)
        )
        shared = (group.end - group.start)[:, there].min(axis=0).astype(np.float64)
        first = int(group.ranks[0])
        step = _a_step(columns_of(ranks[first], first, aligned, group.start[0, there]))
        found.append(Met(group, group.ranks, places, there, work, before, shared, step))
    return found


def usual_of(times: Array, alike: Array | None) -> Array:
    """Times that are no longer than the shortest quarter of those that are alike. Columns are the last axis.

    None: nothing is alike.
    """
    return times.copy() if alike is None else np.minimum(times, usually(times, alike))


def usually(times: Array, alike: Array) -> Array:
    """Of each what a quarter of those that are alike last at most."""
    usual = np.empty_like(times)
    for one in np.unique(alike).tolist():
        these = np.flatnonzero(alike == one)
        usual[..., these] = np.quantile(times[..., these], USUAL, axis=-1, keepdims=True)
    return usual


def _unhindered(work: Array, alike: Array | None) -> Array:
    """Variants of the work of all ranks, in rows, without what takes one of them unusually long beyond the others."""
    common = work.min(axis=1, keepdims=True)
    found: Array = common + usual_of(work - common, alike)
    return found


def _came(place: Array, start: Array, end: Array) -> tuple[Array, Array, Array]:
    """Of the meetings of one rank: (places in order, work before each, the meeting that it had left last before it)."""
    by_end = np.argsort(end, kind="stable")
    last = by_end[np.maximum(np.searchsorted(end[by_end], start, side="right") - 1, 0)]
    # Clocks that are not known well may tell another order than that of the meetings.
    known = (end[last] <= start) & (place[last] < place)
    work = np.where(known, start - end[last], start - start.min()).astype(np.float64)
    before = np.where(known, place[last], NONE)
    order = np.argsort(place)
    return place[order], work[order], before[order]


def _a_step(step: Array) -> int:
    """How many meetings each step has; 0 where that differs. The first and the last may be cut."""
    counts = np.unique(step, return_counts=True)[1][1:-1]
    return int(counts[0]) if len(counts) and (counts == counts[0]).all() else 0


def as_others(found: Meetings, rank: int, donors: int) -> dict[int, Array]:
    """The work of a rank as it is on others, a variant for each of some others.

    What a step asks of all ranks (the middle of the others) stays in its step. What is a rank's own comes from another
    rank, and from the step before: the same deviations twice in one step would look like fewer.
    """
    changed: dict[int, Array] = {}
    for place, one in enumerate(found.met):
        rows = one.ranks.tolist()
        if rank not in rows:
            continue
        mine = rows.index(rank)
        others = [row for row in range(len(rows)) if row != mine]
        inside = np.flatnonzero((one.before != NONE).all(axis=0))  # what begins with the window has no work
        work = one.work[:, inside]
        common = np.median(work[others], axis=0)
        if len(others) >= OTHERS_MIN:
            # Not from the one that works most: a late rank's lateness is not usual.
            giving = sorted(others, key=lambda row: float(work[row].sum()))[:-1]
            chosen = [giving[at % len(giving)] for at in range(donors)]
            own = np.roll(work[chosen] - common, one.step, axis=1)
        else:
            own = np.repeat(_without_excess(work[mine], common, max(one.step, 1))[None], donors, axis=0)
        works = np.repeat(one.work[None], donors, axis=0)
        works[:, mine, inside] = np.maximum(common + own, 0.0)
        changed[place] = works
    return changed


def _without_excess(mine: Array, common: Array, step: int) -> Array:
    """What a rank works more than its one or two others, without what is usual of that, or more than it is ever less.

    Of few others nobody knows which of a deviation is whose: its own stay, but for their middle.
    """
    apart = mine - common
    for first in range(step):  # the same collective of each step
        these = slice(first, None, step)
        # More by a share or by a time: by what leaves less.
        share = float(np.median(mine[these] / np.maximum(common[these], 1.0)))
        left = [mine[these] / max(share, 1e-9) - common[these], apart[these] - np.median(apart[these])]
        least = min(left, key=lambda each: float(np.median(np.abs(each))))
        apart[these] = np.minimum(least, -least.min(initial=0.0))
    return apart
