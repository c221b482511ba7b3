"""Which traces go when the store is over its limit. Pure.

The user who has stored the most goes on paying until all is within the limit: the user's oldest trace goes, and so on.
A user who stays below an equal share of the store is not touched by what others store. Pinned traces stay, and count.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evictable:
    """A trace, as far as this matters."""

    id: str
    uid: int
    bytes: int
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class Preview:
    """What storing a trace would mean. Bytes."""

    limit: int
    stored: int
    share: int  # an equal one for each user with traces
    own: int
    own_pinned: int
    gone: list[str]  # the first ids of those that the user may see, in this order
    more: int  # of these that are not named
    others: int  # that the user may not see
    refusal: str  # why it would not be stored; empty if it would


def victims(oldest_first: Iterable[Evictable], limit: int) -> list[Evictable]:
    """What to remove, in this order, so that the rest is within the limit as far as pins allow."""
    used: dict[int, int] = defaultdict(int)
    loose: dict[int, deque[tuple[int, Evictable]]] = defaultdict(deque)
    for age, trace in enumerate(oldest_first):
        used[trace.uid] += trace.bytes
        if not trace.pinned:
            loose[trace.uid].append((age, trace))
    over = sum(used.values()) - limit
    most = [(-used[uid], traces[0][0], uid) for uid, traces in loose.items()]  # of equals, who has the oldest
    heapq.heapify(most)
    gone: list[Evictable] = []
    while over > 0 and most:
        minus_used, _, uid = heapq.heappop(most)
        _, trace = loose[uid].popleft()
        gone.append(trace)
        over -= trace.bytes
        if loose[uid]:
            heapq.heappush(most, (minus_used + trace.bytes, loose[uid][0][0], uid))
    return gone
