"""The same collectives of all ranks of a job, group by group, and what they say of its clocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from profd.answers.finding import ordinal
from profd.answers.ranks import names
from profd.answers.ranks.clocks import Clocks, closed, most_ahead
from profd.answers.ranks.matching import Collectives, Match, NoMatch, match
from profd.answers.ranks.recorded import Recorded
from profd.events.table import Array

RANKS_MAX: Final = 1024  # whose clocks are compared: the time is that number to the third
FIRSTS_MAX: Final = 3  # ranks with which the others are matched in turn, until half of them do
COMMON_MIN: Final = 0.5  # of the first rank's collectives, over all ranks
_STREAM: Final = "stream "
LOOKED_AT: Final = 400_000_000  # differences of times of two ranks: a bound of fewer collectives is as true, and wider


@dataclass(frozen=True, slots=True)
class Clock:
    """Whose clock the times of a trace are of, and how wrong they may be by it."""

    host: str
    within_ns: int


@dataclass(frozen=True, slots=True)
class Group:
    """Collectives that were found on all `ranks`; a row for each of these, a column for each collective."""

    name: str  # as the processes call it, or `stream 7` (of a device); empty: all collectives of a process
    ranks: Array  # places in the list of ranks, ascending
    place: Array  # int64: in what a rank recorded
    start: Array  # int64 ns, of each rank's clock
    end: Array
    op: list[str]

    @property
    def waited(self) -> Array:
        """How long each rank was in a collective before the last one came: they leave it at the same time."""
        lasted = self.end - self.start
        found: Array = lasted - lasted.min(axis=0)
        return found


@dataclass(slots=True)
class Matched:
    """What all ranks have in common."""

    groups: list[Group] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)  # by the place of a rank: why some of its were not found
    clocks: Clocks | None = None  # of all ranks; bounds may be infinite
    no_clocks: str = ""  # why there are none


def matched(ranks: Sequence[Recorded], known: Sequence[Clock | None]) -> Matched:
    """Of ranks in order. `known`: the clock of each, where a source says how its times come from the host's."""
    found = Matched()
    by_group = _by_group(ranks)
    keys: dict[tuple[str, str], int] = {}
    for name in sorted(by_group):
        members = by_group[name]
        if len(members) < 2:
            continue
        group = _matched(name, ranks, members, keys, known, found.refused)
        if group is not None:
            found.groups.append(group)
    if not found.groups:
        found.no_clocks = "no collective was found on two ranks"
    elif len(ranks) > RANKS_MAX:
        found.no_clocks = f"clocks of more than {RANKS_MAX:,} ranks are not compared"
    else:
        found.clocks = closed(_most(found.groups, known))
        found.no_clocks = "" if found.clocks else "no constant offsets fit: a clock drifts, or was set"
    return found


def _by_group(ranks: Sequence[Recorded]) -> dict[str, dict[int, Array]]:
    """Places of each rank's collectives, by group, then by rank. Point to point belongs to two ranks: it is not here.

    Where groups were not recorded streams stand for them, if all ranks use the same ones.
    """
    streams = [_streams(one) for one in ranks]
    by_stream = (
        all(one.on_device for one in ranks if len(one)) and len({frozenset(some) for some in streams if some}) == 1
    )
    found: dict[str, dict[int, Array]] = {}
    for rank, one in enumerate(ranks):
        places: dict[str, list[int]] = {}
        for at, (op, group, stream) in enumerate(zip(one.op, one.group, streams[rank], strict=True)):
            if op not in names.POINT_TO_POINT:
                places.setdefault(group or (stream if by_stream else ""), []).append(at)
        for name, some in places.items():
            found.setdefault(name, {})[rank] = np.array(some, dtype=np.int64)
    return found


def _streams(one: Recorded) -> list[str]:
    """The stream of each collective, with its device where there are several: each has a stream 7.

    Devices are counted in their order: ranks of one host have others.
    """
    devices, place = np.unique(one.device, return_inverse=True)
    of = [f" of the {ordinal(number + 1)} device" if len(devices) > 1 else "" for number in range(len(devices))]
    return [f"{_STREAM}{stream}{of[at]}" for stream, at in zip(one.stream.tolist(), place.tolist(), strict=True)]


def _matched(
    name: str,
    ranks: Sequence[Recorded],
    members: dict[int, Array],
    keys: dict[tuple[str, str], int],
    known: Sequence[Clock | None],
    refused: dict[int, str],
) -> Group | None:
    calls = {rank: _collectives(ranks[rank], places, keys) for rank, places in members.items()}
    first, pairs = _by_first(calls, known)
    for rank, pair in pairs.items():
        if isinstance(pair, NoMatch):
            refused.setdefault(rank, f"{_where(name)}{pair.why}")
    there, common = _in_common(first, pairs, len(calls[first]), refused)
    if len(there) < 2:
        return None
    chosen = sorted(there)
    place = np.stack([members[rank][there[rank][common]] for rank in chosen])
    start, end = (
        np.stack([getattr(ranks[rank], edge)[at] for rank, at in zip(chosen, place, strict=True)])
        for edge in ("start", "end")
    )
    return Group(name, np.array(chosen), place, start, end, [ranks[chosen[0]].op[at] for at in place[0].tolist()])


