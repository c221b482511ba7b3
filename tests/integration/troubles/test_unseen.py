"""Programs that were written without sight of the rules: what is planted in each is named.

All run at once and are recorded at once, as on a host that is busy; one whose cause is not named is recorded again.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.corpus.answers import labels
from tests.integration.cli.conftest import PROFCTL, Host
from tests.integration.torch_observer.conftest import torch_builds  # noqa: F401 - a fixture
from tests.integration.troubles.test_troubles import flat, host  # noqa: F401 - host is a fixture
from tests.support.long import long
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, long]

FILE = "integration/troubles/test_unseen.py"
LABELS = {name: label for name, label in (labels("attached") | labels("together")).items() if label.test == FILE}
RANKS = 2
SECONDS = "5s"


@pytest.fixture(scope="module")
def running(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[int]]]:  # noqa: F811
    """The processes of each program, all of which have begun their work and are attached."""
    met = tmp_path_factory.mktemp("met") / "here"
    with contextlib.ExitStack() as jobs:
        found = {
            name: [jobs.enter_context(begun(host, label.file, met, rank)) for rank in ranks_of(name)]
            for name, label in LABELS.items()
        }
        for name, job in ((name, job) for name, some in found.items() for job in some):
            assert job.stdout is not None
            assert job.stdout.readline() == "ready\n", (name, job.wait(), said_by(met, LABELS[name].file).read_text())
        yield {name: [job.pid for job in some] for name, some in found.items()}


def ranks_of(name: str) -> range:
    return range(RANKS if LABELS[name].recorded == "together" else 1)


@contextlib.contextmanager
def begun(host: Host, program: Path, met: Path, rank: int) -> Iterator[subprocess.Popen[str]]:  # noqa: F811
    said = {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [*PROFCTL, "run", "--", sys.executable, str(program), str(met)]
    env = {**host.daemon.environ, **said}
    with (
        said_by(met, program).open("a") as errors,
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=errors, text=True) as job,
    ):
        try:
            yield job
        finally:
            job.kill()


def said_by(met: Path, program: Path) -> Path:
    """Where a program's errors are, of all its ranks."""
    return met.with_name(f"{program.stem}.errors")


def recorded(host: Host, pids: list[int]) -> dict[int, str]:  # noqa: F811
    """What `profctl start` says of each process."""
    done = host.profctl("start", *(f"--pid={pid}" for pid in pids), "--duration", SECONDS)
    assert done.code == 0, done.err + done.out
    parts = re.split(r"^pid (\d+).*  stored \[sdk\]$", flat(done.out), flags=re.MULTILINE)
    return {int(pid): said for pid, said in zip(parts[1::2], parts[2::2], strict=True)}


@pytest.fixture(scope="module")
def at_first(host: Host, running: dict[str, list[int]]) -> dict[int, str]:  # noqa: F811
    """The answers of one capture of all of them."""
    return recorded(host, [pid for pids in running.values() for pid in pids])


@pytest.mark.parametrize("program", LABELS)
def test_what_is_planted_is_named(
    program: str,
    host: Host,  # noqa: F811
    running: dict[str, list[int]],
    at_first: dict[int, str],
) -> None:
    answers = [at_first]

    def named() -> bool:
        said = [answers[-1][pid] for pid in running[program]]
        if all(says(one, program) for one in said):
            return True
        answers.append(recorded(host, running[program]))
        return False

    until(named, "the cause is named")
    for pid in running[program]:  # one that is asked again has the host more for itself
        os.kill(pid, signal.SIGKILL)


def says(answer: str, program: str) -> bool:
    """Each sentence of the label is one of the answer's findings."""
    return all(re.search(rf"^  finding +.*{each}", answer, re.MULTILINE) for each in LABELS[program].says)
