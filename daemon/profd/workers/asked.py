"""Jobs in the turn of the caller whose RPC runs now."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any

from profd.fairness.shares import Holder
from profd.trust import caller as callers
from profd.workers.pool import OnProgress, WorkerPool
from profd.workers.turns import JobKind, Turn


class Asked:
    """`WorkerPool.run` for questions and imports, or for all that is of one `kind`.

    `short`: jobs that end by themselves, however slowly somebody reads; `glances`: those of a person who moves about.
    A job that has the argument `looks` is a glance, too.
    A job without a caller, which an earlier daemon left, has the turn of its `owner`.
    """

    def __init__(
        self,
        pool: WorkerPool,
        kind: JobKind | None = None,
        owner: int = 0,
        short: Collection[str] = (),
        glances: Collection[str] = (),
        looks: str = "",
    ) -> None:
        self._pool = pool
        self._short = short
        self._glances = glances
        self._looks = looks
        self._always = kind
        self._owner = owner

    async def __call__(
        self, job: str, args: dict[str, Any], fds: Sequence[int] = (), on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Run a job that the pool knows; raises ProfdError."""
        return await self._pool.run(job, args, fds, on_progress, turn=Turn(self._holder(), self._kind(job, args)))

    def _kind(self, job: str, args: Collection[str]) -> JobKind:
        if self._always is not None:
            return self._always
        if job in self._glances or self._looks in args:
            return JobKind.GLANCE
        return JobKind.QUESTION if job in self._short else JobKind.LONG

    def _holder(self) -> Holder:
        try:
            return Holder.of(callers.current())
        except LookupError:
            return Holder(self._owner, self._owner in (0, os.geteuid()))
