"""What ledgers remember of the processes of one user: an entry for each thread and for each gap, and a share of them.

A process alone may have INGEST_THREADS_MAX threads, 8 MB; 512 of one user came to 4 GB.
"""

from __future__ import annotations

import os
from weakref import WeakValueDictionary

from profd.limits import INGEST_REMEMBERED_PER_UID_MAX


class EntryAllowance:
    """Entries of one user, or of one ledger alone. One thread at a time: a user's chunks are never in two."""

    def __init__(self, entries_max: int | None = INGEST_REMEMBERED_PER_UID_MAX) -> None:
        """None: without a limit."""
        self._entries_max = entries_max
        self._used = 0

    def left(self, wanted: int = 1) -> int:
        """How many of these may be had."""
        if self._entries_max is None:
            return wanted
        return max(0, min(wanted, self._entries_max - self._used))

    def use(self, count: int) -> None:
        """So many more, or fewer."""
        self._used += count


class Remembered:
    """The allowances of all users, each for as long as a ledger has it. On the event loop."""

    def __init__(self, each: int = INGEST_REMEMBERED_PER_UID_MAX) -> None:
        self._each = each
        self._users: WeakValueDictionary[int, EntryAllowance] = WeakValueDictionary()

    def of(self, uid: int) -> EntryAllowance:
        """The allowance of this user; root, and who runs the daemon, have no limit."""
        found = self._users.get(uid)
        if found is None:
            found = self._users[uid] = EntryAllowance(None if uid in (0, os.geteuid()) else self._each)
        return found
