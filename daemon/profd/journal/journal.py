"""Where raw data lies between a target and the store.

`journal/<capture>/<pid>-<start ticks>/` holds whole files: they enter by
rename, or are the daemon's own and named in a capture's record only when they
are complete. They leave when their trace is stored; what a crash or a failed
decode leaves is kept for `profctl retry`, bounded in age and bytes, and by
`capture/book` in number.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import stat
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profd.disk.eviction import Evictable, victims
from profd.disk.files import disk
from profd.disk.space import Claim, Space, Urgency, alone
from profd.errors import BadInput
from profd.fairness.sparing import Sparing
from profd.limits import JOURNAL_BYTES_MAX, JOURNAL_LOOK_CORES, JOURNAL_SECONDS_MAX, JOURNAL_SETTLED_SECONDS
from profd.model.capture import RawFile
from profd.targets.process import ProcessId

Key = tuple[str, ProcessId]
"""A capture and one of its processes, who have a directory together."""

NOTE: Final = ".recording.json"
"""A source's note in a target's directory: `{"files": {name: format}, ...}` of files that are of use half written.

With `"whole": true` they are so once they have their names.
"""

_CAPTURE: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,127}")
_SESSION: Final = re.compile(r"(\d{1,10})-(\d{1,20})")

log = logging.getLogger("profd.journal")


@dataclass(frozen=True, slots=True)
class Survivor:
    """Raw data of one target that nobody has stored yet."""

    capture: str
    process: ProcessId
    directory: Path
    bytes: int
    changed_ns: int  # Unix ns, the latest change of any of its files


class Journal:
    """The journal of one daemon. All calls block; directories are 0700, the daemon's.

    Captures begin and end on threads of their own: what one of them looks at another may have removed.
    """

    def __init__(self, root: Path, space: Space | None = None) -> None:
        """`space`: of its filesystem, where others write as well."""
        self._root = root
        self._space = space
        self.owner_of: Callable[[str], int] = lambda capture: 0  # uid, whose raw data goes first where it is most
        self._parents = threading.Lock()  # a capture's own directory is made or removed
        self._sparing = Sparing(JOURNAL_LOOK_CORES)
        self._sweeping = threading.Lock()
        with disk(root, "Creating"):
            root.mkdir(mode=0o700, parents=True, exist_ok=True)

    def directory(self, capture: str, process: ProcessId) -> Path:
        """The private directory of one target; made if absent. Raises Exhausted when the disk refuses."""
        path = self.path(capture, process)
        if not path.exists():
            if not path.parent.exists():  # once for a capture: targets may be hundreds
                self._sweep_sparingly()
            with disk(path, "Creating"), self._parents:
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    def _sweep_sparingly(self) -> None:
        """It looks at all that there is, which may be others'."""
        if self._sparing.due and self._sweeping.acquire(blocking=False):
            try:
                with self._sparing.piece():
                    self.sweep()
            finally:
                self._sweeping.release()

    def claim(self, uid: int) -> Claim:
        """Of room for the raw files of one target. Touches nothing."""
        return self._space.claim(uid, "the raw data of this capture", Urgency.RECORDING) if self._space else alone()

    def files(self, capture: str, process: ProcessId) -> list[Path]:
        """The whole regular files of one target, by name; names with a leading dot are not whole yet."""
        path = self.path(capture, process)
        if not path.is_dir():
            return []
        return sorted(entry for entry in path.iterdir() if not entry.name.startswith(".") and _regular(entry))

    def unfinished(self, capture: str, process: ProcessId) -> list[RawFile]:
        """What a source said it was writing there when the daemon died (`NOTE`); none if it said nothing."""
        path = self.path(capture, process)
        try:
            said = json.loads((path / NOTE).read_text())["files"]
            files = [RawFile(str(path / Path(name).name), str(format_)) for name, format_ in said.items()]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return []
        return [file for file in files if Path(file.path).is_file()]

    def whole(self, capture: str, process: ProcessId) -> bool:
        """Whether what `unfinished` finds is all of it, as its source said."""
        try:
            return json.loads((self.path(capture, process) / NOTE).read_text()).get("whole") is True
        except (OSError, ValueError, AttributeError):
            return False

    def remove(self, capture: str, process: ProcessId) -> None:
        """Delete one target's directory with everything in it; none is no error."""
        path = self.path(capture, process)
        with disk(path, "Removing"):
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(path)
            with self._parents:
                if path.parent.exists() and not any(path.parent.iterdir()):
                    path.parent.rmdir()

    def keep_only(self, captures: Collection[str]) -> None:
        """Delete what belongs to none of these captures: a daemon died before it had recorded that there is one."""
        for directory in _directories(self._root):
            if directory.name not in captures:
                with disk(directory, "Removing"):
                    shutil.rmtree(directory)
                log.info("raw data of an unrecorded capture dropped", extra={"capture": directory.name})

    def sessions(self) -> list[Key]:
        """Capture and process of everything in the journal."""
        return [(survivor.capture, survivor.process) for survivor in self.survivors()]

    def survivors(self) -> list[Survivor]:
        """Everything in the journal, oldest first."""
        found = []
        for capture in _directories(self._root):
            for session in _directories(capture):
                match = _SESSION.fullmatch(session.name)
                if match:
                    found.append(_survivor(session, ProcessId(int(match[1]), int(match[2]))))
        return sorted(found, key=lambda survivor: survivor.changed_ns)

    def bytes(self) -> int:
        """Data of all that is in it, what is being recorded included."""
        return sum(survivor.bytes for survivor in self.survivors())

    def sweep(
        self,
        seconds_max: float = JOURNAL_SECONDS_MAX,
        bytes_max: int = JOURNAL_BYTES_MAX,
        now_ns: int | None = None,
    ) -> list[Survivor]:
        """Delete what is too old, then until the rest fits the oldest of whoever has the most; returns what went.

        What changed within JOURNAL_SETTLED_SECONDS may belong to a live capture: it counts, but stays.
        """
        now = time.time_ns() if now_ns is None else now_ns
        found = self.survivors()
        gone = [survivor for survivor in found if now - survivor.changed_ns > seconds_max * 1e9]
        kept = {str(survivor.directory): survivor for survivor in found if survivor not in gone}
        held = (
            Evictable(
                name, self.owner_of(one.capture), one.bytes, now - one.changed_ns <= JOURNAL_SETTLED_SECONDS * 1e9
            )
            for name, one in kept.items()
        )
        gone += [kept[victim.id] for victim in victims(held, bytes_max)]
        for survivor in gone:
            self.remove(survivor.capture, survivor.process)
            log.info("raw data dropped", extra={"capture": survivor.capture, "bytes": survivor.bytes})
        return gone

    def path(self, capture: str, process: ProcessId) -> Path:
        """Where the directory of one target is, or will be. BadInput for what is no capture's id."""
        if not _CAPTURE.fullmatch(capture):
            raise BadInput(f"{capture!r} is no id of a capture")
        return self._root / capture / f"{process.pid}-{process.start_ticks}"


def any_data(files: Collection[RawFile]) -> bool:
    """Whether a retry would find something in one of these."""
    for file in files:
        with contextlib.suppress(OSError):
            if os.stat(file.path).st_size:
                return True
    return False


def _directories(path: Path) -> list[Path]:
    """None of what has gone meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.is_symlink())
    return []


def _regular(path: Path) -> bool:
    return stat.S_ISREG(path.lstat().st_mode)


def _survivor(directory: Path, process: ProcessId) -> Survivor:
    size, changed = 0, 0
    inside = (os.path.join(folder, name) for folder, _, files in os.walk(directory) for name in (".", *files))
    for entry in inside:
        with contextlib.suppress(FileNotFoundError):  # a live source renames its files
            found = os.lstat(entry)
            data = min(found.st_size, found.st_blocks * 512)  # what a target wrote may be mostly holes
            size += data if stat.S_ISREG(found.st_mode) else 0
            changed = max(changed, found.st_mtime_ns)
    return Survivor(directory.parent.name, process, directory, size, changed)
