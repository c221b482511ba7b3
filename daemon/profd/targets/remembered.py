"""What is remembered of processes between two lists: a share for each user.

A process can have an environment and a command line whose texts take 300 kB, and a user tens of thousands of processes.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Set as AbstractSet
from typing import Final, Generic, Protocol, TypeVar

from profd.limits import PROC_REMEMBERED_BYTES_PER_UID, PROC_REMEMBERED_MAX
from profd.targets.process import ProcessId


class Fact(Protocol):
    """What is remembered of one process."""

    @property
    def payer(self) -> int:
        """The uid whose share it takes."""
        ...

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        ...


T = TypeVar("T", bound=Fact)


class Remembered(Generic[T]):
    """Facts by process. `get` may be called from any thread; the rest one thread at a time."""

    def __init__(self, each: int = PROC_REMEMBERED_BYTES_PER_UID, most: int = PROC_REMEMBERED_MAX) -> None:
        """`each`: bytes of one user; root, and who runs the daemon, have no limit. `most`: processes."""
        self._each = each
        self._most = most
        self._unlimited: Final = (0, os.geteuid())
        self._facts: dict[ProcessId, T] = {}
        self._held: defaultdict[int, int] = defaultdict(int)  # bytes, by uid

    def get(self, process: ProcessId) -> T | None:
        """What is remembered of it."""
        return self._facts.get(process)

    def processes(self) -> AbstractSet[ProcessId]:
        """All of which something is."""
        return self._facts.keys()

    def keep(self, process: ProcessId, fact: T) -> None:
        """Remember it, unless its user's share is used up; what was known before is forgotten in any case."""
        self.forget(process)
        if fact.payer not in self._unlimited and self._held.get(fact.payer, 0) + fact.size > self._each:
            return
        if len(self._facts) >= self._most:
            self._forget_all_of(max(self._held, key=self._held.__getitem__))
        self._facts[process] = fact
        self._held[fact.payer] += fact.size

    def forget(self, process: ProcessId) -> None:
        """Remember nothing of it. Safe to repeat."""
        fact = self._facts.pop(process, None)
        if fact is not None:
            self._held[fact.payer] -= fact.size
            if not self._held[fact.payer]:
                del self._held[fact.payer]

    def _forget_all_of(self, uid: int) -> None:
        for process in [process for process, fact in self._facts.items() if fact.payer == uid]:
            self.forget(process)
