"""A job in a worker of its own, which may read and change what the job names, and nothing else: for commands of root.

Without a daemon there is no pool, and there are no gates. The worker keeps uid 0, without capabilities, behind Landlock
and the list of system calls; the files of an owner other than root are read as that owner.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from profclient import temporary

from profd.errors import Denied, WorkerDied
from profd.kernel.identity import SAME, WorkerIdentity
from profd.limits import WORKER_MEMORY_BYTES
from profd.workers.child import Child, WorkerGone, WorkerSettings

_STAGING: Final = "staging"  # as in `gate.py`
_FIX: Final = (
    "copy the store to another user's directory (cp -r, chown -R) and run this as that user, or ask a daemon of it"
)


class Alone:
    """Runs jobs with the contract of `WorkerPool.run`, each in a fresh process."""

    def __init__(self, known: Mapping[str, str], directories: Sequence[str], owner: WorkerIdentity = SAME) -> None:
        """`known`: where the job of each name lies. `directories`: arguments that name what the job may read."""
        self._known = known
        self._directories = directories
        self._owner = owner

    async def run(
        self,
        job: str,
        args: dict[str, Any],
        fds: Sequence[int] = (),
        on_progress: Callable[[str, float], None] | None = None,
    ) -> dict[str, Any]:
        """One job; its result. Raises the ProfdError that it raised, and JobFailed for every other end."""
        with self._scratch() as scratch:
            worker = await Child.start(self._settings(job, args, scratch))
            try:
                return await worker.run(job, args, fds, on_progress)
            except WorkerGone as error:
                raise WorkerDied(f"the worker running {job!r} {error}") from error
            finally:
                await worker.kill()

    def _settings(self, job: str, args: Mapping[str, Any], scratch: Path) -> WorkerSettings:
        read = [path for name in self._directories if name in args for path in _listed(args[name])]
        change = [args[_STAGING]] if _STAGING in args else []
        return WorkerSettings(
            self._owner,
            WORKER_MEMORY_BYTES,
            {job: self._known[job]},
            read=tuple(read),
            change=(*change, str(scratch)),
            scratch=scratch,
            otherwise=_FIX,
        )

    @contextlib.contextmanager
    def _scratch(self) -> Iterator[Path]:
        """A folder for its files, which is its owner's. Raises Denied where another user could exchange it."""
        try:
            scratch = Path(tempfile.mkdtemp(prefix="profd-alone-", dir=temporary.place()))
        except PermissionError as error:
            raise Denied(f"{error.filename} is no place for what root's worker writes: {error.strerror}.") from error
        try:
            if self._owner.uid is not None:
                os.chown(scratch, self._owner.uid, -1 if self._owner.gid is None else self._owner.gid)
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _listed(place: str | Sequence[str]) -> list[str]:
    """Absolute, since a worker is at home nowhere."""
    return [place] if isinstance(place, str) else [*place]
