"""How long each rank worked in each step before it came to the collectives of it: what stragglers are judged by."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from profd.answers.ranks.matched import Group
from profd.answers.ranks.of_rank import Rank
from profd.derive.steps import PROFILER_STEP
from profd.events.table import Array

AGREE_MIN: Final = 0.5  # of the collectives in steps: by how many steps two ranks count differently


@dataclass(frozen=True, slots=True)
class Aligned:
    """Steps that ranks have in common. A column for each, in order."""

    numbers: Array  # int64: as the first rank calls them
    place: dict[int, Array]  # by rank: of these steps in what was measured of it
    how: str  # "collectives", "number", or empty: nothing tells which step is which

    def as_json(self) -> dict[str, Any]:
        """How many there are, and the numbers of the first and the last."""
        numbers = self.numbers.tolist()
        ends = (numbers[0], numbers[-1]) if numbers else (None, None)
        return {"n": len(numbers), "first": ends[0], "last": ends[1]}


@dataclass(frozen=True, slots=True)
class Compared:
    """Ranks that work alike, since they meet in the same collectives; a row for each, a column for each step."""

    ranks: Array  # places in the list of ranks
    work: Array  # float64 ns: between the end of a collective and the arrival at the next
    steps: Array  # int64: columns of the aligned steps


def align(ranks: Sequence[Rank], groups: Sequence[Group]) -> Aligned:
    """By the collectives in them; without any by numbers, where the program counts."""
    stepping = [at for at, one in enumerate(ranks) if one.measured.steps]
    if not stepping:
        return Aligned(np.zeros(0, dtype=np.int64), {}, "")
    first = stepping[0]
    shift, how = _shifts(ranks, groups, first)
    if not how and not all(ranks[at].measured.how == PROFILER_STEP for at in stepping):
        return Aligned(np.zeros(0, dtype=np.int64), {}, "")
    if not how:
        shift, how = dict.fromkeys(stepping, 0), "number"
    called = {at: np.array(ranks[at].measured.numbers, dtype=np.int64) - by for at, by in shift.items()}
    common = called[first]
    for numbers in called.values():
        common = np.intersect1d(common, numbers)
    place = {}
    for at, numbers in called.items():
        order = np.argsort(numbers, kind="stable")
        place[at] = order[np.searchsorted(numbers[order], common)]
    return Aligned(common, place, how)


def _shifts(ranks: Sequence[Rank], groups: Sequence[Group], first: int) -> tuple[dict[int, int], str]:
    """By how much more than the first each rank counts its steps, by ranks that a chain of groups leads to."""
    shift, waiting = {first: 0}, list(groups)
    while waiting:
        known = [not shift.keys().isdisjoint(group.ranks.tolist()) for group in waiting]
        near = list(itertools.compress(waiting, known))
        if not near:
            break
        for group in near:
            _by_collectives(ranks, group, shift)
        waiting = [group for group, there in zip(waiting, known, strict=True) if not there]
    return shift, "collectives" if len(shift) > 1 else ""


def _by_collectives(ranks: Sequence[Rank], group: Group, shift: dict[int, int]) -> None:
    at = group.ranks.tolist()
    if shift.keys() >= set(at):
        return
    known = next(row for row, rank in enumerate(at) if rank in shift)
    mine = _numbers(ranks[at[known]], group.start[known]) - shift[at[known]]
    for row, rank in enumerate(at):
        if rank in shift or not ranks[rank].measured.steps:
            continue
        theirs = _numbers(ranks[rank], group.start[row])
        both = np.flatnonzero((mine >= 0) & (theirs >= 0))
        if not len(both):
            continue
        apart, count = np.unique(theirs[both] - mine[both], return_counts=True)
        if count.max() >= AGREE_MIN * len(both):
            shift[rank] = int(apart[count.argmax()])


def _numbers(rank: Rank, moment: Array) -> Array:
    """What the rank calls the step of each moment; far below zero where it is in none."""
    measured = rank.measured
    step = np.searchsorted(measured.start, moment, side="right") - 1
    inside = (step >= 0) & (moment < measured.end[np.maximum(step, 0)])
    found: Array = np.where(inside, np.array(measured.numbers, dtype=np.int64)[np.maximum(step, 0)], -(1 << 62))
    return found


def compare(ranks: Sequence[Rank], groups: Sequence[Group], aligned: Aligned) -> list[Compared]:
    """Sets of ranks that lie apart, the largest first: of ranks in no group of theirs nothing is usual."""
    if aligned.how != "collectives":
        return []
    columns = len(aligned.numbers)
    work = np.zeros((len(ranks), columns))
    counted = np.zeros(columns, dtype=np.int64)
    worked = {rank: _worked(ranks[rank]) for rank in aligned.place}
    for group in groups:
        inside = [row for row, rank in enumerate(group.ranks.tolist()) if rank in aligned.place]
        if not inside:
            continue
        column = columns_of(
            ranks[int(group.ranks[inside[0]])], int(group.ranks[inside[0]]), aligned, group.start[inside[0]]
        )
        there = column >= 0
        counted += np.bincount(column[there], minlength=columns)
        for row in inside:
            rank = int(group.ranks[row])
            before = worked[rank][group.place[row]]
            work[rank] += np.bincount(column[there], weights=before[there], minlength=columns)
    steps = np.flatnonzero(counted)[:-1]  # the last one may end in the middle
    return [Compared(members, work[np.ix_(members, steps)], steps) for members in _apart(groups, aligned)]


def columns_of(rank: Rank, at: int, aligned: Aligned, moment: Array) -> Array:
    """The aligned step of each moment of this rank; -1: none."""
    chosen = aligned.place[at]
    order = np.argsort(rank.measured.start[chosen], kind="stable")
    start, end = rank.measured.start[chosen][order], rank.measured.end[chosen][order]
    step = np.searchsorted(start, moment, side="right") - 1
    inside = (step >= 0) & (moment < end[np.maximum(step, 0)])
    found: Array = np.where(inside, order[np.maximum(step, 0)], -1)
    return found


def _worked(rank: Rank) -> Array:
    """Before each of its collectives: since the end of all that began before it."""
    start = rank.recorded.start
    before = np.concatenate([start[:1], np.maximum.accumulate(rank.recorded.end)[:-1]])
    found: Array = np.maximum(start - before, 0).astype(np.float64)
    return found


def _apart(groups: Sequence[Group], aligned: Aligned) -> list[Array]:
    found: list[Array] = []
    taken: set[int] = set()
    for group in sorted(groups, key=lambda one: (-len(one.ranks), -one.place.shape[1])):
        members = [rank for rank in group.ranks.tolist() if rank in aligned.place]
        if len(members) >= 2 and not taken & set(members):
            taken |= set(members)
            found.append(np.array(members))
    return found
