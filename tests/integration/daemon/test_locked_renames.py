"""A user who keeps all renames between directories of the state directory's disk: the daemon stores, and it ends."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.daemon.test_stuck_exec import BOB, MALLORY, profctl
from tests.support import people
from tests.support.daemon import RunningDaemon, start_daemon
from tests.support.locked_inode import locked_renames, why_not
from tests.support.python_jobs import SAMPLED
from tests.support.small_disk import small_disk
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())
TRACE = json.dumps({"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1}]})
MOVES = "import os, sys; os.rename(f'{sys.argv[1]}/from/file', f'{sys.argv[1]}/to/file')"


@pytest.fixture
def directory() -> Iterator[Path]:
    """On a file system of its own: others' renames are not to wait."""
    folder = Path(tempfile.mkdtemp(prefix="pd-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        with small_disk(folder, "256m"):
            yield folder
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def running(directory: Path) -> Iterator[RunningDaemon]:
    daemon = start_daemon(directory, user=False)
    try:
        yield daemon
    finally:
        daemon.kill()


@contextlib.contextmanager
def nobody_moves(directory: Path, mount: Path) -> Iterator[None]:
    """Renames between directories wait, root's as well."""
    for name in ("from", "to"):
        (directory / name).mkdir()
    (directory / "from" / "file").touch()
    with contextlib.ExitStack() as behind, locked_renames(directory, mount, MALLORY):
        mover = behind.enter_context(subprocess.Popen([sys.executable, "-I", "-c", MOVES, directory]))
        until(lambda: "rename" in Path(f"/proc/{mover.pid}/wchan").read_text(), "it waits")
        yield
        assert (directory / "from" / "file").exists()


def told(daemon: RunningDaemon, *words: object) -> str:
    code, said = profctl(daemon, BOB, *words)
    assert code == 0, (words, said, daemon.log)
    return said


def traces(daemon: RunningDaemon) -> list[str]:
    return [trace["id"] for trace in json.loads(told(daemon, "list", "--json"))]


def records(daemon: RunningDaemon) -> str:
    """One more trace by a capture; its id."""
    before = traces(daemon)
    with people.doing(BOB, people.SPIN, daemon.directory) as job:
        assert job.stdout is not None
        pid = job.stdout.readline().strip()
        told(daemon, "start", "--pid", pid, "--duration", SAMPLED, "--source", "pyspy")
    [new] = set(traces(daemon)).difference(before)
    return new


def test_captures_are_stored_and_removed_and_it_ends(directory: Path, tmp_path: Path) -> None:
    with running(directory) as daemon:
        old = records(daemon)
        with nobody_moves(directory, tmp_path / "mount"):
            new = records(daemon)
            assert "<module>" in told(daemon, "top", new)
            told(daemon, "rm", old)
            assert traces(daemon) == [new]
            (directory / "t.json").write_text(TRACE)
            told(daemon, "import", directory / "t.json")
            assert len(traces(daemon)) == 2
            for switch in ("disable", "enable"):
                assert profctl(daemon, 0, switch)[0] == 0
            assert daemon.stop() == 0
            assert "Traceback" not in daemon.log


def test_one_that_begins_meanwhile_recovers_and_stores(directory: Path, tmp_path: Path) -> None:
    with running(directory) as daemon:
        old = records(daemon)
        daemon.kill()
    (daemon.state_dir / "traces" / ".staging-1").mkdir()
    (daemon.state_dir / "staging" / "old").mkdir(parents=True)
    (daemon.state_dir / "catalog.sqlite").write_bytes(b"no database" * 1000)
    with nobody_moves(directory, tmp_path / "mount"), running(directory) as daemon:
        assert {records(daemon), old} == set(traces(daemon))
        assert daemon.stop() == 0
