"""A directory of a target, held open by a process of the errands: `trust.pickup.TargetDirectory` from afar."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from profd import limits
from profd.disk.space import Claim, alone
from profd.errors import Exhausted
from profd.model.text import encodable
from profd.targets import first_looks, procfs
from profd.targets.errands import words
from profd.targets.errands.child import Child, NoAnswer
from profd.targets.errands.office import NUMBERS, Errands, errands
from profd.targets.identity import Accepted, Standing
from profd.targets.pickup import FoundFile, Inode, NotTaken, Refusal, Taken


class _Found(NamedTuple):
    device: int
    number: int
    bytes: int
    uid: int
    regular: bool
    links: int
    changed_ns: int


class _Copied(NamedTuple):
    device: int
    number: int
    data: int
    changed_ns: int
    cut: bytes


class Directory:
    """A directory as the target sees it, also after the target has ended. Every method but `close` may raise Silent.

    Users do not wait for each other: the event loop awaits an answer for ERRAND_SECONDS at most. A user with more than
    ERRANDS_PER_UID_MAX open directories has their questions answered in turn.
    """

    def __init__(self, child: Child, number: int, path: str, uid: int, office: Errands) -> None:
        self.path = path
        self.uid = uid
        self._child = child
        self._number = number
        self._office = office

    @classmethod
    async def of(cls, accepted: Accepted, path: str, office: Errands = errands) -> Directory | NotTaken:
        """Open absolute `path` below the root of a process, as far as its user could reach it.

        NotTaken where the process is another one now.
        """
        why = await asyncio.to_thread(accepted.hold)
        if why:
            return NotTaken(Refusal.UNREADABLE, why)
        pid = accepted.process.pid
        gids = await asyncio.to_thread(procfs.groups_of, pid)
        opened = await cls.open(path, accepted.uid, Path("/proc", str(pid), "root"), office, gids)
        # Asked behind the opening: what has exec'd before it does not become the same again.
        same = False
        try:
            same = await first_looks.standing(accepted, 1) is Standing.SAME
        finally:
            if not same and isinstance(opened, Directory):
                opened.close()
        return opened if same else NotTaken(Refusal.OTHER_PROGRAM, accepted.moved_on())

    @classmethod
    async def open(
        cls, path: str, uid: int, root: Path, office: Errands = errands, gids: Collection[int] | None = None
    ) -> Directory | NotTaken:
        """The same below any root (/ for our own), for files of `uid`. `gids`: see TargetDirectory.open."""
        if not path.startswith("/") or "\0" in path:
            return NotTaken(Refusal.MISSING, f"{path!r} is not an absolute path")
        try:
            number = next(NUMBERS)
            child = await office.holder(uid, number)
        except NoAnswer as error:
            return NotTaken(Refusal.NO_ANSWER, f"{path} is not looked at: {error}")
        found = cls(child, number, path, uid, office)
        try:
            groups = None if gids is None else list(gids)
            refused = await found._asked("open", os.fsencode(root), os.fsencode(path), uid, groups)
        except SilentDirectory as error:
            refused = error.refused
        except OSError as error:
            refused = NotTaken(Refusal.MISSING, f"{root} cannot be opened: {error.strerror}")
        except BaseException:
            found.close()
            raise
        if refused is None:
            return found
        found.close()
        return msgspec.convert(refused, NotTaken)

    def close(self) -> None:
        """Let go of it; a second call does nothing. Waits for nothing."""
        self._office.let_go(self._child, self._number)

    async def usable(self, gids: Collection[int]) -> tuple[str, int]:
        """A sentence if `uid` with these groups surely cannot make files here; bytes that may be written. OSError."""
        problem, free = msgspec.convert(await self._asked("usable", list(gids)), tuple[bytes, int])
        return os.fsdecode(problem), free

    async def look(self, name: str) -> FoundFile | None:
        """The entry of a name, links not followed; None if there is none."""
        found = await self._asked("look", os.fsencode(name))
        if found is None:
            return None
        seen = msgspec.convert(found, _Found)
        return FoundFile(Inode(seen.device, seen.number), *seen[2:])

    async def take(
        self, name: str, destination: Path, claim: Claim | None = None, data_max: int = limits.PICKUP_BYTES_MAX
    ) -> Taken | NotTaken:
        """As TargetDirectory.take. Counts bytes as they are copied; a copy that is given up leaves nothing."""
        claim = claim or alone()
        before, answered = claim.written, False
        try:
            asked = (os.fsencode(name), os.fsencode(destination), before, data_max)
            found = await self._asked("take", *asked, claim=claim)
            answered = True
        except SilentDirectory as error:
            return error.refused
        finally:
            if not answered:
                await asyncio.shield(self._office.aside(_remove, destination))
                claim.wrote(before)
        if isinstance(found, NotTaken):
            return found
        copied = msgspec.convert(found, _Copied)
        inode = Inode(copied.device, copied.number)
        return Taken(destination, inode, copied.data, copied.changed_ns, os.fsdecode(copied.cut))

    async def remove(self, name: str, inode: Inode) -> bool:
        """Unlink a name if it still means this file of the target. Whether it is gone."""
        return bool(await self._asked("remove", os.fsencode(name), inode.device, inode.number))

    async def _asked(self, what: str, *arguments: Any, claim: Claim | None = None) -> Any:
        """The answer of the process, or NotTaken. Raises Silent, and the file system's OSError."""
        child = self._child
        try:
            async with child.lock:
                while child.to_close:
                    await child.say([words.CLOSE, child.to_close.pop()])
                await child.say([what, self._number, *arguments])
                while True:
                    said = await child.hear(limits.ERRAND_SECONDS)
                    if said[0] == words.HOLD and claim is not None:
                        wanted = msgspec.convert(said[1:], _Wanted)
                        await child.say(await self._office.aside(_held, claim, *wanted))
                    elif said[0] == words.WROTE and claim is not None:
                        claim.wrote(msgspec.convert(said[1], int))
                    else:
                        return _answered(said)
        except (NoAnswer, msgspec.ValidationError, ValueError, LookupError) as error:
            child.end(kill=True)
            self._office.let_go(child, self._number)
            raise SilentDirectory(NotTaken(Refusal.NO_ANSWER, f"{self.path} cannot be used: {error}")) from error


class SilentDirectory(Exception):
    """A directory does not answer, and is of no use after that; str() says so."""

    def __init__(self, refused: NotTaken) -> None:
        super().__init__(refused.message)
        self.refused = refused


_Wanted = tuple[int, int, int | None]


def _held(claim: Claim, written: int, least: int, most: int | None) -> list[Any]:
    """The piece that a process may write before it reports: a report tells a process that works from one that waits."""
    try:
        held = claim.hold(written, least, most)
    except Exhausted as error:
        return [words.REFUSED, encodable(str(error))]
    return [words.ANSWER, min(held, max(least, limits.ERRAND_PIECE_BYTES))]


def _answered(said: list[Any]) -> Any:
    if said[0] == words.FAILED:
        raise OSError(msgspec.convert(said[1], int), str(said[2]))
    if said[0] == words.REFUSED:
        code, message = msgspec.convert(said[1:], tuple[str, bytes])
        return NotTaken(Refusal(code), os.fsdecode(message))
    if said[0] != words.ANSWER:
        raise ValueError(f"it said {said[0]!r}")
    return said[1]


def _remove(destination: Path) -> None:
    """Remove the copy of a process that was given up; one that still writes goes on in a file without a name."""
    for path in (destination, destination.with_name(destination.name + ".part")):
        with contextlib.suppress(OSError):
            path.unlink()
