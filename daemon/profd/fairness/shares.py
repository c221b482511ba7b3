"""How much of a thing one user may hold at once, and what stays for the others.

A user is a uid: the kernel says it, and nobody can make more of them. Pid and user namespaces and, where they are
delegated, cgroups can be made at will, so holders are not told apart by them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, Self

from profd.errors import Exhausted
from profd.limits import SHARES_CROWD_FACTOR


class Refused(Exhausted):
    """A share is used up: which (for the metrics), how much of it is used, and when to ask again."""

    def __init__(
        self, message: str, kind: str = "", limit: float = 0, use: float = 0, retry_seconds: float = 0
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.limit = limit
        self.use = use
        self.retry_seconds = retry_seconds


class Identity(Protocol):
    """What a holder is made of: a Caller."""

    @property
    def uid(self) -> int:
        """Of the process that asks."""
        ...

    @property
    def admin(self) -> bool:
        """Root, or a member of the admin group."""
        ...


@dataclass(frozen=True, slots=True)
class Holder:
    """Whose share it is. Who runs the host, or this daemon, has a reserve that others cannot use up."""

    uid: int
    reserved: bool

    @classmethod
    def of(cls, caller: Identity) -> Self:
        """Of a caller."""
        return cls(caller.uid, caller.admin or caller.uid == os.geteuid())


@dataclass(frozen=True, slots=True)
class Share:
    """A thing that is held: `each` by one user, `host` by all of them, and `reserved` beside for who runs the host."""

    kind: str
    what: str  # completes "… at once"
    each: int
    host: int
    reserved: int
    retry_seconds: float


class Shares:
    """Counts the holders of one thing. Used on the event loop's thread."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._held: Counter[int] = Counter()
        self._reserve = 0

    @contextmanager
    def take(self, holder: Holder) -> Iterator[None]:
        """Hold one for the block. Raises Refused."""
        self.hold(holder)
        try:
            yield
        finally:
            self.give_back(holder)

    def hold(self, holder: Holder) -> None:
        """Hold one until it is given back. Raises Refused."""
        self._check(holder)
        self._add(holder, 1)

    def give_back(self, holder: Holder) -> None:
        """One that was held."""
        self._add(holder, -1)

    def _check(self, holder: Holder) -> None:
        share, total = self._share, self._held.total()
        if holder.reserved:
            if self._reserve >= share.reserved:
                self._refuse(share.reserved, self._reserve, "kept for root and profd's admins")
            return
        use = self._held[holder.uid]
        if use >= share.each:
            self._refuse(share.each, use, "of one user")
        # A full host is no reason to refuse who has less than the others: a few more are held then.
        fair = share.host // (len(self._held) + (holder.uid not in self._held))
        if total >= share.host and (use >= fair or total >= SHARES_CROWD_FACTOR * share.host):
            self._refuse(share.host, total, "of this host")

    def _refuse(self, limit: int, use: int, whose: str) -> None:
        share = self._share
        raise Refused(
            f"{use} of {limit} {share.what} at once ({whose}) are in use; wait for one to end, or try again in "
            f"{share.retry_seconds:g} s",
            *(share.kind, limit, use, share.retry_seconds),
        )

    def _add(self, holder: Holder, count: int) -> None:
        if holder.reserved:
            self._reserve += count
            return
        self._held[holder.uid] += count
        if not self._held[holder.uid]:
            del self._held[holder.uid]
