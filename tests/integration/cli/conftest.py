"""A daemon, a training loop and a plain Python program, shared by the tests of a module.

Verbs of stored traces are asked of a store alone, too (`profctl --store`, `on_both`), where each command starts a
worker of its own. The rest would say again what the daemon's answers do: `make test-long`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import python_jobs, torch_jobs
from tests.support.daemon import ONE_WORKER, RunningDaemon, running_daemon
from tests.support.long import long
from tests.support.waiting import until

PROFCTL_SECONDS = 240.0
EITHER = ("daemon", pytest.param("store", marks=long))
on_both = pytest.mark.parametrize("profctl", ["daemon", "store"], indirect=True)
PROFCTL = (sys.executable, "-W", "ignore", "-c", "from profclient.cli import main; main()")


@dataclass
class Done:
    """What a `profctl` left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Host:
    """A daemon and how to run profctl against it."""

    daemon: RunningDaemon

    def profctl(self, *arguments: str) -> Done:
        done = subprocess.run(
            [*PROFCTL, *arguments],
            env={**self.daemon.environ, "XDG_CACHE_HOME": str(self.daemon.directory / "cache")},
            capture_output=True,
            text=True,
            timeout=PROFCTL_SECONDS,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """A profctl that goes on by itself."""
        return subprocess.Popen(
            [*PROFCTL, *arguments],
            env=self.daemon.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with running_daemon(environ=ONE_WORKER) as daemon:
        yield Host(daemon)


@pytest.fixture(scope="module", params=EITHER)
def profctl(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Done]:
    """profctl with a daemon behind it, and with a directory alone."""
    host: Host = request.getfixturevalue("host")
    if request.param == "daemon":
        return host.profctl
    store = tmp_path_factory.mktemp("folder") / "stores" / "new"  # which `import` makes
    return lambda *arguments: host.profctl("--store", str(store), *arguments)


@pytest.fixture(scope="module")
def program() -> Iterator[int]:
    """The pid of a plain Python program that is busy in `inner` and `outer`."""
    with python_jobs.running(python_jobs.SPIN) as job:
        yield job.pid


@pytest.fixture(scope="module")
def trainer(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The pid of a PyTorch training loop that is registered with the daemon."""
    folder: Path = tmp_path_factory.mktemp("job")
    with torch_jobs.torch_job("train", folder, socket_dir=host.daemon.kineto_dir) as job:
        until(lambda: "kineto" in sources_of(host, job.pid), "the training loop registers")
        yield job.pid


def sources_of(host: Host, pid: int) -> list[str]:
    """The sources that `profctl ps` names for a process; on a busy host a list may miss it."""
    listed = host.profctl("ps", "--json").json
    return [source for target in listed if target["pid"] == pid for source in target["sources"]]
