"""Recordings that outlived the daemon that asked for them.

A note in a recording's journal directory says which epoch it is. When its
agent comes back to the next daemon, still armed, the recording ends there: what
is left in the arena joins what had arrived, and the capture is stored as far as
it went.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path

from profd.journal.journal import NOTE
from profd.targets.process import ProcessId

log = logging.getLogger("profd.sdk")


@dataclass(frozen=True, slots=True)
class Orphan:
    """A recording nobody waits for."""

    capture: str
    process: ProcessId
    directory: Path


Key = tuple[int, int]
"""Incarnation and epoch."""


def note(file: Path, incarnation: int, epoch: int) -> None:
    """Say what is recorded into this file. A crash of the host needs no note: its processes are gone, too."""
    said = {"incarnation": incarnation, "epoch": epoch, "files": {file.name: "chunks"}}
    (file.parent / NOTE).write_text(json.dumps(said))


def forget(file: Path) -> None:
    """The recording is over."""
    (file.parent / NOTE).unlink(missing_ok=True)


def find(journal: Path) -> dict[Key, Orphan]:
    """Recordings that an earlier daemon was making when it died. Notes that cannot be read are skipped and logged.

    All of them: the journal bounds how many there are, and most may be of what one user keeps for `profctl retry`.
    """
    found: dict[Key, Orphan] = {}
    for path in sorted(journal.glob(f"*/*/{NOTE}")):
        try:
            said = json.loads(path.read_text())
            if "incarnation" not in said:
                continue  # another source's
            key = (int(said["incarnation"]), int(said["epoch"]))
            pid, _, start = path.parent.name.partition("-")
            process = ProcessId(int(pid), int(start))
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("a note was skipped", extra={"path": str(path), "why": str(error)})
            continue
        found[key] = Orphan(path.parent.parent.name, process, path.parent)
    return found
