"""Device metrics as counter tracks, from a driver of our own (tests/support/fake_nvml.c) to the exported trace."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from profproto.v1 import capture_pb2 as pb
from profproto.v1 import trace_pb2
from profproto.v1.trace_pb2_grpc import TraceServiceStub

from tests.integration.cuda.conftest import SUPPORT, Program
from tests.support.attached import WAIT_SECONDS, Captures, sql
from tests.support.daemon import RunningDaemon, running_daemon

pytestmark = pytest.mark.slow

SAMPLED_NS = 700_000_000  # of ten samples a second


@pytest.fixture(scope="module")
def pids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of pids that compute on the first GPU."""
    path = tmp_path_factory.mktemp("nvml") / "pids"
    path.write_text("")
    return path


@pytest.fixture(scope="module")
def daemon(pids: Path) -> Iterator[RunningDaemon]:
    """One that has a driver, of two GPUs."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the stand-in for the driver")
    library = pids.parent / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, SUPPORT / "fake_nvml.c"], check=True)
    environ = {"LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML_PIDS": str(pids), "PROFD_SDK_ARENA_BYTES": "24MiB"}
    with running_daemon(environ=environ) as found:
        yield found


def exported(daemon: RunningDaemon, trace: str, form: str) -> bytes:
    request = trace_pb2.ExportRequest(id=trace, format=form)
    chunks = daemon.stub(TraceServiceStub).Export(request, metadata=daemon.metadata(), timeout=WAIT_SECONDS)
    return b"".join(chunk.data for chunk in chunks)


def test_tracks_of_the_gpu_that_a_process_computes_on(daemon: RunningDaemon, pids: Path, program: Program) -> None:
    with program() as job:
        pids.write_text(str(job.pid))
        [target] = Captures(daemon).record(job.pid, duration_ns=SAMPLED_NS).targets
    assert (target.state, list(target.sources)) == (pb.STATE_STORED, ["cuda"]), target.message
    rows = sql(
        daemon,
        target.trace,
        """select e.name, p.id, count(*), min(e.value), max(e.value) from events e join processes p using (process)
           where e.kind = 'counter' and e.cat = 'gpu_metric' group by all order by all""",
    )
    values = {name: (low, high) for name, _, _, low, high in rows}
    assert {track for _, track, _, _, _ in rows} == {"GPU 0"}  # the other one is not this process's
    assert values["power_watts"] == (350.5, 350.5)
    assert values["process_memory_used_bytes"] == (3 << 30, 3 << 30)
    assert values["sm_active_ratio"] == (0.02, 0.02)
    assert "fp64_active_ratio" not in values  # the driver does not say: no track
    assert all(count >= 2 for _, _, count, _, _ in rows)
    throttled = sql(
        daemon,
        target.trace,
        """select distinct key, number from events join args using (row)
           where name = 'throttled' and key in ('hw_thermal', 'sync_boost') order by key""",
    )
    assert throttled == [["hw_thermal", 1], ["sync_boost", 0]]
    _lie_within_the_work(daemon, target.trace)
    _are_exported(daemon, target.trace)
    _are_summed_up(daemon, target.trace)


def _lie_within_the_work(daemon: RunningDaemon, trace: str) -> None:
    """The samples have the clock of the events: kernels ran before the second of them and after the last but one."""
    [[samples, around]] = sql(
        daemon,
        trace,
        """with samples as (select start_ns as t from events where name = 'power_watts'),
                work as (select min(start_ns) as a, max(end_ns) as b from events where kind = 'kernel')
           select count(*), count(*) filter (t between a and b) from samples, work""",
    )
    assert around >= samples - 2 > 0


def _are_exported(daemon: RunningDaemon, trace: str) -> None:
    records = json.loads(exported(daemon, trace, "chrome"))["traceEvents"]
    power = [record for record in records if record.get("name") == "power_watts"]
    assert {record["ph"] for record in power} == {"C"}
    assert {record["args"]["value"] for record in power} == {350.5}
    perfetto = exported(daemon, trace, "perfetto")
    assert b"power_watts" in perfetto
    assert b"hw_thermal" in perfetto


def _are_summed_up(daemon: RunningDaemon, trace: str) -> None:
    chunks = daemon.stub(TraceServiceStub).Gpu(trace_pb2.TraceRef(id=trace), metadata=daemon.metadata())
    metrics = json.loads(b"".join(chunk.data for chunk in chunks))["metrics"]
    [power] = [row for row in metrics if row["name"] == "power_watts"]
    assert (power["track"], power["mean"], power["min"], power["max"]) == ("GPU 0", 350.5, 350.5, 350.5)


def test_opting_out(daemon: RunningDaemon, program: Program) -> None:
    with program() as job:
        [target] = Captures(daemon).record(job.pid, no_gpu_metrics=True).targets
    assert target.state == pb.STATE_STORED, target.message
    assert sql(daemon, target.trace, "select count(*) from events where kind = 'counter'") == [[0]]
