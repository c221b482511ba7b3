"""Why a rank is late: what it calls more often than all others; else what takes longer; else where it stands still."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from profd.answers.detectors.python_functions import called
from profd.answers.finding import percent, time
from profd.answers.ranks.of_rank import Rank
from profd.answers.ranks.sampled import by_samples
from profd.answers.ranks.stragglers import Straggler
from profd.answers.ranks.work import Aligned, Compared
from profd.derive.steps import PROFILER_STEP
from profd.events import NO_CODE, NO_END, Kind
from profd.events.table import Array
from profd.query import rules

CALLS_MORE_MIN: Final = 3  # than all others, which agree
EXPLAINS_MIN: Final = 0.5  # of what the rank is late by
OTHERS_MAX: Final = 7  # that are read again
_COLUMNS: Final = ("name", "kind", "device_type", "thread", "start", "self_time")
_OF_ONE_CALL: Final = re.compile(r"0x[0-9a-fA-F]+|#\d+|\b\d{4,}\b")
_TALK: Final = ("gloo:", "nccl:", "c10d::", "record_param_comms", PROFILER_STEP)


@dataclass(frozen=True, slots=True)
class Cause:
    """What the recordings say of it; a sentence, and a name of a call where there is one."""

    sentence: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class _Calls:
    """Of one name in the looked at steps."""

    count: int
    time: int  # self time, ns
    is_operator: bool


def cause_of(one: Straggler, compared: Compared, aligned: Aligned, ranks: Sequence[Rank]) -> Cause | None:
    """None: nothing that was recorded tells it from the others."""
    late = int(compared.ranks[one.rank])
    steps = compared.steps[one.steps] if one.steps else compared.steps
    others = [rank for rank in compared.ranks.tolist() if rank != late]
    by_step = one.excess_ns / len(one.steps) if one.steps else one.excess_ns
    looked = [(ranks[rank], aligned.place[rank][steps]) for rank in (late, *others[:OTHERS_MAX])]
    seen = [_calls(*one) for one in looked]
    counted, explained = _by_counts(seen[0], seen[1:], len(steps))
    # Calls that are more, and take little, may come of what the samples name; or launch what takes long.
    sampled = None if explained >= EXPLAINS_MIN * by_step else by_samples(looked, len(steps), EXPLAINS_MIN * by_step)
    if sampled is not None:
        name, extra = sampled
        sentence = f"{called(name)} takes it {time(extra)} a step longer than the others, as samples see it"
        return Cause(sentence, name)
    if counted is not None and explained < EXPLAINS_MIN * by_step and not ranks[late].on_device:
        more = "" if ranks[late].meta.options.get("stacks") else ": --stacks tells more"
        little = Cause(f"{counted.sentence}, which is little of it{more}", counted.name)
        return _by_times(seen[0], seen[1:], len(steps), by_step) or little
    return (
        counted
        or _by_run_queue(one, late, others, ranks, by_step)
        or _by_times(seen[0], seen[1:], len(steps), by_step)
        or (_by_parts(late, others, ranks, by_step) if one.always else None)
    )


def _calls(rank: Rank, place: Array) -> dict[str, _Calls]:
    """By name, on the thread of the steps and on what it launched nothing: what the host did in these steps."""
    measured, reader = rank.measured, rank.member.open()
    order = np.argsort(measured.start[place], kind="stable")
    start, end = measured.start[place][order], measured.end[place][order]
    count, own, operator = (np.zeros(0, dtype=np.int64) for _ in range(3))
    for table in reader.iterate(_COLUMNS, args=False):
        name, lasted, begun = table.column("name"), table.column("self_time"), table.columns["start"]
        kinds = table.column("kind")
        rows = np.flatnonzero((table.column("thread") == measured.thread) & (lasted != NO_END) & (name != NO_CODE))
        rows = rows[rules.is_cpu(table.column("device_type")[rows]) & rules.is_work(kinds[rows])]
        step = np.searchsorted(start, begun[rows], side="right") - 1
        rows = rows[(step >= 0) & (begun[rows] < end[np.maximum(step, 0)])]
        size = len(rules.names_of(table))
        count, own, operator = (
            np.append(each, np.zeros(size - len(each), dtype=np.int64)) for each in (count, own, operator)
        )
        count += np.bincount(name[rows], minlength=size)
        own += np.bincount(name[rows], weights=lasted[rows], minlength=size).astype(np.int64)
        operator[name[rows[kinds[rows] != Kind.PYTHON_FUNCTION]]] = 1
    return _by_name(reader.dictionaries["name"].values, count, own, operator)


def _by_name(values: Sequence[str], count: Array, own: Array, operator: Array) -> dict[str, _Calls]:
    found: dict[str, _Calls] = {}
    for code in np.flatnonzero(count).tolist():
        if values[code].startswith(_TALK):
            continue
        name = _OF_ONE_CALL.sub("#", values[code])
        before = found.get(name, _Calls(0, 0, False))
        is_operator = before.is_operator or bool(operator[code])
        found[name] = _Calls(before.count + int(count[code]), before.time + int(own[code]), is_operator)
    return found


_NONE: Final = _Calls(0, 0, False)


def _by_counts(mine: dict[str, _Calls], others: Sequence[dict[str, _Calls]], steps: int) -> tuple[Cause | None, float]:
    """Operators before functions, and among them what takes most of the time; and what all of them take, ns a step."""
    more = []
    for name, calls in mine.items():
        theirs = {one.get(name, _NONE).count for one in others}
        if len(theirs) == 1 and calls.count - min(theirs) >= CALLS_MORE_MIN:
            usual = float(np.median([one.get(name, _NONE).time for one in others]))
            more.append((calls.is_operator, calls.time - usual, name, calls.count, min(theirs)))
    if not more:
        return None, 0.0
    _, extra, name, count, usual_count = max(more)
    takes = f", {time(extra / steps)} a step" if extra > 0 else ""
    also = f" (and {len(more) - 1} other names)" if len(more) > 1 else ""
    cause = Cause(f"it calls {name} {count} times in {steps} steps, the others {usual_count}{takes}{also}", name)
    return cause, sum(max(one[1], 0.0) for one in more) / steps


def _by_run_queue(
    one: Straggler, late: int, others: Sequence[int], ranks: Sequence[Rank], by_step: float
) -> Cause | None:
    """Over the whole window: steps cannot be told apart by it."""
    mine = ranks[late].step_thread_queued
    known = [share for rank in others if (share := ranks[rank].step_thread_queued) is not None]
    if not one.always or mine is None or not known:
        return None
    usual = float(np.median(known))
    if (mine - usual) * float(np.median(ranks[late].measured.durations)) < EXPLAINS_MIN * by_step:
        return None
    return Cause(
        f"its thread of the steps was ready and waited for a CPU {mine:.0%} of the time, those of the others "
        f"{usual:.0%}: other programs on its host, or a limit of its cgroup, hold it"
    )


def _by_times(mine: dict[str, _Calls], others: Sequence[dict[str, _Calls]], steps: int, by_step: float) -> Cause | None:
    more = []
    for name, calls in mine.items():
        extra = (calls.time - float(np.median([one.get(name, _NONE).time for one in others]))) / steps
        if extra >= EXPLAINS_MIN * by_step:
            more.append((calls.is_operator, extra, name))
    if not more:
        return None
    _, extra, name = max(more)
    return Cause(f"{name} takes it {time(extra)} a step longer than the others", name)


def _by_parts(late: int, others: Sequence[int], ranks: Sequence[Rank], by_step: float) -> Cause | None:
    for words, of in _PARTS:
        mine, *theirs = (of(ranks[rank]) / max(ranks[rank].measured.steps, 1) for rank in (late, *others))
        extra = mine - float(np.median(theirs))
        if extra >= EXPLAINS_MIN * by_step:
            share = percent(round(extra), round(by_step))
            return Cause(f"{words} {time(extra)} a step longer than that of the others ({share} of what it is late by)")
    return None


_PARTS: Final[tuple[tuple[str, Callable[[Rank], int]], ...]] = (
    ("what it computes on its devices takes", lambda rank: rank.computing if rank.on_device else 0),
    ("its wait for its DataLoader takes", lambda rank: rank.loading),
    ("its devices' wait for the host takes", lambda rank: rank.late),
)
