"""`journal/<capture>/<pid>-<start>/`: raw files on the daemon's side until the store has their trace."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Collection
from pathlib import Path

from profd.targets.process import ProcessId


class RawDirectory:
    """The journal of whole files. All methods touch the disk: not for the event loop."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def directory(self, capture: str, process: ProcessId) -> Path:
        """The directory of one target, private to the daemon; made if absent. Raises OSError."""
        path = self._path(capture, process)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    def remove(self, capture: str, process: ProcessId) -> None:
        """Delete a target's directory, and its capture's when that was the last. Never raises OSError."""
        path = self._path(capture, process)
        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):  # other targets are still in it, or it never was
            path.parent.rmdir()

    def sweep(self, keep: Collection[tuple[str, ProcessId]]) -> int:
        """Delete everything but these targets' directories; how many went."""
        kept = {self._path(capture, process) for capture, process in keep}
        swept = 0
        for capture in self._root.iterdir() if self._root.is_dir() else ():
            if capture.is_symlink() or not capture.is_dir():
                continue
            for path in list(capture.iterdir()):
                if path not in kept:
                    shutil.rmtree(path, ignore_errors=True)
                    swept += 1
            with contextlib.suppress(OSError):  # not empty: something in it is kept
                capture.rmdir()
        return swept

    def _path(self, capture: str, process: ProcessId) -> Path:
        return self._root / capture / f"{process.pid}-{process.start_ticks}"
