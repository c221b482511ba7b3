"""How much of a thing one user may hold at once, and what stays for the others.

A user is a uid: the kernel says it, and nobody can make more of them. Containers that share a uid may be told apart
within its share (decision 0036): a full one admits a container with less than a fair part of it.
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
    """Whose share it is. The user who runs the host, or this daemon, has a reserve that others cannot use up."""

    uid: int
    reserved: bool
    container: int = 0  # of `trust.namespaces.container`; 0: none, or not asked

    @classmethod
    def of(cls, caller: Identity) -> Self:
        """Of a caller."""
        return cls(caller.uid, caller.admin or caller.uid == os.geteuid() != 0)

    @classmethod
    def of_user(cls, uid: int) -> Self:
        """Of a user whose rights are not known: reserved for who runs the daemon alone."""
        return cls(uid, uid == os.geteuid())


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
        self._held: dict[int, Counter[int]] = {}  # by uid, and container
        self._reserve: Counter[int] = Counter()
        self._total = 0

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
        share = self._share
        if holder.reserved:
            self._check_part(self._reserve, holder, share.reserved, "kept for root and profd's admins")
            return
        own = self._held.get(holder.uid, Counter())
        self._check_part(own, holder, share.each, "of one user")
        others = len(self._held) - (holder.uid in self._held)
        if _is_full(share.host, self._total, own.total(), others):
            self._refuse(share.host, self._total, "of this host")

    def _check_part(self, parts: Counter[int], holder: Holder, limit: int, whose: str) -> None:
        others = len(parts) - (holder.container in parts)
        if _is_full(limit, parts.total(), parts[holder.container], others):
            self._refuse(limit, parts.total(), whose)

    def _refuse(self, limit: int, use: int, whose: str) -> None:
        share = self._share
        raise Refused(
            f"{use} of {limit} {share.what} at once ({whose}) are in use; wait for one to end, or try again in "
            f"{share.retry_seconds:g} s",
            *(share.kind, limit, use, share.retry_seconds),
        )

    def _add(self, holder: Holder, count: int) -> None:
        parts = self._reserve if holder.reserved else self._held.setdefault(holder.uid, Counter())
        parts[holder.container] += count
        if not parts[holder.container]:
            del parts[holder.container]
        if holder.reserved:
            return
        self._total += count
        if not parts:
            del self._held[holder.uid]


def _is_full(limit: int, total: int, use: int, others: int) -> bool:
    """Whether one of `others` and me may have no more. One with less than the others is let in: a few more are held."""
    return total >= limit and (use >= limit // (others + 1) or total >= SHARES_CROWD_FACTOR * limit)
