"""Device times by CUDA events, where the events are a test's, for lack of a GPU: what they said is what is stored."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from profproto.v1 import capture_pb2 as pb

from tests.support.attached import READY, Captures, attached, sql
from tests.support.daemon import RunningDaemon, running_daemon

torch = pytest.importorskip("torch", reason="needs torch")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]

# Each event is one later than the one before: an op that encloses n ops lasts 2n + 1 us, on one thread.
RECORD = """
import ctypes, json, os, sys
import torch
import profclient
from profclient import _recorder
from profclient.torch import observer
from tests.support.arena_reader import Ext, Kind, read_arena
TIMES = 32
fake = ctypes.CDLL(sys.argv[1])
loaded = observer.load()
def recorded(work, bits=TIMES, sources=4):
    descriptor = _recorder.arm(arena_bytes=64 << 20, sources=sources)
    loaded.start_times()
    loaded.start(bits)
    work()
    loaded.stop()
    loaded.stop_times()
    _recorder.disarm()
    arena = read_arena(descriptor)
    while not _recorder.release():
        pass
    ops = {event.id: event for event in arena.events if event.kind in (Kind.OP, Kind.RANGE)}
    times = {}
    for event in arena.events:
        if event.kind is Kind.COUNTER:
            gpu = event.ext[Ext.GPU]
            assert int.from_bytes(gpu[4:8], "little") == 3, "the device"
            times[int.from_bytes(gpu[24:32], "little")] = event.value
    few = ops if len(ops) < 100 else {}
    within = {a: sum(b.start >= op.start and b.end <= op.end for b in few.values()) for a, op in few.items()}
    return {"names": [op.name for op in ops.values()], "lost": arena.lost, "times": [times.get(id) for id in ops],
            "expected": [1000.0 * (2 * count - 1) for count in within.values()], "strays": len(times.keys() - ops)}
"""
WORK = """
def work():
    with torch.profiler.record_function("mine"):
        torch.nn.functional.linear(torch.ones(4, 4), torch.ones(4, 4)).sum()
work()
"""


@pytest.fixture(scope="module")
def events(torch_builds: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from profclient.torch import build

    made = tmp_path_factory.mktemp("events") / "fake_cuda_events.so"
    source = ROOT / "tests" / "support" / "fake_cuda_events.cpp"
    command = build.command(build.ask(sys.executable), build.compiler(), made, source)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return made


def told(program: str, events: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", RECORD + WORK + program, str(events)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("bits", ["TIMES", "TIMES | 1"])
def test_every_op_and_range_has_the_time_between_its_events(events: Path, bits: str) -> None:
    found = told(f"recorded(work); print(json.dumps(recorded(work, {bits})))", events)
    assert found["times"] == found["expected"]
    assert {"mine", "aten::linear", "aten::sum"} <= set(found["names"])
    assert not any(found["lost"].values())
    assert found["strays"] == 0


def test_ranges_of_ours_have_it_too_and_what_is_left_open_harms_none_around_it(events: Path) -> None:
    found = told(
        """
def ours():
    with profclient.record_function("ours"):
        profclient.record_function("never left").__enter__()
        profclient.range_push("pushed")
        work()
        profclient.range_pop()
found = recorded(ours, TIMES, 5)
print(json.dumps({**found, "times": dict(zip(found["names"], found["times"]))}))
""",
        events,
    )
    # Its own event, the one that was left open, and two each of the 6 and more within it.
    assert found["times"]["never left"] is None
    assert found["times"]["pushed"] == found["times"]["mine"] + 2000
    assert found["times"]["ours"] == found["times"]["pushed"] + 3000
    assert found["strays"] == 0


def test_a_range_that_ends_on_another_thread_has_none(events: Path) -> None:
    found = told(
        """
import threading
def elsewhere():
    range = profclient.record_function("elsewhere")
    range.__enter__()
    thread = threading.Thread(target=range.__exit__, args=(None, None, None))
    thread.start(), thread.join()
    work()
found = recorded(elsewhere, TIMES, 5)
print(json.dumps({**found, "times": dict(zip(found["names"], found["times"]))}))
""",
        events,
    )
    assert found["times"]["elsewhere"] is None
    assert found["times"]["mine"] > 0


def test_ops_beyond_the_limit_have_none_and_are_counted(events: Path) -> None:
    found = told(
        """
one = torch.ones(1)
def many():
    for _ in range(70_000):
        one.abs_()
told = recorded(many)
print(json.dumps({"timed": sum(each is not None for each in told["times"]), "ops": len(told["names"]), **told["lost"]}))
""",
        events,
    )
    assert found["timed"] == 1 << 16
    assert found["cuda_events_full"] == found["ops"] - (1 << 16) > 0


def test_events_that_cuda_refuses_are_counted_and_the_job_goes_on(events: Path) -> None:
    found = told("fake.fake_events_fail(1); print(json.dumps(recorded(work)))", events)
    assert not any(found["times"])
    assert found["lost"]["cuda_event_failed"] == len(found["names"])


def test_a_child_of_a_fork_leaves_its_parents_events_alone(events: Path) -> None:
    found = told(
        """
