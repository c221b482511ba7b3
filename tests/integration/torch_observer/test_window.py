"""What a training loop does outside of its operators is in the answer of one capture."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from profd.sources.pyspy import tool
from profproto.v1 import capture_pb2 as pb
from profproto.v1 import trace_pb2
from profproto.v1.trace_pb2_grpc import TraceServiceStub

from tests.support.attached import READY, Attached, Captures, attached, sql
from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.python_jobs import needs_ptrace
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(tool.find() is None, reason="py-spy is not installed"), needs_ptrace]

WINDOW_NS = 6_000_000_000  # samples beside operators take 5 s on two cores
LOOP = f"""
import mmap, os, sys, threading
import profclient
profclient.attach()
import torch
from torch import nn
torch.manual_seed(0); torch.set_num_threads(1)
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
{READY}
def step(inputs):
    loss = model(inputs).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    return loss
"""
# A loader in the main process is the bottleneck.
LOADER = (
    LOOP
    + """
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20
    def __getitem__(self, index):
        total = 0
        for number in range(20_000):
            total += index * number
        return torch.full((16,), float(total % 7))
for batch in torch.utils.data.DataLoader(Rows(), batch_size=8):
    step(batch)
    if done.is_set():
        break
"""
)
# A metric that is quadratic in what it has seen, and waits for the loss.
METRIC = (
    LOOP
    + """
seen = []
def metric(loss):
    seen.append(loss.item())
    del seen[:-300]
    inversions = 0
    for a in seen:
        for b in seen:
            inversions += a < b
    return inversions
while not done.is_set():
    metric(step(torch.randn(8, 16)))
"""
)


@pytest.fixture(scope="module")
def daemon(torch_builds: Path) -> Iterator[RunningDaemon]:
    with running_daemon(environ={"PROFD_SDK_ARENA_BYTES": "64MiB"}) as found:
        yield found


def summary(daemon: RunningDaemon, job: Attached) -> dict[str, Any]:
    """Of one capture, stored, with nothing to complain of."""
    [target] = Captures(daemon).record(job.pid, duration_ns=WINDOW_NS).targets
    assert target.state == pb.STATE_STORED, (target.message, list(target.not_honoured))
    assert not target.not_honoured
    stub, request = daemon.stub(TraceServiceStub), trace_pb2.TraceRef(id=target.trace)
    found: dict[str, Any] = json.loads(stub.Summary(request, metadata=daemon.metadata()).summary_json)
    return {**found, "id": target.trace}


@pytest.mark.parametrize(("program", "cause"), [(LOADER, "__getitem__"), (METRIC, "metric")], ids=["loader", "metric"])
def test_the_function_that_keeps_operators_waiting_is_named(
    daemon: RunningDaemon, tmp_path: Path, program: str, cause: str
) -> None:
    with attached(daemon, tmp_path, program) as job:
        found: dict[str, Any] = {}

        def named() -> bool:  # on a host that is busy enough a sampler begins late, or is told to do without
            found.update(summary(daemon, job))
            return bool(found["outside_operators"])

        until(named, "functions are seen outside operators")
    assert found["outside_operators"][0]["name"].endswith(cause)
    account = found["accounting"]
    thread = account["threads"][account["leading"]]
    assert 0 < thread["operators_ns"] < account["window_ns"] / 2
    assert "outside operators" in account["hint"]
    # Samples are beside: names of what was recorded are not mixed with them, unless asked for.
    assert not [row for row in found["top"] if row["name"].endswith(cause)]
    assert sql(daemon, found["id"], "select count(*) > 0 from events where kind = 'sample'") == [[True]]
