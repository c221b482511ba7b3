"""Operators of a running PyTorch process in a stored trace: by the observer, by torch's own profiler, and why not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from profproto.v1 import capture_pb2 as pb
from profproto.v1 import trace_pb2
from profproto.v1.trace_pb2_grpc import TraceServiceStub

from tests.support.attached import READY, WAIT_SECONDS, Attached, Captures, attached, sources, spawn, sql
from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.waiting import until

pytestmark = pytest.mark.slow

# torch is imported after attach(): the daemon learns of it, and of the observer, when it is.
TRAIN = f"""
import mmap, os, sys, threading
import profclient
profclient.attach()
import torch
from torch import nn
torch.manual_seed(0); torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs, labels = torch.randn(8, 16), torch.randint(0, 4, (8,))
{READY}
steps = 0
while not done.is_set():
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    steps += 1
    shared[:8] = steps.to_bytes(8, "little")
    done.wait(0.002)
print(steps, flush=True)
"""
# The same under the observer alone, from its first step to its last: a daemon has one capture of a process at a time.
OBSERVED = (
    TRAIN.replace("profclient.attach()", "")
    .replace(
        "steps = 0",
        """
from profclient import _recorder
from profclient.torch import observer
from tests.support.arena_reader import read_arena
descriptor = _recorder.arm(arena_bytes=256 << 20, sources=4)
loaded = observer.load()
loaded.start(0)
steps = 0
""",
    )
    .replace(
        "print(steps, flush=True)",
        """