def forks():
    work()
    if os.fork() == 0:
        loaded.stop(); loaded.stop_times()
        os._exit(0)
    assert os.wait()[1] == 0
    work()
print(json.dumps(recorded(forks)))
""",
        events,
    )
    assert found["times"] == found["expected"]


@pytest.mark.usefixtures("torch_builds")
def test_torch_without_cuda_has_none() -> None:
    if torch.version.cuda is not None:
        pytest.skip("this torch has CUDA events")
    done = subprocess.run(
        [sys.executable, "-c", RECORD.replace("ctypes.CDLL(sys.argv[1])", "None") + "loaded.start_times()"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert "this torch has no CUDA events" in done.stderr


@pytest.mark.usefixtures("torch_builds")
def test_where_cuda_does_not_run_there_are_none_whatever_torch_was_built_for() -> None:
    asked = "from profclient.torch import recording\nrecording.start_times({'torch': 'auto'})"
    program = RECORD.replace("ctypes.CDLL(sys.argv[1])", "None") + asked
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert "CUDA had not been initialized when the capture began" in done.stderr


# Jobs whose CUDA is the test's, and no CUPTI.
PROLOGUE = f"""
import ctypes, mmap, os, sys, threading
import profclient
profclient.attach()
import torch
if os.environ.get("EVENTS"):
    ctypes.CDLL(os.environ["EVENTS"])
    torch.cuda.is_initialized = lambda: True
torch.set_num_threads(1)
weight = torch.ones(4, 4)
{READY}
steps = 0
while not done.is_set():
"""
JOB = f"""{PROLOGUE}
    torch.nn.functional.linear(weight, weight)
    steps += 1
    shared[:8] = steps.to_bytes(8, "little")
    done.wait(0.002)
"""
WITHIN = 3000  # ops: more events than a chunk has room for, so the end of what is around them is in a later one
LONG_RANGES_JOB = f"""{PROLOGUE}
    with profclient.record_function("ours"), torch.profiler.record_function("torch's"):
        for _ in range({WITHIN}):
            weight.abs_()
    # The third end is waited for after times began to be taken: both ends of two ranges are in the window.
    steps += 10 * profclient.agent.hooks_begun()
    shared[:8] = steps.to_bytes(8, "little")
"""


@pytest.fixture(scope="module")
def daemon(torch_builds: Path) -> Iterator[RunningDaemon]:
    with running_daemon(environ={"PROFD_SDK_ARENA_BYTES": "64MiB"}) as found:
        yield found


def captured(
    daemon: RunningDaemon, folder: Path, environ: dict[str, str], job: str = JOB, **options: object
) -> pb.TargetStatus:
    with attached(daemon, folder, job, environ=environ) as running:
        captures = Captures(daemon)
        capture = captures.recording(running.pid, **options)
        running.counts_on()
        [target] = captures.stop(capture).targets
    assert target.state in (pb.STATE_STORED, pb.STATE_PARTIAL), (target.message, list(target.not_honoured))
    found: pb.TargetStatus = target
    return found


def top(daemon: RunningDaemon, trace: str) -> dict[str, dict[str, int]]:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("profctl")), "top", trace, "--json"],
        env=daemon.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)}


def test_top_shows_them_and_the_trace_says_what_they_are(daemon: RunningDaemon, events: Path, tmp_path: Path) -> None:
    target = captured(daemon, tmp_path, {"EVENTS": str(events)}, gpu_fallback=True, force=True)
    assert any("CUDA events" in said for said in target.warnings), list(target.warnings)
    assert not target.lost
    rows = top(daemon, target.trace)
    inner = "select count(*) from events where cat = 'cpu_op' and name != 'aten::linear'"
    [[within]] = sql(daemon, target.trace, inner)
    linear = rows["aten::linear"]
    assert linear["count"] > 0
    # Each inner op is two events, 1 us apart; those that the window cut have no times.
    assert abs(linear["device_time_total_ns"] - 1000 * (2 * within + linear["count"])) <= 1000 * 20
    assert 0 < linear["self_device_time_total_ns"] < linear["device_time_total_ns"]


def test_ranges_that_are_longer_than_a_chunk_have_them(daemon: RunningDaemon, events: Path, tmp_path: Path) -> None:
    target = captured(daemon, tmp_path, {"EVENTS": str(events)}, LONG_RANGES_JOB, gpu_fallback=True, force=True)
    rows = top(daemon, target.trace)
    for name in ("ours", "torch's"):
        assert rows[name]["device_time_total_ns"] >= 2 * 1000 * WITHIN, rows[name]


def test_without_cuda_it_says_so(daemon: RunningDaemon, tmp_path: Path) -> None:
    target = captured(daemon, tmp_path, {}, gpu_fallback=True, force=True)
    assert any(said.startswith("gpu_fallback: CUDA had not been") for said in target.not_honoured)
    assert not any("CUDA events" in said for said in target.warnings)


def test_it_is_off_unless_asked_for(daemon: RunningDaemon, events: Path, tmp_path: Path) -> None:
    target = captured(daemon, tmp_path, {"EVENTS": str(events)})
    assert top(daemon, target.trace)["aten::linear"]["device_time_total_ns"] == 0
