"""Counters beside a recording, sampled by a real process from a stand-in (tests/support/pm_collector.py)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.capture.death import DeathWatch
from profd.gpu.lease_keeper import LeaseKeeper
from profd.gpu.leases import GpuId
from profd.gpu.pm_sampling import (
    COLLECTOR,
    METRICS,
    Counters,
    PmRecording,
    PmSampling,
    PmState,
    _environment,
    both,
    check,
)
from profd.model.capture import Options, RawFile, Recording
from profd.targets.process import Process, ProcessId
from profd.targets.table import ProcessTable

from tests.support.waiting import eventually

ROOT = Path(__file__).parents[4]
FAKE = "tests.support.pm_collector:Collector"
PROCESS = Process(ProcessId(4711, 1), 1, 0, 0, "root", "python", gpus=(0,))
INTERVAL_NS = 1_000_000


@pytest.fixture
async def leases(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LeaseKeeper]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    keeper = LeaseKeeper(DeathWatch(ProcessTable()))
    yield keeper
    await keeper.close()


def begun(leases: LeaseKeeper, process: Process = PROCESS, collector: str = FAKE) -> PmRecording:
    found = PmSampling(leases, INTERVAL_NS, collector).begin(process, Options())
    assert isinstance(found, PmRecording)
    return found


def recording(folder: Path) -> Recording:
    return Recording(files=[RawFile(str(folder / "x"), "chunks")], start_ns=time.time_ns())


async def test_what_it_would_do_to_the_clocks_is_known_before(leases: LeaseKeeper) -> None:
    sampling = PmSampling(leases, INTERVAL_NS, FAKE)
    assert "counters of GPU 0, 3 are sampled, which holds its clocks" in sampling.risk(
        replace(PROCESS, gpus=(3, 0)), Options()
    )
    assert sampling.risk(PROCESS, Options(no_gpu_metrics=True)) == ""
    assert sampling.risk(replace(PROCESS, gpus=()), Options()) == ""


async def ended(beside: PmRecording, folder: Path) -> Recording:
    done = recording(folder)
    done.end_ns = None
    await asyncio.to_thread(beside.finish, done, folder)
    await asyncio.sleep(0)
    return done


async def until_sampled(beside: PmRecording) -> None:
    await eventually(lambda: all(sampler.counters.samples for sampler in beside._samplers))


async def test_samples_are_counter_tracks_and_the_clocks_are_said_to_be_held(
    leases: LeaseKeeper, tmp_path: Path
) -> None:
    began = time.time_ns()
    beside = begun(leases, replace(PROCESS, gpus=(0, 3)))
    await until_sampled(beside)
    done = recording(tmp_path)
    done.start_ns = began
    await asyncio.to_thread(beside.finish, done, tmp_path)
    paths = [Path(file.path) for file in done.files[1:]]
    assert [path.name for path in paths] == ["0-gpu-counters.json", "3-gpu-counters.json"]
    written = json.loads(paths[1].read_text())
    assert written["profd_pm_sampling"]["locked_clocks"] is True
    values = {event["name"]: event["args"]["value"] for event in written["traceEvents"]}
    assert values == {
        "sm__cycles_active.avg.pct_of_peak_sustained_elapsed": 53.0,
        "dram__throughput.avg.pct_of_peak_sustained_elapsed": 25.0,
    }
    assert {event["pid"] for event in written["traceEvents"]} == {"GPU 3"}
    assert all(began / 1e3 <= event["ts"] <= time.time_ns() / 1e3 + 1 for event in written["traceEvents"])
    assert "held its clocks" in done.warnings[0]


async def test_the_lease_of_the_gpu_is_held_until_the_sampler_has_ended(leases: LeaseKeeper, tmp_path: Path) -> None:
    first = begun(leases)
    assert leases.of(GpuId("/dev/nvidia0")) is not None
    refused = await ended(begun(leases), tmp_path)
    assert "the counters of GPU /dev/nvidia0 are held by “profd, for pid 4711”" in refused.warnings[0]
    await ended(first, tmp_path)
    await eventually(lambda: not leases.leases())
    await ended(begun(leases), tmp_path)


async def test_a_capture_that_fails_lets_go(leases: LeaseKeeper) -> None:
    beside = begun(leases)
    await until_sampled(beside)
    beside.drop()
    await eventually(lambda: not leases.leases())


@pytest.mark.parametrize(
    ("error", "why"),
    [
        ("PermissionError: no", "only administrators may read hardware counters"),
        ("ValueError: Invalid device_index: 0", "this GPU cannot sample these counters"),
        ("RuntimeError: PM sampling is already enabled on this device.", "another tool samples this GPU"),
        ("RuntimeError: could not load the nvperf* libraries", "libnvperf_host.so is not found"),
        ("OSError: CUDA driver is not found", "there is no CUDA driver where profd runs"),
        ("OSError: x", "CUPTI failed (OSError: x)"),
    ],
)
async def test_what_stands_in_the_way(
    leases: LeaseKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str, why: str
) -> None:
    monkeypatch.setenv("FAKE_PM_ERROR", error)
    done = await ended(begun(leases), tmp_path)
    assert done.warnings[0].startswith(f"no counters of GPU 0: {why}")
    assert len(done.files) == 1


async def test_no_package(leases: LeaseKeeper, tmp_path: Path) -> None:
    done = await ended(begun(leases, collector="cupti_that_is_not_there:Collector"), tmp_path)
    assert "pip install cupti-python" in done.warnings[0]


async def test_a_sampler_that_no_thread_can_be_had_for_frees_the_gpu(
    leases: LeaseKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_more)
        beside = begun(leases)
    assert leases.leases() == []
    beside.drop()
    done = await ended(beside, tmp_path)
    assert done.warnings == ["no counters of GPU 0: its sampler could not be started: can't start new thread"]


def test_samplers_see_every_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    environment = _environment()
    assert "CUDA_VISIBLE_DEVICES" not in environment
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


async def test_a_sampler_that_hangs_is_killed(
    leases: LeaseKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_PM_ERROR", "hang: ")
    monkeypatch.setattr("profd.gpu.pm_sampling.END_SECONDS", 0.2)
    done = await ended(begun(leases), tmp_path)
    assert "was killed" in done.warnings[0]


async def test_a_capture_that_ends_before_its_sampler_has_begun(leases: LeaseKeeper, tmp_path: Path) -> None:
    for _ in range(5):
        beside = begun(leases)
        beside.drop()
        beside.drop()
        done = await ended(beside, tmp_path)
        assert "no counters of GPU 0" in done.warnings[0]
        await eventually(lambda: not leases.leases())


def test_the_doctor_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        return found[name]

    monkeypatch.setattr("profd.gpu.pm_sampling.metadata.version", version)
    found = {"cupti-python": "13.4.0"}
    assert check(0).verdict == check(1000).verdict == "ok"
    found = {"cupti-python": "13.0.1"}
    assert check(1000).fix == "pip install -U cupti-python"


def test_the_doctor_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("profd.gpu.pm_sampling.metadata.version", version)
    assert "pip install cupti-python" in check(1000).fix


def test_every_state_has_a_sentence() -> None:
    for state in PmState:
        counters = Counters()
        counters.take_untrusted(json.dumps({"error": state.value, "text": "t"}).encode())
        assert counters.why.endswith("(t)")


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: json.dumps({"error": text}).encode()))
def test_any_line(line: bytes) -> None:
    counters = Counters()
    try:
        counters.take_untrusted(line)
    except (ValueError, TypeError, KeyError):
        return
    assert counters.samples == []


@pytest.mark.parametrize(
    "line",
    [
        b'{"now": 1e999, "samples": [[0, 1, [1]]]}',
        b'{"now": 1, "samples": [[0, 1e999, [1]]]}',
        b'{"now": 1, "samples": [[-1e999, 1, [1]]]}',
        b'{"now": 1, "samples": [[0, 1, [1%s]]]}' % (b"0" * 400),
        b'{"now": 1, "samples": [[0, 1%s, [1]]]}' % (b"0" * 100_000),
        b"[" * 100_000,
    ],
    ids=("now", "end", "start", "a value", "digits", "nested"),
)
def test_numbers_that_no_sampler_counts_to(line: bytes) -> None:
    """WHEN the reader's thread ended with another error THEN the lease of the counters would be kept for good."""
    with pytest.raises((ValueError, RecursionError)):
        Counters().take_untrusted(line)


