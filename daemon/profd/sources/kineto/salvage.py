"""Whole trace files that nobody took, because the daemon was killed before or while it did.

The next one takes them before anything of the target's is swept, into the directory that the killed one had made for
them: there they are as what other sources leave behind, for `profctl retry`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from profd.disk.space import Claim
from profd.journal.journal import NOTE
from profd.limits import KINETO_SALVAGE_SECONDS
from profd.sources.kineto.leftovers import Leftover, Leftovers, opened
from profd.sources.kineto.trace_file import edges
from profd.targets.errands.directory import SilentDirectory
from profd.targets.pickup import NotTaken

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


async def salvage(leftovers: Leftovers, journal: Path, claim: Callable[[int], Claim]) -> int:
    """Take what an earlier daemon would have taken; how many. Bounded in time: what remains is swept.

    Nobody waits for files of others.
    """
    of_users: dict[int, list[tuple[Leftover, Path]]] = {}
    for item, directory in await asyncio.to_thread(_waiting, leftovers.items(), journal):
        of_users.setdefault(item.uid, []).append((item, directory))
    taken: list[Leftover] = []

    async def take_those_of(uid: int) -> None:
        for item, directory in of_users[uid]:
            with contextlib.closing(claim(uid)) as room, contextlib.suppress(SilentDirectory, OSError):
                if await _take(item, directory, room, leftovers):
                    taken.append(item)

    try:
        async with asyncio.timeout(KINETO_SALVAGE_SECONDS):
            await asyncio.gather(*map(take_those_of, of_users))
    except TimeoutError:
        log.warning("kineto: traces of before the restart were not taken in time", extra={"taken": len(taken)})
    return len(taken)


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


def _folder(item: Leftover) -> str:
    return f"{item.pid}-{item.start_ticks}"


async def _take(item: Leftover, directory: Path, claim: Claim, leftovers: Leftovers) -> bool:
    source = await opened(item)
    if isinstance(source, NotTaken):
        return False
    try:
        if await source.look(item.name) is None:  # it is still written, or never was
            return False
        path = directory / TRACE
        await asyncio.to_thread(path.with_name(f"{TRACE}.part").unlink, missing_ok=True)
        taken = await source.take(item.name, path, claim)
    finally:
        source.close()
    if isinstance(taken, NotTaken):
        log.warning("kineto: a trace of before the restart was not taken", extra={"why": taken.message})
        return False
    seen = await asyncio.to_thread(edges, path)
    if seen.trace_id is not None and f"profd-{seen.trace_id}_" not in item.name:
        await asyncio.to_thread(path.unlink)
        return False
    await asyncio.to_thread(note, directory, whole=not taken.cut and seen.complete)
    if taken.cut:  # the rest is nowhere else
        await asyncio.to_thread(leftovers.done, item.name)
    return True
