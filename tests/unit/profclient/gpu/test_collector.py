"""The collector against a libcupti of our own (tests/support/fake_cupti.c). None of this is a claim about a GPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]
FAKE = ROOT / "tests" / "support" / "fake_cupti.c"

# Runs `work` between arm and stop; prints what the arena holds and what was told.
PROGRAM = """
import ctypes, json, os, struct, sys
from profclient import _recorder, gpu
from tests.support.arena_reader import read_arena

fake = ctypes.CDLL(os.environ["PROFD_CUPTI_LIBRARY"])
fake.fake_copy.argtypes = [ctypes.c_uint32, ctypes.c_uint64]
fake.fake_memset.argtypes = [ctypes.c_uint64]
fd = _recorder.arm(arena_bytes=int(sys.argv[2]), sources=8)
told = {}
try:
    told["notes"] = gpu.start()
except gpu.CuptiUnavailable as error:
    told["why"] = str(error)
exec(sys.argv[1])
told["report"] = gpu.stop()
_recorder.disarm()
arena = read_arena(fd)
fields = "correlation device context stream tid detail bytes node graph".split()
told["events"] = [
    {"kind": event.kind.name, "name": event.name, "start": event.start, "end": event.end,
     **dict(zip(fields, struct.unpack_from("<6IQQI", event.ext[11]))),
     "rest": struct.unpack_from("<8I", event.ext[11], 44) if len(event.ext[11]) == 80 else None}
    for event in arena.events
]
told["lost"] = arena.lost
told["subscribed"] = fake.fake_state(0)
told["forced"] = fake.fake_state(2)
told["enabled"] = [kind for kind in range(64) if fake.fake_state(100 + kind)]
told["pid"] = os.getpid()
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def cupti(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the stand-in for CUPTI")
    library = tmp_path_factory.mktemp("cupti") / "libcupti.so.13"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-pthread", "-o", library, FAKE], check=True)
    return library


def collected(cupti: Path, work: str, arena_bytes: int = 16 << 20, **variables: str) -> dict[str, Any]:
    environ = {**os.environ, "PROFD_CUPTI_LIBRARY": str(cupti), "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, work, str(arena_bytes)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def events(told: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [event for event in told["events"] if event["kind"] == kind]


@pytest.mark.parametrize("thread", ["0", "1"])
def test_launches_and_kernels_share_their_correlation(cupti: Path, thread: str) -> None:
    told = collected(cupti, "fake.fake_launch(b'void gemm<float>(int)', 9, 40)", FAKE_CUPTI_THREAD=thread)
    calls, kernels = events(told, "API"), events(told, "KERNEL")
    assert [call["name"] for call in calls] == ["cudaLaunchKernel"] * 40
    assert {call["tid"] for call in calls} == {told["pid"]}
    assert (
        [kernel["correlation"] for kernel in kernels] == [call["correlation"] for call in calls] == list(range(1, 41))
    )
    assert {(k["name"], k["device"], k["context"], k["stream"]) for k in kernels} == {
        ("void gemm<float>(int)", 1, 7, 9)
    }
    assert {k["end"] - k["start"] for k in kernels} == {20_000}
    # registers, grid, block, shared memory (static and dynamic)
    assert {tuple(k["rest"]) for k in kernels} == {(32, 80, 2, 1, 256, 1, 1, 1536)}
    assert told["notes"] == ""


def test_copies_sets_and_synchronizations(cupti: Path) -> None:
    told = collected(
        cupti, "fake.fake_copy(1, 1 << 33); fake.fake_copy(8, 5); fake.fake_memset(100); fake.fake_sync(3)"
    )
    assert [(e["name"], e["bytes"]) for e in events(told, "MEMCPY")] == [("Memcpy HtoD", 1 << 33), ("Memcpy DtoD", 5)]
    assert [(e["name"], e["bytes"]) for e in events(told, "MEMSET")] == [("Memset", 100)]
    assert [e["name"] for e in events(told, "SYNC")] == ["Stream Sync"]
    assert [e["name"] for e in events(told, "API")] == ["cudaMemcpyAsync"] * 2


def test_calls_that_do_nothing_are_left_out_and_counted(cupti: Path) -> None:
    work = "[fake.fake_call(2, 17) for _ in range(5)]; "
    work += "fake.fake_call(1, 5); fake.fake_call(1, 307); fake.fake_call(2, 165)"
    told = collected(cupti, work)
    assert [event["name"] for event in told["events"]] == ["cuLaunchKernel", "cudaDeviceSynchronize"]
    assert told["report"]["gpu.filtered"] == 6


def test_a_call_without_a_name_is_kept_by_its_number(cupti: Path) -> None:
    told = collected(cupti, "fake.fake_call(2, 9999)")
    assert [event["name"] for event in told["events"]] == ["CUDA runtime call 9999"]


def test_a_kernel_without_an_end_is_counted(cupti: Path) -> None:
    told = collected(cupti, "fake.fake_unfinished(b'k'); fake.fake_launch(b'k', 7, 1)")
    assert len(events(told, "KERNEL")) == 1
    assert told["lost"]["cupti_bad_time"] == told["report"]["gpu.bad_times"] == 1


def test_many_buffers_and_a_reader_that_does_not_come(cupti: Path) -> None:
    # 256 bytes a launch in CUPTI's buffers, 288 in the arena: 10 buffers, twice what the arena takes.
    told = collected(cupti, "fake.fake_launch(b'k', 7, 80_000)", arena_bytes=12 << 20)
    recorded = len(told["events"])
    assert 0 < recorded < 160_000
    assert recorded + told["lost"]["arena_full"] == 160_000
    assert told["report"]["gpu.records"] == 160_000


def test_nothing_is_left_after_the_stop(cupti: Path) -> None:
    told = collected(cupti, "fake.fake_launch(b'k', 7, 1)")
    assert (told["subscribed"], told["enabled"], told["forced"]) == (0, [], 1)


def test_many_arms(cupti: Path) -> None:
    again = "fake.fake_launch(b'k', 7, 1); gpu.stop(); assert gpu.start() == ''"
    told = collected(cupti, f"for _ in range(30):\n    {again}\nfake.fake_launch(b'k', 7, 2)")
    assert len(events(told, "KERNEL")) == 32
    assert told["report"]["gpu.device_events"] == 2  # of the last


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        (
            {"FAKE_CUPTI_HOLDER": "Nsight Systems"},
            "another profiler holds CUPTI in this process: CUPTI for Nsight Systems",
        ),
        ({"FAKE_CUPTI_SUBSCRIBE": "35"}, "the driver lets only administrators profile"),
        ({"FAKE_CUPTI_SUBSCRIBE": "15"}, "CUPTI does not work with this driver"),
        ({"FAKE_CUPTI_SUBSCRIBE": "2"}, "CUPTI could not be subscribed to: CUPTI_ERROR_FAKE (2)"),
        ({"FAKE_CUPTI_VERSION": "140000"}, "its CUPTI has version 140000; known are those of CUDA 12 and 13"),
        ({"FAKE_CUPTI_VERSION": "17"}, "its CUPTI has version 17"),
        ({"FAKE_CUPTI_NO_KERNELS": "21"}, "kernels are not recorded: CUPTI_ERROR_FAKE (21)"),
        ({"FAKE_CUPTI_CLOCK_NS": "5000000000"}, "CUPTI's clock in this process is not the system's"),
    ],
)
def test_what_stands_in_the_way_is_said(cupti: Path, variables: dict[str, str], why: str) -> None:
    told = collected(cupti, "fake.fake_launch(b'k', 7, 3)", **variables)
    assert told["why"].startswith(why)
    assert told["events"] == []
    assert told["subscribed"] == 0
    assert told["enabled"] == []


def test_without_the_driver_cupti_is_not_touched() -> None:
    program = """
from profclient import _recorder, gpu
_recorder.arm(sources=8)
try:
    gpu.start()
except gpu.CuptiUnavailable as error:
    print(error)
"""
    environ = {key: value for key, value in os.environ.items() if key != "PROFD_CUPTI_LIBRARY"}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "the process has not loaded CUDA's driver library yet"
