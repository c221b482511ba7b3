"""Collectives to which ranks come together once one is no longer late: whether the window says how long these last.

Ranks come together where the last one comes before the collective of the one before it could have been over. On a host
without devices threads of both then need a core at a time, while those of an early rank have done their part: on two
idle cores an all-reduce lasted 2.0 ms where ranks came together, and 0.8 ms where one was 5 ms late. That is how long
woken threads wait for a core: where they get one at once, as the collectives of the window say, it lasts 0.7 to 1.1
times as long (fourteen jobs, docs/ranks.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from profd.answers.ranks.meetings import Meetings, Met, usually
from profd.events.table import Array

LONGER_MOST: Final = 3.0  # times that a collective lasts to which ranks come together: 2.6 was seen
# Of the time of collectives what is delays, at most: 0.1 to 0.26 were seen, and 0.64 to 0.88 where threads wait.
PROMPT: Final = 1 / 3
PROMPT_WITHIN, PROMPT_MOST = 0.5, 1.0  # of their time, by which prompt ones may differ where ranks come together
NEGLIGIBLE: Final = 0.05  # of the steps, so much longer: what is then not known does not matter


@dataclass(frozen=True, slots=True)
class Together:
    """What the steps differ by that the replay does not know, in ns."""

    known: bool  # from collectives of the window, or it does not matter
    within: float  # in 8 of 10; 0 where it is not known
    longer: float  # at most


def together(found: Meetings, changed: dict[int, Array], variants: int) -> Together:
    """Of steps with some work changed, as for `Meetings.play`. On devices ranks wait in a kernel: nothing differs."""
    if found.on_devices:
        return Together(True, 0.0, 0.0)
    before, after = found.play(), found.play(changed, variants)
    parts = [_of_group(one, before, after, changed.get(place, one.work[None])) for place, one in enumerate(found.met)]
    if all(one.known for one in parts):
        return Together(True, sum(one.within for one in parts), sum(one.longer for one in parts))
    most = sum(one.most for one in parts)
    negligible = most <= NEGLIGIBLE * float(after[:, -1].mean())
    return Together(negligible, *([most if negligible else 0.0] * 2))


@dataclass(frozen=True, slots=True)
class _Group:
    """What collectives of one group differ by, in ns; `most`: where nothing is known."""

    known: bool
    within: float
    longer: float
    most: float


def _of_group(one: Met, before: Array, after: Array, work: Array) -> _Group:
    """`before` and `after`: when meetings end; `work`: as it is after."""
    usual = usually(one.shared, one.alike)
    was = _gaps(one, before, one.work[None])[0] < usual
    newly = ((_gaps(one, after, work) < usual) & ~was).mean(axis=0)
    lasted = float((newly * one.shared).sum())
    most = (LONGER_MOST - 1) * lasted
    if newly.sum() <= was.sum():
        usual_together = one.shared[was].mean() if was.any() else 0.0
        within = abs(float((newly * (usual_together - one.shared)).sum()))
        return _Group(True, within, within, most)
    prompt = np.maximum(one.shared - usual, 0.0).sum() <= PROMPT * one.shared.sum()
    return _Group(bool(prompt), PROMPT_WITHIN * lasted, PROMPT_MOST * lasted, most)


def _gaps(one: Met, ends: Array, work: Array) -> Array:
    """Between the last two arrivals at each meeting, a row for each variant."""
    padded = np.concatenate([ends, np.zeros((len(ends), 1))], axis=1)  # the last column is NONE: the window begins
    arrivals = np.partition(padded[:, one.before] + work, -2, axis=1)
    gaps: Array = arrivals[:, -1] - arrivals[:, -2]
    return gaps
