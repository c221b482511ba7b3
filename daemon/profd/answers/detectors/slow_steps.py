"""Some steps take much longer than the others, and what they do in that time differs from what the others do.

Rule: of eight steps or more, the first and the last left out, some last more than 1.5 times the median and more than
5 median deviations beyond it, 1 % of the time or more together. With devices: half of what each of them lasts beyond
the others, or more, is time in which no device works, or work that it launches beyond theirs. A host that is ahead has
short steps until its queue is full, and a long one where it waits for that: nothing is slow there. A cause is named
only where one of these holds; else the steps are slow, and no finding says so:
- calls: what is called more often in some of them than in the others explains half of the difference or more: the
  finding is about these alone, and the rest may be preemption;
- times: of the longest, which have 80 % of the difference together, one name (or "nothing recorded") explains half in
  each of three or more, three quarters of them at least, and
  such a run by chance, were the extra time spread as the step's time is (and, where these or all that it explains are
  equally far apart, were they anywhere), has a probability below 0.001.
Of two causes the finding has the one that explains more. Where it is about fewer steps than are slow, its sentence
says so.
Bound: what the steps that it is about last beyond the median.
Wrong where: the steps are slow on purpose (an evaluation, a checkpoint): the sentence then says so by its name.
Preemption is not told from work by time alone: it hits names as the step's time is spread, which the second rule
refuses.
Source: differences of counts named the planted cause in 4 of 4 jobs, and nothing in 8 clean ones; totals of self time
did poorly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from profd.answers.detectors.python_functions import called
from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Silence, Verdict, ordinal, percent
from profd.answers.names_in_steps import NOTHING_RECORDED, NamesInSteps, names_in_steps
from profd.answers.spans import Spans
from profd.events.table import Array

ID: Final = "slow-steps"
STEPS_MIN: Final = 8
TIMES_MEDIAN: Final = 1.5
DEVIATIONS: Final = 5
BOUND_MIN: Final = 0.01
EXPLAINS_MIN: Final = 0.5
SLOW_LOOKED_AT: Final = 32  # the longest
CELLS_MAX: Final = 4_000_000  # names times steps that are looked at: 64 MB
REPEATS_MIN: Final = 3
BULK: Final = 0.8  # of what the slow steps last beyond the others
CHANCE_MAX: Final = 0.001


@dataclass(frozen=True, slots=True)
class _Cause:
    name: str
    calls: float  # more a slow step; 0: as many
    explains: float  # of the difference, in the middle of the slow steps it is in
    steps: Array  # places of the slow steps that it explains, among those that are looked at
    others: int = 0  # names that are called more often, too, where it does not explain half by itself


def look(facts: Facts) -> Verdict:
    """See the module."""
    measured = facts.measured
    if measured.steps < STEPS_MIN + 1:
        return Silence(f"{STEPS_MIN + 2} steps or more")
    lasted = measured.durations[:-1]
    median = float(np.median(lasted))
    deviation = float(np.median(np.abs(lasted - median)))
    longer = (lasted > TIMES_MEDIAN * median) & (lasted > median + DEVIATIONS * deviation)
    usual = np.flatnonzero(~longer)
    slow = _that_cost(facts, np.flatnonzero(longer), usual)
    bound = int(lasted[slow].sum() - len(slow) * median)
    if not len(slow) or bound < BOUND_MIN * measured.total:
        return NOTHING
    most = min(SLOW_LOOKED_AT, CELLS_MAX // len(facts.reader.dictionaries["name"]))
    if not most:
        return Silence(f"the trace has more than {CELLS_MAX:,} different names")
    looked_at = np.sort(slow[np.argsort(-lasted[slow], kind="stable")[:most]])
    names = names_in_steps(facts.reader, measured, looked_at, usual, facts.segments)
    causes = [found for found in (_by_calls(names), _by_times(names, looked_at, len(lasted))) if found]
    if not causes:
        return NOTHING
    all_slow = len(slow)
    cause = max(causes, key=lambda one: float(names.beyond[one.steps].sum() * one.explains))  # calls first, if equal
    slow = looked_at[cause.steps]
    bound = int(lasted[slow].sum() - len(slow) * median)
    if bound < BOUND_MIN * measured.total:
        return NOTHING
    numbers = [measured.numbers[at] for at in slow.tolist()]
    what = f"{cause.name} and {cause.others} other names" if cause.others else cause.name
    seen = _seen(facts, slow, bound) if cause.name == NOTHING_RECORDED else ""
    often = f", called more often in them (by {cause.calls:.3g})," if cause.calls else ""
    return Finding(
        ID,
        f"{_which(len(slow), all_slow, len(lasted), _rhythm(numbers))}, "
        f"{percent(bound, measured.total)} of the time beyond it: "
        f"{what}{often} explain{'' if cause.others else 's'} {100 * cause.explains:.0f} % of that{seen}.",
        bound_ns=bound,
        numbers={
            "slow": len(slow),
            "median_ns": int(median),
            "explained_share": round(cause.explains, 3),
            "more_calls": round(cause.calls, 2),
            "name": cause.name,
        },
        steps=numbers,
        assumptions=["the slow steps are not meant to do more than the others"],
        symptom_of=["recompilation", "garbage-collection"],
        confirm=f"profctl top TRACE --step {numbers[int(np.argmax(lasted[slow]))]}"
        + ("; capture with --stacks --c-calls, or --samples 100hz" if cause.name == NOTHING_RECORDED else ""),
    )


def _which(slow: int, all_slow: int, steps: int, rhythm: str) -> str:
    """How many steps the finding is about, and of how many: there may be more slow ones, which it does not explain."""
    beyond = f"more than {TIMES_MEDIAN} times the median"
    if slow == all_slow:
        return f"{slow} of {steps} steps{rhythm} {'takes' if slow == 1 else 'take'} {beyond}"
    return f"{slow} of {all_slow} steps{rhythm} that take {beyond} {'is' if slow == 1 else 'are'} slow by one cause"


def _that_cost(facts: Facts, slow: Array, usual: Array) -> Array:
    """Of these steps, those whose time beyond the usual ones the devices feel: they stand still, or have more to do."""
    measured, work = facts.measured, facts.work
    if not facts.has_launches or not len(usual):
        return slow
    lasted = measured.durations
    idle = lasted - facts.busy.within(measured.start, measured.end)
    step = np.searchsorted(measured.start, work.launch, side="right") - 1
    within = np.flatnonzero((step >= 0) & (work.launch < measured.end[step]))
    launched = np.bincount(step[within], weights=(work.end - work.start)[within], minlength=measured.steps)
    felt = sum(np.maximum(each[slow] - np.median(each[usual]), 0) for each in (idle, launched))
    costs: Array = slow[felt >= EXPLAINS_MIN * (lasted[slow] - np.median(lasted[usual]))]
    return costs


def _seen(facts: Facts, slow: Array, bound: int) -> str:
    """The program's function that has half of what these steps last beyond the others, as a clause; else empty."""
    measured = facts.measured
    seen = facts.sampled_in(Spans.union(measured.start[slow], measured.end[slow]))
    if not seen or seen[0][1] < EXPLAINS_MIN * bound:
        return ""
    return f"; samples see {called(seen[0][0])}, or C functions that it calls"