def _by_first(calls: dict[int, Collectives], known: Sequence[Clock | None]) -> tuple[int, dict[int, Match | NoMatch]]:
    """The rank that all others are matched with, and how. One that most of them refuse may be of another job."""
    by_count = sorted(calls, key=lambda rank: (-len(calls[rank]), rank))
    best: tuple[int, int, dict[int, Match | NoMatch]] = -1, by_count[0], {}
    for first in by_count[:FIRSTS_MAX]:
        pairs = {
            rank: match(calls[first], calls[rank], _apart(known[first], known[rank]))
            for rank in sorted(calls)
            if rank != first
        }
        right = sum(isinstance(pair, Match) for pair in pairs.values())
        if right > best[0]:
            best = right, first, pairs
        if 2 * right >= len(pairs):
            break
    return best[1:]


def _in_common(
    first: int, pairs: dict[int, Match | NoMatch], count: int, refused: dict[int, str]
) -> tuple[dict[int, Array], Array]:
    """(of each rank the places of the first one's collectives, those that all of these ranks have).

    A rank that has few of them (its trace ends early) is refused: the others would be compared over as few.
    """
    there, common = {first: np.arange(count)}, np.arange(count)
    matches = {rank: pair for rank, pair in pairs.items() if isinstance(pair, Match)}
    for rank in sorted(matches, key=lambda rank: (-len(matches[rank].first), rank)):
        kept = np.intersect1d(common, matches[rank].first)
        if len(kept) < COMMON_MIN * count:
            refused.setdefault(rank, f"its window has {len(kept)} of {count} collectives in common with the others")
            continue
        common = kept
        there[rank] = _back(matches[rank], count)
    return there, common


def _where(group: str) -> str:
    if not group:
        return ""
    return f"in {group}: " if group.startswith(_STREAM) else f"in group {group}: "


def _back(pair: Match, count: int) -> Array:
    """Of each collective of the first rank its place on the other."""
    found = np.full(count, -1, dtype=np.int64)
    found[pair.first] = pair.second
    return found


def _collectives(one: Recorded, places: Array, keys: dict[tuple[str, str], int]) -> Collectives:
    key = [keys.setdefault((one.op[at], one.size[at]), len(keys)) for at in places.tolist()]
    sequence = one.sequence[places]
    # Several kernels of one call have its number: then the order decides.
    told = len(sequence) > 0 and bool((sequence >= 0).all()) and len(np.unique(sequence)) == len(sequence)
    return Collectives(np.array(key, dtype=np.int64), one.start[places], one.end[places], sequence if told else None)


def _apart(one: Clock | None, other: Clock | None) -> tuple[int, int] | None:
    if one is None or other is None or one.host != other.host:
        return None
    most = one.within_ns + other.within_ns
    return -most, most


def _most(groups: Sequence[Group], known: Sequence[Clock | None]) -> Array:
    """What each clock is ahead of each other at most, by the collectives in which all wait, and by one host's clock."""
    count = len(known)
    most = np.full((count, count), np.inf)
    for group in groups:
        waits = np.array([op in names.WAIT_FOR_ALL for op in group.op], dtype=bool)
        at = np.flatnonzero(waits)
        if not len(at):
            continue
        step = -(-len(at) * len(group.ranks) ** 2 // LOOKED_AT)
        at = at[::step]
        among = np.ix_(group.ranks, group.ranks)
        most[among] = np.minimum(most[among], most_ahead(group.start[:, at], group.end[:, at]))
    for host in {one.host for one in known if one is not None}:
        at = np.array([place for place, one in enumerate(known) if one is not None and one.host == host])
        within = np.array([one.within_ns for one in known if one is not None and one.host == host], dtype=np.float64)
        most[np.ix_(at, at)] = np.minimum(most[np.ix_(at, at)], within[:, None] + within[None, :])
    return most


def arrived(group: Group, clocks: Clocks) -> tuple[Array, Array]:
    """(the row of the rank that came last, whether that is proved) of each collective of a group."""
    last = (group.start - clocks.ahead[group.ranks][:, None]).argmax(axis=0)
    most = clocks.most[np.ix_(group.ranks, group.ranks)][last].T  # what the last one's clock is ahead of each at most
    lead = group.start[last, np.arange(len(last))] - group.start
    return last, ((lead > most) | (np.arange(len(group.ranks))[:, None] == last)).all(axis=0)