@pytest.mark.parametrize(
    ("process", "options", "word"),
    [
        (PROCESS, Options(no_gpu_metrics=True), "--no-gpu-metrics"),
        (replace(PROCESS, gpus=(), cuda=True), Options(), "/dev/nvidia"),
    ],
)
async def test_counters_that_are_not_sampled_are_said_to_be_missing(
    leases: LeaseKeeper, tmp_path: Path, process: Process, options: Options, word: str
) -> None:
    beside = PmSampling(leases, INTERVAL_NS, FAKE).begin(process, options)
    assert beside is not None
    found = recording(tmp_path)
    beside.finish(found, tmp_path)
    [said] = found.warnings
    assert word in said
    assert said.startswith("no hardware counters (gpu.pm_sampling_us)")


async def test_not_asked_for(leases: LeaseKeeper) -> None:
    sampling = PmSampling(leases, INTERVAL_NS, FAKE)
    assert sampling.begin(replace(PROCESS, gpus=()), Options()) is None
    assert sampling.begin(replace(PROCESS, gpus=()), Options(no_gpu_metrics=True)) is None
    assert both(lambda *_: None, lambda *_: None)(PROCESS, Options()) is None


def test_the_real_package_without_a_driver() -> None:
    """In the interpreter that PROFD_CUPTI_PYTHON names: no test environment of ours brings cupti-python."""
    python = os.environ.get("PROFD_CUPTI_PYTHON")
    if not python:
        pytest.skip("PROFD_CUPTI_PYTHON does not name an interpreter with cupti-python")
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("there is a driver, and counters are not to be touched by a test")
    order = {"device": 0, "interval_ns": 1_000_000, "metrics": list(METRICS), "collector": COLLECTOR}
    program = ROOT / "daemon" / "profd" / "gpu" / "pm_sampler.py"
    done = subprocess.run([python, program, json.dumps(order)], stdin=subprocess.DEVNULL, capture_output=True, cwd="/")
    counters = Counters()
    counters.take_untrusted(done.stdout)
    assert counters.why.startswith("there is no CUDA driver where profd runs: mount libcuda.so.1")