loaded.stop(); _recorder.disarm()
print(len(read_arena(descriptor).named("aten::addmm")), steps, flush=True)
""",
    )
)
# Something to record, also where no operators are.
RANGED = TRAIN.replace(
    "    steps += 1", "    profclient.record_function('mine').__enter__().__exit__(None, None, None)\n    steps += 1"
)
STEP_OPS = {"aten::addmm": 2, "AddmmBackward0": 2, "aten::relu": 1, "Optimizer.step#SGD.step": 1}


@pytest.fixture(scope="module")
def daemon(torch_builds: Path) -> Iterator[RunningDaemon]:
    with running_daemon(environ={"PROFD_SDK_ARENA_BYTES": "64MiB"}) as found:
        yield found


@pytest.fixture(scope="module")
def job(daemon: RunningDaemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attached]:
    with attached(daemon, tmp_path_factory.mktemp("job"), TRAIN) as found:
        yield found


@pytest.fixture(scope="module")
def unbuilt(daemon: RunningDaemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attached]:
    """The same where nothing has been built."""
    folder = tmp_path_factory.mktemp("unbuilt")
    places = {"PROFD_TORCH_DIR": str(folder / "none"), "XDG_CACHE_HOME": str(folder / "cache")}
    with attached(daemon, folder, RANGED, environ=places) as found:
        yield found


def captured(daemon: RunningDaemon, job: Attached, **options: object) -> pb.TargetStatus:
    """A capture of some steps, stored."""
    captures = Captures(daemon)
    capture = captures.recording(job.pid, **options)
    job.counts_on()
    [target] = captures.stop(capture).targets
    assert target.state in (pb.STATE_STORED, pb.STATE_PARTIAL), (target.message, list(target.not_honoured))
    return target


def ended(capture: pb.Capture) -> bool:
    return all(target.state >= pb.STATE_STORED for target in capture.targets)


def calls(daemon: RunningDaemon, trace: str) -> dict[str, int]:
    rows = sql(daemon, trace, "select name, count(*) from events group by name")
    return {str(name): int(count) for name, count in rows}


def check_steps(found: dict[str, int]) -> None:
    """Whole steps, but for those that the window cut."""
    steps = found["Optimizer.step#SGD.step"]
    assert steps > 2
    for name, times in STEP_OPS.items():
        assert abs(found[name] - times * steps) <= 2 * times, (name, found[name], steps)


def test_the_observer_records_what_runs(daemon: RunningDaemon, job: Attached) -> None:
    target = captured(daemon, job)
    assert not target.lost
    assert not target.not_honoured
    check_steps(calls(daemon, target.trace))


def test_shapes_memory_and_backward_links(daemon: RunningDaemon, job: Attached) -> None:
    target = captured(daemon, job, shapes=True, memory=True)
    assert not target.not_honoured, list(target.not_honoured)
    [[shaped, of_all]] = sql(
        daemon, target.trace, "select count(inputs), count(*) from events where name = 'aten::addmm'"
    )
    assert shaped == of_all > 0
    [[allocated, freed]] = sql(
        daemon, target.trace, "select count(*) filter (bytes > 0), count(*) filter (bytes < 0) from events"
    )
    assert allocated > 0
    assert freed > 0
    [[linked]] = sql(
        daemon, target.trace, "select count(*) from events where name = 'AddmmBackward0' and sequence is not null"
    )
    assert linked > 0


def test_torch_imported_before_the_attach(daemon: RunningDaemon, tmp_path: Path) -> None:
    program = "import torch\n" + TRAIN
    with attached(daemon, tmp_path, program) as job:
        target = captured(daemon, job, shapes=True)
        assert not target.lost
        assert not target.not_honoured, list(target.not_honoured)
        check_steps(calls(daemon, target.trace))


def test_so_many_iterations_are_whole_steps_again_and_again(daemon: RunningDaemon, job: Attached) -> None:
    captures, stub = Captures(daemon), daemon.stub(TraceServiceStub)
    for asked in (1, 1, 3):
        [target] = captures.record(job.pid, duration_ns=0, iterations=asked).targets
        assert target.state == pb.STATE_STORED, target.message
        chunks = stub.Steps(trace_pb2.TraceRef(id=target.trace), metadata=daemon.metadata(), timeout=WAIT_SECONDS)
        updates = calls(daemon, target.trace)["Optimizer.step#SGD.step"]
        # One may have ended after operators were recorded and before steps were counted.
        whole = json.loads(b"".join(chunk.data for chunk in chunks))["n"]
        assert whole == updates - 1 >= asked
        # Two steps are too few to be compared with others, of which the capture before has counted some.
        assert whole > 2 or not target.cost.HasField("step_ratio")
        job.counts_on()


def test_a_job_that_ends_while_it_is_recorded(daemon: RunningDaemon, tmp_path: Path) -> None:
    with attached(daemon, tmp_path, TRAIN) as job:
        captures = Captures(daemon)
        capture = captures.recording(job.pid, memory=True, shapes=True)
        job.counts_on()
        out, _ = job.process.communicate(timeout=WAIT_SECONDS)
        assert job.process.returncode == 0
        [target] = captures.until(capture, ended).targets
    assert target.state in (pb.STATE_STORED, pb.STATE_PARTIAL), target.message
    steps = calls(daemon, target.trace)["Optimizer.step#SGD.step"]
    assert 20 < steps <= int(out)


def test_kineto_on_demand_meanwhile(daemon: RunningDaemon, tmp_path: Path) -> None:
    config = tmp_path / "libkineto.conf"
    config.write_text("ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n")
    kineto = {
        "KINETO_USE_DAEMON": "1",
        "KINETO_IPC_SOCKET_DIR": str(daemon.kineto_dir),
        "KINETO_CONFIG": str(config),
        "KINETO_ONDEMAND_TRACE_DIR": str(tmp_path),
        "OMP_NUM_THREADS": "1",
    }
    job = spawn(daemon, tmp_path, OBSERVED, environ=kineto)
    try:
        until(lambda: "kineto" in sources(daemon, job.pid), "kineto has registered")
        captures = Captures(daemon)
        [target] = captures.until(captures.start(job.pid, source="kineto", force=True).id, ended).targets
        job.counts_on()
        out, _ = job.process.communicate(timeout=WAIT_SECONDS)
    finally:
        job.process.kill()
        job.process.communicate()
    assert target.state in (pb.STATE_STORED, pb.STATE_PARTIAL), (target.message, list(target.not_honoured))
    check_steps(calls(daemon, target.trace))
    recorded, steps = map(int, out.split()[-2:])
    assert recorded == 2 * steps


def test_torchs_own_profiler_is_refused_unless_forced(daemon: RunningDaemon, job: Attached) -> None:
    [refused] = Captures(daemon).record(job.pid, torch="profiler").targets
    assert refused.state == pb.STATE_REFUSED, refused.message
    assert "crash" in refused.message
    assert "--force" in refused.message
    target = captured(daemon, job, torch="profiler", force=True)
    check_steps(calls(daemon, target.trace))


def test_without_a_build_there_are_ranges_and_samples_and_the_first_line_says_so(
    daemon: RunningDaemon, unbuilt: Attached
) -> None:
    target = captured(daemon, unbuilt)
    assert target.state == pb.STATE_STORED
    assert target.message.startswith("no operators are recorded")
    assert "profctl torch build" in target.message
    assert list(target.not_honoured) == [f"torch: {target.message}"]
    for seconds in (1, 5, 25, 125):  # py-spy may take so long to begin
        [target] = Captures(daemon).record(unbuilt.pid, duration_ns=seconds * 10**9).targets
        [[operators, ranges, samples]] = sql(
            daemon,
            target.trace,
            "select count(*) filter (name like 'aten::%'), count(*) filter (name = 'mine'), "
            "count(*) filter (name like '%forward%') from events",
        )
        assert operators == 0
        assert ranges > 0
        if samples:
            break
    assert samples > 0


def test_strictly_asked_it_is_refused_and_not_sampled(daemon: RunningDaemon, unbuilt: Attached) -> None:
    [target] = Captures(daemon).record(unbuilt.pid, strict=True).targets
    assert target.state == pb.STATE_REFUSED
    assert "profctl torch build" in target.message


def test_nothing_of_ours_is_on_the_jobs_stderr(daemon: RunningDaemon, tmp_path: Path) -> None:
    """torch's own lines (`External init callback`, `USDT`) were its profiler's."""
    program = "import os; os.dup2(os.open(os.environ['ERR'], os.O_CREAT | os.O_WRONLY, 0o600), 2)\n" + RANGED
    for folder, places in (("with", {}), ("without", {"PROFD_TORCH_DIR": "/nowhere"})):
        said = tmp_path / folder
        environ = {"ERR": str(said), "XDG_CACHE_HOME": str(tmp_path), **places}
        with attached(daemon, tmp_path, program, environ=environ) as job:
            for _ in range(2):
                captured(daemon, job, shapes=True, memory=not places)
        assert said.read_text() == ""