def _by_calls(names: NamesInSteps) -> _Cause | None:
    more = (names.count >= names.usual_count + 1) & (names.count >= 1.5 * names.usual_count)
    extra = np.where(more, np.maximum(names.time - names.usual_time, 0), 0)
    share = extra.sum(axis=1) / names.beyond
    told = np.flatnonzero(share >= EXPLAINS_MIN)
    if not len(told):
        return None
    best = int(extra[told].sum(axis=0).argmax())
    calls = float(np.median(names.count[told, best] - names.usual_count[best]))
    alone = bool(np.median(extra[told, best] / names.beyond[told]) >= EXPLAINS_MIN)
    others = 0 if alone else int((extra[told].sum(axis=0) > 0).sum()) - 1
    return _Cause(names.name(best), calls, float(np.median(np.minimum(share[told], 1))), told, others)


def _by_times(names: NamesInSteps, slow: Array, steps: int) -> _Cause | None:
    bulk = _bulk(names.beyond)
    share = np.maximum(names.time[bulk] - names.usual_time, 0) / names.beyond[bulk, None]
    most = share.argmax(axis=1)
    best = int(np.bincount(most).argmax())
    told = np.flatnonzero((most == best) & (share[:, best] >= EXPLAINS_MIN))
    usual: Array = names.usual_time
    if len(told) < max(REPEATS_MIN, 0.75 * len(most)):
        return None
    by_chance = float(max(usual[best], 0) / max(usual.sum(), 1)) ** len(told)
    # A rhythm is of all that the name explains, or of the longest alone, where others are preempted: two looks.
    explained = np.maximum(names.time[:, best] - usual[best], 0) / names.beyond
    sets = [np.flatnonzero(explained >= EXPLAINS_MIN), bulk[told]]
    rhythms = [rhythm_by_chance(slow[each], steps) for each in sets]
    if by_chance * min(1.0, len(sets) * min(rhythms)) >= CHANCE_MAX:
        return None
    chosen = sets[0] if rhythms[0] < rhythms[1] else sets[1]
    return _Cause(names.name(best), 0.0, float(np.median(np.minimum(explained[chosen], 1))), chosen)


def _bulk(beyond: Array) -> Array:
    """The longest of the slow steps, which have most of the difference together: the others may be preempted."""
    order = np.argsort(-beyond, kind="stable")
    reached = np.cumsum(beyond[order])
    return np.sort(order[: int(np.searchsorted(reached, BULK * reached[-1])) + 1])


def rhythm_by_chance(places: Array, steps: int) -> float:
    """The probability that so many of so many steps, taken at random, are equally far apart; 1 where these are not."""
    count = len(places)
    if count < REPEATS_MIN or len(set(np.diff(places).tolist())) > 1:
        return 1.0
    regular = sum(steps - (count - 1) * apart for apart in range(1, (steps - 1) // (count - 1) + 1))
    return regular / math.comb(steps, count)


def _rhythm(numbers: list[int]) -> str:
    """` (every 10th)` where they come at equal distances, three at least."""
    apart = set(np.diff(numbers).tolist())
    return (
        f" (every {ordinal(apart.pop())})"
        if len(numbers) >= REPEATS_MIN and len(apart) == 1 and numbers[1] - numbers[0] > 1
        else ""
    )
