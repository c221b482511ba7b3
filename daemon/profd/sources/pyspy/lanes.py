"""Which cores samplers may run on, so that those of one user leave the others of the host to everybody else.

A sampler keeps one core busy at most, and does where a sample takes longer than is left until the next one. So a user's
first ones run wherever there is room, as many as a quarter of the cores (one at least), and all further ones share
a lane of as many cores. The kernel keeps them there, whatever they cost: they are late then, and say so. Their
user cannot change it, as they hold a capability (docs/security.md, Samplers).

Where the daemon's cgroup bounds its CPU time (CPUQuota=), samplers could use that up, and the daemon would stand still
with them. So all of them run on half as many cores as are allowed there, one at least, the first ones, too.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final

from profd.targets import cgroup

LANE_SHARE: Final = 0.25  # of the cores that the daemon may use
ANY: Final[frozenset[int]] = frozenset()


class SamplerLanes:
    """Of one daemon. Used on the event loop's thread."""

    def __init__(self, cores: Collection[int] = (), allowed: float | None = None) -> None:
        """`cores`: their numbers, `allowed`: the time of how many may be used; none: as it is for this process."""
        # The last ones first: drivers and kernels have their interrupts on the first.
        self._cores = sorted(cores or os.sched_getaffinity(0), reverse=True)
        allowed = cgroup.cores_allowed() if allowed is None else allowed
        most = min(float(len(self._cores)), allowed)
        self.width = max(1, int(most * LANE_SHARE))
        self._anywhere = self.width if allowed >= len(self._cores) else 0  # samplers of a user
        if not self._anywhere:
            self._cores = self._cores[: max(1, int(most / 2))]
        self._free: Counter[int] = Counter()  # samplers that run on any core, by user
        self._bound: Counter[int] = Counter()  # and on the user's lane
        self._lanes: dict[int, frozenset[int]] = {}

    @contextlib.contextmanager
    def one_more(self, uid: int) -> Iterator[frozenset[int]]:
        """The cores of one more sampler of this user, for as long as the block; ANY: no limit."""
        free = self._free[uid] < self._anywhere
        counted = self._free if free else self._bound
        counted[uid] += 1
        try:
            yield ANY if free else self._lane(uid)
        finally:
            counted[uid] -= 1
            if not counted[uid]:
                del counted[uid]
            if uid not in self._bound:
                self._lanes.pop(uid, None)

    def _lane(self, uid: int) -> frozenset[int]:
        """The user's own, made of those cores that the fewest lanes have."""
        if uid not in self._lanes:
            taken = Counter(core for lane in self._lanes.values() for core in lane)
            self._lanes[uid] = frozenset(sorted(self._cores, key=taken.__getitem__)[: self.width])
        return self._lanes[uid]
