"""What a host has left for a capture; of a process's memory see test_memory of targets."""

from __future__ import annotations

from pathlib import Path

from profd.capture.estimate import HostHeadroom
from profd.targets.memory import MemoryLimits
from profd.targets.process import ProcessId


def test_memory_and_disk(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable:   50 kB\n")
    found = HostHeadroom(tmp_path, MemoryLimits(tmp_path)).of(ProcessId(7, 1))
    assert found.memory_bytes == 50 * 1024
    assert found.disk_bytes is not None


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    found = HostHeadroom(tmp_path / "none", MemoryLimits(tmp_path)).of(ProcessId(7, 1))
    assert (found.memory_bytes, found.disk_bytes) == (None, None)
