"""A worker's own directories, whatever it left in them."""

from __future__ import annotations

import os
from pathlib import Path

from profd.kernel.identity import WorkerIdentity
from profd.workers import gate

SELF = WorkerIdentity(None, None, "")
DEPTH = 3000  # below the deepest that Python's own recursion comes to


def deep(folder: Path) -> None:
    """As a worker can leave it: deeper than any path may be long."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(DEPTH):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)


def test_a_deep_tree_goes_with_its_worker(tmp_path: Path) -> None:
    gate.prepare(tmp_path / "gates", SELF)
    own = gate.Gate(tmp_path / "gates", SELF, ("trace_dir", "other_dir"))
    deep(own.scratch)
    own.dismiss()
    assert not any(own.scratch.iterdir())
    deep(own.outgoing)
    own.remove()
    assert not own.path.exists()


def test_a_deep_tree_of_an_earlier_daemon_keeps_none_from_starting(tmp_path: Path) -> None:
    gate.prepare(tmp_path / "gates", SELF)
    deep(gate.Gate(tmp_path / "gates", SELF).scratch)
    gate.prepare(tmp_path / "gates", SELF)
    assert not any((tmp_path / "gates").iterdir())
