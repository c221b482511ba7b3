"""What samples see a late rank do that the others do not: functions outside operators and collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from profd.answers.ranks.of_rank import Rank
from profd.answers.spans import Spans
from profd.events.table import Array
from profd.query.accounting import COVER_COLUMNS, beside_of, window_of
from profd.query.outside import OUTSIDE_COLUMNS, Outside

TIMES_MORE: Final = 3  # of what the others have: a few samples differ by chance
SEEN_MIN: Final = 3  # stretches of it that samples saw


def by_samples(looked: Sequence[tuple[Rank, Array]], steps: int, least_ns: float) -> tuple[str, float] | None:
    """The function that takes the first rank longest beyond the others, and by how many ns a step; at least `least_ns`.

    `looked`: ranks, each with the places of these steps in what was measured of it. None without such a function, and
    where a rank was not sampled.
    """
    mine, *others = (_seen(rank, place) for rank, place in looked)
    if mine is None or not others or any(one is None for one in others):
        return None
    found = []
    for name, (spent, stretches) in mine.items():
        usual = float(np.median([(one or {}).get(name, (0, 0))[0] for one in others]))
        if stretches >= SEEN_MIN and spent >= TIMES_MORE * usual and (spent - usual) / steps >= least_ns:
            found.append(((spent - usual) / steps, name))
    if not found:
        return None
    extra, name = max(found)
    return name, extra


def _seen(rank: Rank, place: Array) -> dict[str, tuple[int, int]] | None:
    """By name: ns in these steps, and the stretches they were in, no more than are kept. None: it was not sampled."""
    measured, reader, window = rank.measured, rank.member.open(), window_of(rank.meta)
    if window is None or int((beside_of(rank.meta.tracks) == measured.thread).sum()) < 2:
        return None
    outside = Outside(rank.meta, measured.thread)
    for table in reader.iterate((*COVER_COLUMNS, *OUTSIDE_COLUMNS), args=False):
        outside.add(table)
    whole = Spans(*(np.array([edge], dtype=np.int64) for edge in window))
    rest = whole.without(Spans.union(measured.start[place], measured.end[place]))
    rows = outside.of_program(measured.thread, (rest.start, rest.end))
    return {name: (spent, len(stretches)) for name, spent, stretches in rows}
