"""Whole trace files that nobody took, because the daemon was killed before or while it did.

The next one takes them before anything of the target's is swept, into the directory that the killed one had made for
them: there they are as what other sources leave behind, for `profctl retry`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import Final

from profd.disk.space import Claim
from profd.journal.journal import NOTE, Key
from profd.limits import KINETO_SALVAGE_SECONDS
from profd.sources.kineto.leftovers import Leftover, Leftovers, opened
from profd.sources.kineto.trace_file import edges
from profd.targets.errands.directory import SilentDirectory
from profd.targets.pickup import NotTaken, Refusal

TRACE: Final = "trace.json"
"""The name of a trace in its directory of the journal."""

log = logging.getLogger(__name__)


def note(directory: Path, *, whole: bool) -> None:
    """Say before a file is brought there what it is, for a daemon that finds nothing but that. OSError."""
    (directory / NOTE).write_text(json.dumps({"files": {TRACE: "chrome"}, "whole": whole}))


def forget(directory: Path) -> None:
    """Nothing is kept of what was brought there, or was to be. OSError."""
    for name in (TRACE, NOTE):
        (directory / name).unlink(missing_ok=True)


class Salvage:
    """What an earlier daemon would have taken, and the captures that wait for it."""

    def __init__(self, leftovers: Leftovers, journal: Path, claim: Callable[[int], Claim]) -> None:
        """Goes through the journal: for a thread."""
        self._leftovers = leftovers
        self._claim = claim
        self._of_users: dict[int, list[tuple[Leftover, Path]]] = {}
        self._left: Counter[Key] = Counter()
        for item, directory in _waiting(leftovers.items(), journal):
            self._of_users.setdefault(item.uid, []).append((item, directory))
            self._left[_key(item, directory)] += 1
        # By capture and process: set once its trace is in the journal, or is known not to come there.
        self.settled = {key: asyncio.Event() for key in self._left}

    async def take(self) -> int:
        """Take them; how many. Bounded in time. What is not taken when this is cancelled is left to the next daemon.

        Nobody waits for files of others. A whole trace that is not taken has no other copy: it is not swept either.
        """
        taken: list[Leftover] = []
        not_taken = {item.name for items in self._of_users.values() for item, _ in items}

        async def take_those_of(uid: int) -> None:
            for item, directory in self._of_users[uid]:
                found = await self._found(item, directory)
                if found is not Found.NOT_TAKEN:
                    not_taken.discard(item.name)
                if found is Found.TAKEN:
                    taken.append(item)
                self._done(_key(item, directory))

        try:
            async with asyncio.timeout(KINETO_SALVAGE_SECONDS):
                await asyncio.gather(*map(take_those_of, self._of_users))
        except TimeoutError:
            told = {"taken": len(taken), "left_where_they_are": len(not_taken)}
            log.warning("kineto: traces of before the restart were not taken in time", extra=told)
        except Exception:  # captures wait for an end
            log.exception("kineto: taking traces of before the restart failed")
        for settled in self.settled.values():
            settled.set()
        for name in not_taken:
            await asyncio.to_thread(self._leftovers.done, name)
        return len(taken)

    def _done(self, key: Key) -> None:
        self._left[key] -= 1
        if not self._left[key]:
            self.settled[key].set()

    async def _found(self, item: Leftover, directory: Path) -> Found:
        with contextlib.closing(self._claim(item.uid)) as room:
            try:
                return await _take(item, directory, room, self._leftovers)
            except SilentDirectory:
                return Found.NOTHING  # it is looked for again when it is swept
            except Exception:
                log.exception("kineto: a trace of before the restart was not taken")
                return Found.NOT_TAKEN


def _waiting(items: Sequence[Leftover], journal: Path) -> list[tuple[Leftover, Path]]:
    """Processes whose capture was under way, with the directory that waits for their trace.

    The journal is gone through once, however many are looked for: all users' captures are in it, and nobody is served.
    """
    names = {_folder(item) for item in items}
    found: dict[str, tuple[int, Path]] = {}  # the newest of each
    for path in journal.glob("*/*") if names else ():
        if path.name in names and not (path / TRACE).exists():
            found[path.name] = max((path.stat().st_mtime_ns, path), found.get(path.name, (-1, path)))
    return [(item, found[_folder(item)][1]) for item in items if _folder(item) in found]


def _key(item: Leftover, directory: Path) -> Key:
    return directory.parent.name, item.process


def _folder(item: Leftover) -> str:
    return f"{item.pid}-{item.start_ticks}"


class Found(Enum):
    """What has come of a trace that was looked for."""

    NOTHING = auto()  # it is still written, or never was; or it is not ours to take
    TAKEN = auto()
    NOT_TAKEN = auto()  # there is one


async def _take(item: Leftover, directory: Path, claim: Claim, leftovers: Leftovers) -> Found:
    source = await opened(item)
    if isinstance(source, NotTaken):
        return Found.NOTHING
    try:
        if await source.look(item.name) is None:
            return Found.NOTHING
        path = directory / TRACE
        await asyncio.to_thread(path.with_name(f"{TRACE}.part").unlink, missing_ok=True)
        first = not path.exists()
        if first:  # for the daemon that comes behind this one, should it end meanwhile
            await asyncio.to_thread(note, directory, whole=False)
        taken = await source.take(item.name, path, claim)
    finally:
        source.close()
    if isinstance(taken, NotTaken):
        if first:
            await asyncio.to_thread(forget, directory)
        log.warning("kineto: a trace of before the restart was not taken", extra={"why": taken.message})
        return Found.NOTHING if taken.code is Refusal.NO_ANSWER else Found.NOT_TAKEN
    seen = await asyncio.to_thread(edges, path)
    if seen.trace_id is not None and f"profd-{seen.trace_id}_" not in item.name:
        await asyncio.to_thread(forget, directory)
        return Found.NOTHING
    await asyncio.to_thread(note, directory, whole=not taken.cut and seen.complete)
    if taken.cut:  # the rest is nowhere else
        await asyncio.to_thread(leftovers.done, item.name)
    return Found.TAKEN
