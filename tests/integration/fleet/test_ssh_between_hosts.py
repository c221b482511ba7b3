"""A job of torchrun on two hosts that share no process, and a wire for a network, profiled from a third by ssh."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from profd.events import DeviceType

from tests.integration.fleet.conftest import stored
from tests.support import slurm_nodes, ssh
from tests.support.long import long
from tests.support.slurm_nodes import PROFCTL, SECONDS
from tests.support.ssh_hosts import Network, ssh_hosts
from tests.support.waiting import until
from tests.unit.profd.segments.test_engines import ROOT, TO_JSON, ray, run, spark

pytestmark = [
    long,
    pytest.mark.slow,
    pytest.mark.skipif(bool(ssh.missing()), reason=f"this machine has no {', '.join(ssh.missing())}"),
]

JOB = "job4711"
PLACES = [("n1", 0), ("n1", 1), ("n2", 2), ("n2", 3)]  # of the ranks
NUMBERS = ("count", "cpu_time_total_ns", "self_cpu_time_total_ns")
PAGE = ROOT / "docs" / "hosts.md"

TRAIN = """
import os, time
import torch
import torch.distributed as dist
import profclient
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    profclient.step()
    optimizer.zero_grad()
    with profclient.record_function("forward and backward"):
        model(torch.randn(16, 64)).square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    open(f"{os.path.dirname(__file__)}/steps-{os.environ['RANK']}", "a").close()
    time.sleep(0.02)
"""


@dataclass
class Login:
    """What somebody can do on the login host."""

    network: Network
    folder: Path

    def profctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """No daemon runs there."""
        homes = {name: str(self.folder / "xdg") for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME")}
        return subprocess.run(
            self.network.login.inside(*PROFCTL, *arguments),
            env={**os.environ, **homes},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )

    def answers(self, *arguments: str) -> str:
        """What it prints; AssertionError where it fails."""
        done = self.profctl(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def answer(self, *arguments: str) -> Any:
        """The same, of --json."""
        return json.loads(self.answers(*arguments))

    @property
    def way(self) -> tuple[str, ...]:
        return ("--hosts", "n[1-2]", "--via", f"ssh -F {self.network.config} {{host}}", "--job", JOB)


@pytest.fixture(scope="module")
def login() -> Iterator[Login]:
    """Two hosts with a profd each, and all ranks of the job attached."""
    pytest.importorskip("torch", reason="needs torch")
    if why := slurm_nodes.why_not(wired=True):
        pytest.skip(why)
    with tempfile.TemporaryDirectory(prefix="pn-", dir="/tmp") as name, ExitStack() as stack:
        folder = Path(name)
        network = stack.enter_context(ssh_hosts(folder, "n1", "n2"))
        (folder / "train.py").write_text(TRAIN)
        for number, host in enumerate(network.hosts):
            stack.enter_context(host.profd(folder, PROFD_SDK_ARENA_BYTES="24MiB"))
            log = stack.enter_context((folder / f"{host.name}.job").open("wb"))
            wire = {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
            launcher = subprocess.Popen(
                host.inside(*PROFCTL, "run", "--", *torchrun(network, number), str(folder / "train.py")),
                env={**os.environ, **wire},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            stack.callback(launcher.wait, SECONDS)
            stack.callback(launcher.kill)
        until(lambda: len([*folder.glob("steps-*")]) == len(PLACES), "all ranks step")
        until(lambda: ranks_of(network) == PLACES, "each host has its ranks, and no other's")
        yield Login(network, folder)


def torchrun(network: Network, number: int) -> list[str]:
    """The launcher of the host with this number."""
    first, own = network.addresses["n1"], network.addresses[network.hosts[number].name]
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2"),
        *(f"--node-rank={number}", f"--rdzv-id={JOB}", f"--master-addr={first}", f"--local-addr={own}"),
    ]


def ranks_of(network: Network) -> list[tuple[str, int]]:
    """Of the job, as the daemon of each host knows them: those that it can record."""
    return [
        (host.name, rank)
        for host in network.hosts
        for rank in sorted(one["rank"] for one in host.answer("ps") if one["job"] == JOB and "sdk" in one["sources"])
    ]


@pytest.fixture(scope="module")
def recorded(login: Login) -> Any:
    """What `start` answered, when all ranks had recorded five steps."""
    return login.answer("start", *login.way, "--iterations", "5", "--all", "--json")


@pytest.fixture(scope="module")
def collected(login: Login, recorded: Any) -> Path:
    """The folder of the capture's traces."""
    login.answers("collect", recorded["capture"], "--to", str(login.folder / "traces"))
    return login.folder / "traces"


def test_every_rank_records_the_same_steps(login: Login, recorded: Any):
    assert [(host, rank) for host, rank, _ in stored(recorded)] == PLACES
    steps = recorded["steps"]
    assert (recorded["state"], steps["by"], steps["common"], steps["missed"]) == ("stored", "step", 5, False)
    assert "processes  4 stored" in login.answers("show", recorded["capture"])


def test_where_every_rank_is(login: Login):
    answer = login.answer("where", *login.way, "--json")
    assert [(one["host"], one["rank"], one["error"]) for one in answer] == [(*place, None) for place in PLACES]
    assert all(frame["file"] for one in answer for frame in one["threads"][0]["frames"][-1:]), answer


@pytest.mark.parametrize("engine", ["DuckDB", ray, spark])
def test_an_engine_answers_for_each_rank_as_top_does(login: Login, recorded: Any, collected: Path, engine: str):
    """The query of docs/hosts.md, as it stands there."""
    found = re.search(rf"By {engine}\b[^\n]*:\n\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None, f"no query for {engine}"
    query = found[1].replace('"traces"', f'"{collected}"').replace("'traces/", f"'{collected}/")
    assert query.count(str(collected)) == 1, query
    said = run(engine, query + TO_JSON, collected)
    (rows,) = [json.loads(line.removeprefix("ROWS ")) for line in said.splitlines() if line.startswith("ROWS ")]
    top = login.answer("top", recorded["capture"], "--by", "rank", "--raw", "--limit", "0", "--json")
    assert {row["device_type"] for row in top["rows"]} == {DeviceType.CPU.label}
    assert sorted(rows) == sorted(
        [*(row[name] for name in ("host", "rank", "name")), DeviceType.CPU, *(row[name] for name in NUMBERS)]
        for row in top["rows"]
    )
    assert {(host, rank) for host, rank, name, *_ in rows if name == "forward and backward"} == set(PLACES)
