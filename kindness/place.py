"""Where things are: the repository, what runs leave behind, and which sources they ran on."""

from __future__ import annotations

import hashlib
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

import profclient

ROOT: Final = Path(__file__).resolve().parent.parent
PROGRAMS: Final = ROOT / "kindness" / "programs"
SCRATCH: Final = Path(os.environ.get("KINDNESS_DIR", ROOT / ".kindness"))
# The sources that are on trial: those of the profclient that this Python has installed.
TRIED: Final = Path(profclient.__file__).resolve().parents[2]


IN_A_JOB: Final = ("native", "client", "protos")


@cache
def digest(folders: tuple[str, ...] = (*IN_A_JOB, "daemon")) -> str:
    """What results are kept under: 12 hex digits over all that can run in or beside a job."""
    found = hashlib.sha256()
    for folder in folders:
        for path in sorted((TRIED / folder).rglob("*")):
            if path.suffix in {".py", ".cpp", ".hpp", ".h", ".c", ".txt", ".proto"} and path.is_file():
                found.update(str(path.relative_to(TRIED)).encode())
                found.update(path.read_bytes())
    return found.hexdigest()[:12]


@cache
def commit() -> str:
    """The commit of these sources, with a `+` where something was changed since; for people, results go by `digest`."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(command, cwd=TRIED, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
