"""Senders that say more in a second than there is to say. Pure: no sockets, no clocks."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from profd import limits

_SECOND_NS: Final = 1_000_000_000


class Floods:
    """Counts datagrams by process and by user, as the kernel names them, each second anew.

    What is beyond is dropped before it is looked at: a look into /proc costs ten times what receiving does, and while
    we look, the kernel's queue of ten datagrams, which is everybody's, is full.
    """

    def __init__(self) -> None:
        self._began_ns = 0
        self._pids: defaultdict[int, int] = defaultdict(int)
        self._uids: defaultdict[int, int] = defaultdict(int)

    def beyond(self, pid: int, uid: int, now_ns: int) -> bool:
        """Count one more; whether it is one too many."""
        if now_ns - self._began_ns >= _SECOND_NS:
            self._began_ns = now_ns
            self._pids.clear()
            self._uids.clear()
        self._pids[pid] = of_process = self._pids[pid] + 1
        if of_process > limits.KINETO_DATAGRAMS_PER_SECOND_MAX:
            return True  # and its user's others are not to suffer for it
        self._uids[uid] = of_user = self._uids[uid] + 1
        return of_user > limits.KINETO_DATAGRAMS_PER_UID_PER_SECOND_MAX
