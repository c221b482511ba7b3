"""Removal of builds of the observer that are of no use any more; only `profctl torch prune` runs it."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from profclient.errors import DeniedError
from profclient.torch import build as building


@dataclass(frozen=True, slots=True)
class Old:
    """A build that this profclient never loads."""

    path: Path
    why: str
    used_by: tuple[int, ...]  # pids of processes that have it loaded, as far as this user may see
    size: int  # bytes


def old(place: Path) -> list[Old]:
    """Builds in one place that are of another version of profclient, or broken."""
    found = [(path, problem) for _, path, problem in building.known([place]) if problem and _is_directory(path)]
    users = _users([path.name for path, _ in found])
    return [Old(path, problem, tuple(users[path.name]), _size(path)) for path, problem in found]


def remove(build: Old) -> None:
    """Delete it. Raises DeniedError."""
    try:
        shutil.rmtree(build.path)
    except OSError as error:
        raise DeniedError(f"{build.path} cannot be removed: {error.strerror or error}") from None


def _users(names: list[str]) -> dict[str, list[int]]:
    """Pids by names of directories, which say for what a build is: in a container it may lie elsewhere."""
    users: dict[str, list[int]] = {name: [] for name in names}
    for entry in os.listdir("/proc") if names else ():
        with contextlib.suppress(OSError, ValueError):
            mapped = Path("/proc", str(int(entry)), "maps").read_text(errors="replace")
            for name in names:
                if f"/{name}/" in mapped:
                    users[name].append(int(entry))
    return users


def _is_directory(path: Path) -> bool:
    """And no link to one: what else has such a name was not built here."""
    return path.is_dir() and not path.is_symlink()


def _size(path: Path) -> int:
    return sum(file.lstat().st_size for file in path.rglob("*"))
