"""Some ranks of many, spread over the hosts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

SAMPLED_ABOVE: Final = 16  # ranks; nobody reads more traces than that one by one
SAMPLE: Final = 8


def spread(ranks: Mapping[str, Sequence[int]], count: int) -> dict[str, list[int]]:
    """So many of the hosts' ranks, the same number of each host and from different places on it, as far as they reach.

    A rank that several hosts have is the first one's. Hosts without any of the ranks are not in the answer.
    """
    there = _own(ranks)
    chosen = {host: _even(there[host], quota, at) for at, (host, quota) in enumerate(_quotas(there, count).items())}
    return {host: some for host, some in chosen.items() if some}


def _own(ranks: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    seen: set[int] = set()
    own: dict[str, list[int]] = {}
    for host, there in ranks.items():
        own[host] = sorted(set(there) - seen)
        seen |= set(there)
    return own


def _quotas(there: Mapping[str, Sequence[int]], count: int) -> dict[str, int]:
    quotas = dict.fromkeys(there, 0)
    while count and (room := [host for host in there if quotas[host] < len(there[host])]):
        turns = min(count, len(room))
        for at in range(turns):
            quotas[room[at * len(room) // turns]] += 1
        count -= turns
    return quotas


def _even(ranks: Sequence[int], count: int, at: int) -> list[int]:
    """So many of these, at the same distance; the first one is another on each host."""
    if not count:
        return []
    first = at % (len(ranks) // count)
    return [ranks[first + turn * len(ranks) // count] for turn in range(count)]
