"""Whether a target still lives, known from a descriptor that no other process can come to mean."""

from __future__ import annotations

import os
import select
from pathlib import Path

from profd.targets import procfs
from profd.targets.process import ProcessId
from profd.targets.starts import starts


class Lifetime:
    """One process from now to its end. Close it; it is one descriptor."""

    def __init__(self, process: ProcessId) -> None:
        self.process = process
        self._descriptor = -1
        self._end = select.poll()
        try:
            self._descriptor = os.pidfd_open(process.pid)
        except OSError:
            return  # it ended before
        self._end.register(self._descriptor, select.POLLIN)
        if starts.of(process.pid) != process.start_ticks:
            self.close()  # the pid means another process by now

    @property
    def ended(self) -> bool:
        """It exited, or is a zombie."""
        return self._descriptor < 0 or bool(self._end.poll(0))

    def close(self) -> None:
        """Let go of the descriptor; a second call does nothing."""
        if self._descriptor >= 0:
            self._end.unregister(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1


def alive(process: ProcessId) -> bool:
    """Whether it runs, without keeping hold of it."""
    return starts.of(process.pid) == process.start_ticks


def groups(process: ProcessId) -> set[int]:
    """Its effective and supplementary groups; empty when /proc does not say."""
    raw = procfs.read(Path("/proc", str(process.pid), "status"), procfs.STATUS_BYTES) or b""
    found: set[int] = set()
    for line in raw.splitlines():
        key, _, value = line.partition(b":")
        if key == b"Groups":
            found.update(int(gid) for gid in value.split() if gid.isdigit())
        elif key == b"Gid" and len(value.split()) > 1:
            found.add(int(value.split()[1]))
    return found
