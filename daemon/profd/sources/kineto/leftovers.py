"""Files that libkineto was asked for and that nobody took, cleared away when it is safe.

libkineto never removes its `.tmp` on failure, and a trace that comes after our
deadline finds nobody waiting. Each name is written down before its config is
handed out, so that a restarted daemon still knows them; of too many the oldest
of whoever has most go. Only names of our own making are touched, only files
that the target owns, and only once the target has ended or says that it is not
tracing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from profd import limits
from profd.disk.files import rename
from profd.sources.kineto.lifetime import alive
from profd.targets.errands.directory import Directory, SilentDirectory
from profd.targets.identity import Accepted
from profd.targets.pickup import NotTaken, Refusal
from profd.targets.process import ProcessId

_KEEP_SECONDS: Final = 24 * 3600
_FILE_BYTES_MAX: Final = limits.KINETO_LEFTOVERS_MAX * 8192  # a path has 4096 at most


@dataclass(frozen=True, slots=True)
class Leftover:
    """One output path of one process. `name` is the finished file's; `.tmp` stands beside it."""

    pid: int
    start_ticks: int
    uid: int
    directory: str
    name: str
    asked: float  # Unix seconds

    @property
    def process(self) -> ProcessId:
        """The process that was asked to write the file."""
        return ProcessId(self.pid, self.start_ticks)


class Leftovers:
    """The list, on disk in `state_dir`. All but `sweep` block on its file and may be called from any thread."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "kineto-leftovers.json"
        self._items: dict[str, Leftover] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._items)

    def items(self) -> list[Leftover]:
        """All of them."""
        with self._lock:
            return list(self._items.values())

    def asked(self) -> dict[ProcessId, float]:
        """Processes that live and may still be tracing for us: when they were asked, Unix seconds."""
        return {item.process: item.asked for item in list(self._items.values()) if alive(item.process)}

    def load(self) -> None:
        """Read what an earlier daemon left; a file that cannot be read counts as empty."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            with self._path.open("rb") as file:
                rows = json.loads(file.read(_FILE_BYTES_MAX))
            self._items = {row["name"]: Leftover(**row) for row in rows[: limits.KINETO_LEFTOVERS_MAX]}

    def add(self, item: Leftover) -> None:
        """Remember a name before it is handed out. OSError if it cannot be written down."""
        with self._lock:
            while len(self._items) >= limits.KINETO_LEFTOVERS_MAX:
                self._items.pop(self._one_too_many(item.uid))
            self._items[item.name] = item
            self._save()

    def done(self, name: str) -> None:
        """Nothing of this name is left."""
        with self._lock, contextlib.suppress(OSError):
            if self._items.pop(name, None) is not None:
                self._save()

    async def sweep(self, idle: Callable[[ProcessId, float], bool], busy: Callable[[str], bool]) -> int:
        """Remove what is safe to remove; how many files.

        `idle(process, since)`: the target said after `since` that it is not
        tracing. `busy(name)`: a running capture still wants the name.
        """
        removed = 0
        for item in self.items():
            if busy(item.name):
                continue
            lives = alive(item.process)
            if lives and not idle(item.process, item.asked):
                if time.time() - item.asked > _KEEP_SECONDS:
                    await asyncio.to_thread(self.done, item.name)
                continue
            found = await _remove(item)
            if found is None and time.time() - item.asked <= _KEEP_SECONDS:
                continue
            removed += found or 0
            await asyncio.to_thread(self.done, item.name)
        return removed

    def _one_too_many(self, uid: int) -> str:
        """Where one of this user's comes: nobody's are pushed out by others."""
        held = Counter([uid, *(item.uid for item in self._items.values())])
        [(most, _)] = held.most_common(1)
        return next(name for name, item in self._items.items() if item.uid == most)

    def _save(self) -> None:
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps([asdict(item) for item in self._items.values()]))
        rename(part, self._path)


async def opened(item: Leftover) -> Directory | NotTaken:
    """Its directory, as its process sees it while that lives."""
    if alive(item.process):
        with contextlib.closing(Accepted(item.process, item.uid)) as accepted:
            return await Directory.of(accepted, item.directory)
    return await Directory.open(item.directory, item.uid, Path("/"))


async def _remove(item: Leftover) -> int | None:
    """How many files; None where its directory does not answer."""
    directory = await opened(item)
    if isinstance(directory, NotTaken):
        return None if directory.code is Refusal.NO_ANSWER else 0
    try:
        return await remove_both(directory, item.name)
    except SilentDirectory:
        return None
    finally:
        directory.close()


async def remove_both(directory: Directory, name: str) -> int:
    """Remove a finished file and its `.tmp` where they are the target's own; how many. Raises Silent."""
    removed = 0
    for each in (name, f"{name}.tmp"):
        seen = await directory.look(each)
        removed += seen is not None and await directory.remove(each, seen.inode)
    return removed
