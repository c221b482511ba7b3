"""The answer of a capture begins with what costs time: a real program, operators by the observer, `profctl start`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.attached import READY, attached
from tests.support.daemon import RunningDaemon, running_daemon

pytestmark = pytest.mark.slow

PROFCTL = (sys.executable, "-W", "ignore", "-c", "from profclient.cli import main; main()")
PROFCTL_SECONDS = 240.0

# A step computes for a millisecond or so, and waits for its data ten times as long where `rest` says so.
TRAIN = f"""
import mmap, os, sys, threading, time
import profclient
profclient.attach()
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 1 << 40

    def __getitem__(self, index):
        time.sleep(rest)
        return self.batch

    batch = torch.randn(64)

rest = float(os.environ["REST"])
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = iter(DataLoader(Data(), batch_size=None, sampler=iter(int, 1)))
once = next(batches).expand(64, -1)
{READY}
while not done.is_set():
    batch = next(batches).expand(64, -1) if rest else once
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def daemon(torch_builds: Path) -> Iterator[RunningDaemon]:
    with running_daemon(environ={"PROFD_SDK_ARENA_BYTES": "64MiB"}) as found:
        yield found


def answer(daemon: RunningDaemon, folder: Path, rest: str) -> list[str]:
    with attached(daemon, folder, TRAIN, environ={"REST": rest}) as job:
        done = subprocess.run(
            [*PROFCTL, "start", "--pid", str(job.pid), "--iterations", "20"],
            env=daemon.environ,
            capture_output=True,
            text=True,
            timeout=PROFCTL_SECONDS,
        )
    assert done.returncode == 0, done.stderr
    return [line.strip() for line in done.stdout.splitlines()]


def test_the_answer_begins_with_the_cause(daemon: RunningDaemon, tmp_path: Path) -> None:
    lines = answer(daemon, tmp_path, "0.01")
    at = next(number for number, line in enumerate(lines) if line.startswith("finding"))
    assert lines[at].startswith("finding       The program waits for its DataLoader ")
    trace = next(number for number, line in enumerate(lines) if line.startswith("trace "))
    assert at < trace
    told = " ".join(lines[at:trace])
    assert "% less time)" in told
    assert "profctl explain " in told


def test_a_program_without_trouble_has_no_finding_of_its_work(daemon: RunningDaemon, tmp_path: Path) -> None:
    """But of the machine's, whose CPUs others may use while a test runs."""
    found = [line for line in answer(daemon, tmp_path, "0") if line.startswith("finding")]
    assert [line for line in found if "waits for a CPU" not in line] == []
