"""Two hosts: two daemons of this machine, each with sockets and state of its own, and one attached rank each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.attached import Attached, attached
from tests.support.daemon import RunningDaemon, start_daemon
from tests.support.fleet_answers import with_traces

PROFCTL_SECONDS = 240.0
PROFCTL = (sys.executable, "-W", "error", "-c", "from profclient.cli import main; main()")


@dataclass
class Done:
    """What a `profctl` left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def stored(answer: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Host, rank and beginning of what has a trace."""
    return [(host, target["rank"], target["start_ns"]) for host, target in with_traces(answer)]


@dataclass
class TwoHosts:
    """`n1` and `n2`; rank 0 runs on one, rank 1 on the other, of a job that no other test has."""

    folder: Path
    daemons: list[RunningDaemon]
    ranks: list[Attached]
    job: str

    @property
    def via(self) -> str:
        return f"env PROFD_ADDRESS=unix:{self.folder}/{{host}}/profd.sock"

    @property
    def environ(self) -> dict[str, str]:
        homes = {name: str(self.folder / "xdg") for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME")}
        return {**os.environ, **homes, "PROFD_ADDRESS": "unix:/nowhere"}

    def profctl(self, *arguments: str) -> Done:
        done = subprocess.run(
            [*PROFCTL, *arguments], env=self.environ, capture_output=True, text=True, timeout=PROFCTL_SECONDS
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """A profctl that goes on by itself."""
        return subprocess.Popen(
            [*PROFCTL, *arguments], env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def start(self, *more: str, hosts: str = "n[1-2]") -> tuple[str, ...]:
        """The arguments that record both ranks: each daemon sees both, since they share the machine."""
        return ("start", "--hosts", hosts, "--via", self.via, "--job", self.job, "--source", "sdk", *more)

    def relays(self) -> list[int]:
        """Of this folder's daemons."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                ours = b"profclient.relay" in (entry / "cmdline").read_bytes()
                ours = ours and str(self.folder).encode() in (entry / "environ").read_bytes()
            except OSError:
                continue
            found += [int(entry.name)] if ours else []
        return found


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoHosts]:
    folder = Path(tempfile.mkdtemp(prefix="pf-", dir="/tmp"))  # socket paths hold 107 bytes
    job = uuid.uuid4().hex
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        daemons = []
        for name in ("n1", "n2"):
            (folder / name).mkdir()
            daemons.append(start_daemon(folder / name))
            stack.callback(daemons[-1].stop)
        ranks = [
            stack.enter_context(
                attached(daemon, folder, environ={"RANK": str(rank), "WORLD_SIZE": "2", "SLURM_JOB_ID": job})
            )
            for rank, daemon in enumerate(daemons)
        ]
        yield TwoHosts(folder, daemons, ranks, job)
