"""The collector against a libcupti of our own (tests/support/fake_cupti.c). None of this is a claim about a GPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]
FAKE = ROOT / "tests" / "support" / "fake_cupti.c"

# Runs `work` between arm and stop; prints what the arena holds and what was told.
PROGRAM = """
import ctypes, json, os, struct, sys
import time
from profclient import _recorder, gpu
from tests.support.arena_reader import read_arena

fake = ctypes.CDLL(os.environ["PROFD_CUPTI_LIBRARY"])
fake.fake_copy.argtypes = [ctypes.c_uint32, ctypes.c_uint64]
fake.fake_memset.argtypes = [ctypes.c_uint64]
fd = _recorder.arm(arena_bytes=int(sys.argv[2]), sources=9)
told = {}
try:
    told["notes"] = gpu.start()
except gpu.CuptiUnavailable as error:
    told["why"] = str(error)
exec(sys.argv[1])
told["report"] = {key: int(value) if value.lstrip("-").isdigit() else value for key, value in gpu.stop().items()}
_recorder.disarm()
arena = read_arena(fd)
fields = "correlation device context stream tid detail bytes node graph".split()
found = [event for event in arena.events if 11 in event.ext]
told["count"] = len(found)
told["events"] = [] if "ONLY_COUNTED" in os.environ else [
    {"kind": event.kind.name, "name": event.name, "start": event.start, "end": event.end,
     **dict(zip(fields, struct.unpack_from("<6IQQI", event.ext[11]))),
     "rest": struct.unpack_from("<8I", event.ext[11], 44) if len(event.ext[11]) == 80 else None}
    for event in found
]
told["ranges"] = {event.name: event.id for event in arena.events if event.kind.name == "RANGE"}
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


@pytest.fixture(scope="module")
def cuda(cupti: Path) -> Path:
    library = cupti.with_name("libcuda.so.1")
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, FAKE.with_name("fake_cuda.c"), "-ldl"],
        check=True,
    )
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


def test_a_kernel_that_ends_late_is_waited_for(cupti: Path) -> None:
    work = "fake.fake_unfinished(b'late'); import threading; threading.Timer(0.3, fake.fake_finish).start()"
    told = collected(cupti, work)
    assert [kernel["name"] for kernel in events(told, "KERNEL")] == ["late"]
    assert told["report"]["gpu.state"] == "ok"
    assert not any(told["lost"].values())


def test_a_graph_that_is_captured_meanwhile_is_left_alone(cupti: Path, cuda: Path) -> None:
    """On a GPU each wait for a context ended such a capture with error 901 (docs/gpu.md)."""
    work = f"""
driver = ctypes.CDLL({str(cuda)!r})
stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
driver.cuInit(0)
assert driver.cuStreamCreate(ctypes.byref(stream), 0) == 0
assert driver.cuStreamBeginCapture_v2(stream, 0) == 0
fake.fake_launch(b'k', 7, 3)
gpu.stop()
told["captured"] = driver.cuStreamEndCapture(stream, ctypes.byref(graph))
"""
    told = collected(cupti, work)
    assert told["captured"] == 0
    assert len(events(told, "KERNEL")) == 3


def test_a_wait_for_the_context_breaks_a_capture(cuda: Path) -> None:
    """The stand-in of the test above breaks captures as CUDA does."""
    work = """
import ctypes, sys
driver = ctypes.CDLL(sys.argv[1])
stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
driver.cuStreamCreate(ctypes.byref(stream), 0)
driver.cuStreamBeginCapture_v2(stream, 0)
assert driver.cuCtxSynchronize() == 900
assert driver.cuStreamEndCapture(stream, ctypes.byref(graph)) == 901
"""
    subprocess.run([sys.executable, "-c", work, str(cuda)], check=True)


def test_many_buffers_and_a_reader_that_does_not_come(cupti: Path) -> None:
    # 256 bytes a launch in CUPTI's buffers, 288 in the arena: 10 buffers, twice what the arena takes.
    told = collected(cupti, "fake.fake_launch(b'k', 7, 80_000)", arena_bytes=12 << 20, ONLY_COUNTED="1")
    recorded = told["count"]
    assert 0 < recorded < 160_000
    assert recorded + told["lost"]["arena_full"] == 160_000
    assert told["report"]["gpu.records"] == 160_000


def test_nothing_is_left_after_the_stop(cupti: Path) -> None:
    told = collected(cupti, "fake.fake_launch(b'k', 7, 1)")
    assert (told["subscribed"], told["enabled"], told["forced"]) == (0, [], 1)


def test_graphs_as_one_or_node_by_node(cupti: Path) -> None:
    work = (
        "assert fake.fake_state(151) == 0; gpu.stop(); gpu.start(graph_nodes=False); assert fake.fake_state(151) == 1"
    )
    assert collected(cupti, work)["report"]["gpu.state"] == "ok"


# A thread of the program calls CUDA while the recording ends. BETWEEN: in time, however busy the host is.
BETWEEN: dict[str, Any] = {"FAKE_CUPTI_NEXT_CALL": "1"}
CALLING = """
import threading
gpu.stop(); assert gpu.start(detach=True) == ''
fake.fake_launch(b'k', 7, 1)  # its kernel is there: of the thread's only launch none may be
calls = threading.Event()
def call():
    while not calls.wait(0.001):
        fake.fake_launch(b'k', 7, 1)
caller = threading.Thread(target=call)
caller.start()
told["gone"] = gpu.stop()["gpu.cupti_after"], fake.fake_state(4), fake.fake_state(0), fake.fake_state(5)
calls.set()
caller.join()
"""


def test_cupti_leaves_the_process_where_that_is_asked_for(cupti: Path) -> None:
    again = "assert gpu.start() == ''; fake.fake_launch(b'again', 7, 3)"
    told = collected(cupti, CALLING + again, **BETWEEN)
    assert told["gone"] == ["gone", 1, 0, 0]
    assert (told["report"]["gpu.state"], told["report"]["gpu.cupti_after"]) == ("ok", "stays")
    assert len([event for event in events(told, "KERNEL") if event["name"] == "again"]) == 3


@pytest.mark.parametrize(
    ("work", "after", "variables"),
    [
        ("", "stays", {}),
        (CALLING, "refused", {"FAKE_CUPTI_FINALIZE": "1", **BETWEEN}),
        (CALLING, "unknown", {"FAKE_CUPTI_VERSION": "22"}),  # CUDA 12.5
        (CALLING.replace("caller.start()", "caller.start(); fake.fake_graph(b'g', 7, 2)"), "graphs", {}),
        (CALLING.replace("caller.start()", "").replace("caller.join()", ""), "no_call", {}),
    ],
    ids=["not-asked", "refused", "old", "graphs", "no-call"],
)
def test_cupti_stays(cupti: Path, work: str, after: str, variables: dict[str, Any]) -> None:
    told = collected(cupti, work, **variables)
    found = told["gone"] if work else [told["report"]["gpu.cupti_after"], 0, 0, 0]
    assert found == [after, 0, 0, 0]
    assert told["report"]["gpu.state"] == "ok"


def test_many_arms(cupti: Path) -> None:
    again = "fake.fake_launch(b'k', 7, 1); gpu.stop(); assert gpu.start() == ''"
    told = collected(cupti, f"for _ in range(30):\n    {again}\nfake.fake_launch(b'k', 7, 2)")
    assert len(events(told, "KERNEL")) == 32
    assert told["report"]["gpu.device_events"] == 2  # of the last


@pytest.mark.parametrize(
    ("variables", "state", "why"),
    [
        (
            {"FAKE_CUPTI_HOLDER": "Nsight; Systems"},
            "foreign_subscriber",
            "another profiler holds CUPTI in this process: CUPTI for Nsight  Systems, stop it",
        ),
        (
            {"FAKE_CUPTI_HOLDER": "<not provided>"},
            "foreign_subscriber",
            "another profiler holds CUPTI in this process, one that gives CUPTI no name: PyTorch's gives none",
        ),
        ({"FAKE_CUPTI_SUBSCRIBE": "35"}, "no_privilege", "the driver lets only administrators profile"),
        (
            {"FAKE_CUPTI_SUBSCRIBE": "43"},
            "unsupported",
            "CUPTI does not trace on this kind of device (a MIG slice, a virtual",
        ),
        ({"FAKE_CUPTI_NO_KERNELS": "33"}, "unsupported", "kernels are not recorded: CUPTI does not trace on this kind"),
        ({"FAKE_CUPTI_SUBSCRIBE": "15"}, "driver_mismatch", "CUPTI does not work with this driver"),
        ({"FAKE_CUPTI_SUBSCRIBE": "2"}, "failed", "CUPTI does not work: CUPTI_ERROR_FAKE (2)"),
        (
            {"FAKE_CUPTI_VERSION": "140000"},
            "unknown_cupti",
            "its CUPTI has version 140000, known are those of CUDA 12 and 13",
        ),
        ({"FAKE_CUPTI_VERSION": "17"}, "unknown_cupti", "its CUPTI has version 17"),
        ({"FAKE_CUPTI_NO_KERNELS": "21"}, "failed", "kernels are not recorded: CUPTI_ERROR_FAKE (21)"),
        ({"FAKE_CUPTI_TICKS": "stuck"}, "foreign_clock", "CUPTI's clock in this process cannot be told"),
    ],
)
def test_what_stands_in_the_way_is_said(cupti: Path, variables: dict[str, Any], state: str, why: str) -> None:
    told = collected(cupti, "fake.fake_launch(b'k', 7, 3)", **variables)
    assert told["why"].startswith(why)
    assert told["report"]["gpu.state"] == state
    assert ";" not in told["why"]  # it would be two sentences
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
    assert done.stdout.strip() == (
        "the process has not loaded CUDA's driver library yet, capture again when it uses CUDA"
    )


# --- what CUPTI, the GPU and other tools may do while it records ---


def test_drops_of_cupti_are_counted(cupti: Path) -> None:
    told = collected(cupti, "fake.fake_drop(1234); fake.fake_launch(b'k', 7, 2)")
    assert told["lost"]["cupti_dropped"] == told["report"]["gpu.dropped"] == 1234


@pytest.mark.slow
def test_no_buffer_is_left(cupti: Path) -> None:
    # 256 bytes a launch: 54 MiB of records where 48 MiB are the most that CUPTI is given.
    how = {"FAKE_CUPTI_HOARD": "1", "ONLY_COUNTED": "1"}
    told = collected(cupti, "fake.fake_launch(b'k', 7, 220_000)", arena_bytes=80 << 20, **how)
    report = told["report"]
    assert report["gpu.buffers_refused"] > 0
    assert report["gpu.dropped"] == told["lost"]["cupti_dropped"] > 0
    assert report["gpu.records"] + report["gpu.dropped"] == 2 * 220_000
    assert told["count"] + told["lost"].get("arena_full", 0) == report["gpu.records"]
    assert report["gpu.buffers_out"] == 0


def test_zero_timestamps_are_counted(cupti: Path) -> None:
    told = collected(cupti, "[fake.fake_timeless(b'k') for _ in range(7)]; fake.fake_launch(b'k', 7, 1)")
    assert len(events(told, "KERNEL")) == 1
    assert told["lost"]["cupti_bad_time"] == told["report"]["gpu.bad_times"] == 7


def test_names_of_modules_that_were_unloaded(cupti: Path) -> None:
    told = collected(cupti, "fake.fake_unload(20); fake.fake_launch(b'stays', 7, 1)")
    names = [kernel["name"] for kernel in events(told, "KERNEL")]
    assert names == ["(kernel of a module that was unloaded)"] * 40 + ["stays"]
    assert told["report"]["gpu.gone_names"] == 40


@pytest.mark.parametrize(
    "version", ["18", "22", "24", "26", "28", "130001", "130101", "130202", "130301", "130401", "130500"]
)
def test_records_of_every_version_that_is_known(cupti: Path, version: str) -> None:
    work = "fake.fake_launch(b'gemm', 9, 3); fake.fake_copy(1, 77); fake.fake_memset(5); fake.fake_sync(3)"
    told = collected(cupti, work, FAKE_CUPTI_VERSION=version)
    assert [(k["name"], k["stream"], k["correlation"]) for k in events(told, "KERNEL")] == [
        ("gemm", 9, number) for number in (1, 2, 3)
    ]
    assert [(e["name"], e["bytes"]) for e in events(told, "MEMCPY")] == [("Memcpy HtoD", 77)]
    assert [e["bytes"] for e in events(told, "MEMSET")] == [5]
    assert [e["name"] for e in events(told, "SYNC")] == ["Stream Sync"]
    assert told["report"]["gpu.unknown"] == 0
    assert told["report"]["gpu.state"] == "ok"


def test_calls_are_placed_in_the_innermost_range(cupti: Path) -> None:
    work = """
import threading
def launch(): fake.fake_launch(b"k", 7, 1)
outer = _recorder.range_push("outer"); launch()
_recorder.range_push("inner"); launch()
thread = threading.Thread(target=launch); thread.start(); thread.join()
_recorder.range_pop(); launch()
_recorder.range_pop(); launch()
"""
    told = collected(cupti, work)
    outer, inner = told["ranges"]["outer"], told["ranges"]["inner"]
    assert [call["bytes"] for call in events(told, "API")] == [outer, inner, 0, outer, 0]
    assert told["report"]["gpu.external"] == 3


def test_what_an_earlier_recording_left_open_encloses_nothing(cupti: Path) -> None:
    work = """
_recorder.range_push("before"); fake.fake_launch(b"k", 7, 1)
gpu.stop(); assert gpu.start() == ""
fake.fake_launch(b"k", 7, 1)
_recorder.range_push("now"); fake.fake_launch(b"k", 7, 1); _recorder.range_pop()
fake.fake_launch(b"k", 7, 1)
"""
    told = collected(cupti, work)
    before, now = told["ranges"]["before"], told["ranges"]["now"]
    calls = [call["bytes"] for call in events(told, "API")]
    assert calls[0] == before
    assert calls[2:] == [now, 0]


def test_a_fork_child_ends_its_ranges_without_cupti(cupti: Path) -> None:
    work = """
_recorder.range_push("outer")
child = os.fork()
if child == 0:
    _recorder.range_pop()
    _recorder.range_push("the child's"); _recorder.range_pop()
    os._exit(fake.fake_state(3))
_, status = os.waitpid(child, 0)
told["open in the child"] = os.waitstatus_to_exitcode(status)
_recorder.range_pop()
told["open here"] = fake.fake_state(3)
"""
    told = collected(cupti, work)
    assert (told["open in the child"], told["open here"]) == (1, 0)


def test_ranges_that_end_on_other_threads_leave_nothing_behind(cupti: Path) -> None:
    work = """
import threading
from profclient import record_function
outer = record_function("outer"); outer.__enter__()
inner = record_function("inner"); inner.__enter__()
thread = threading.Thread(target=inner.__exit__, args=(None, None, None)); thread.start(); thread.join()
outer.__exit__(None, None, None)
fake.fake_launch(b"k", 7, 1)
"""
    told = collected(cupti, work)
    assert [call["bytes"] for call in events(told, "API")] == [0]


def clocks(told: dict[str, Any], began: float) -> None:
    """Every time is one of this test's."""
    for event in told["events"]:
        assert began <= event["start"] / 1e9 <= time.time() + 1
        assert event["end"] >= event["start"]


@pytest.mark.parametrize(
    ("variables", "clock"),
    [
        ({}, "realtime"),
        ({"FAKE_CUPTI_CLOCK_NS": "5000000000"}, "fitted"),
        ({"FAKE_CUPTI_TICKS": "clock"}, "fitted"),
    ],
)
def test_a_clock_that_another_profiler_has_changed_is_fitted(
    cupti: Path, variables: dict[str, Any], clock: str
) -> None:
    began = time.time()
    told = collected(cupti, "fake.fake_launch(b'k', 7, 10); time.sleep(0)", **variables)
    assert len(told["events"]) == 20
    clocks(told, began)
    assert {round((k["end"] - k["start"]) / 100) for k in events(told, "KERNEL")} == {200}
    assert told["report"]["gpu.clock"] == clock
    assert 0 <= told["report"]["gpu.clock_error_ns"] < 10**9  # a busy host may be late between two clocks
    assert told["report"]["gpu.state"] == "ok"


def test_records_of_another_clock_than_cuptis_own(cupti: Path) -> None:
    told = collected(cupti, "fake.fake_launch(b'k', 7, 10)", FAKE_CUPTI_TICKS="records")
    assert told["events"] == []
    assert told["lost"]["cupti_bad_time"] == 20
    assert told["report"]["gpu.state"] == "foreign_clock"
    assert "20 records have times of another clock" in told["report"]["gpu.notes"]


def test_a_wall_clock_that_is_set_moves_nothing(cupti: Path) -> None:
    began = time.time()
    work = """
fake.fake_launch(b"k", 7, 10)
fake.fake_set_clock(ctypes.c_uint64(3600 * 10**9))
flushes = fake.fake_state(1)
while fake.fake_state(1) < flushes + 2:  # the clocks are compared after each
    pass
fake.fake_launch(b"k", 7, 10)
"""
    told = collected(cupti, work)
    clocks(told, began)
    assert len(told["events"]) == 40
    assert told["report"]["gpu.clock_steps"] == 1
    assert told["report"]["gpu.clock_error_ns"] > 3599 * 10**9


def test_another_profiler_that_takes_the_buffers(cupti: Path) -> None:
    told = collected(cupti, "fake.fake_launch(b'k', 7, 1); fake.fake_take_over()")
    assert told["report"]["gpu.state"] == "taken_over"
    assert told["report"]["gpu.buffers_out"] == 1
    assert "another profiler has begun in this process" in told["report"]["gpu.notes"]


def test_another_profiler_that_ends_cupti(cupti: Path) -> None:
    told = collected(cupti, "fake.fake_launch(b'k', 7, 1); fake.fake_finalize()")
    assert told["report"]["gpu.state"] == "taken_over"
    assert len(events(told, "KERNEL")) == 1  # what it had handed over


WITH_PYTORCH = """
gpu.stop()
import torch
import torch.autograd.profiler as module
original, seen = module._prepare_profiler, []
told["notes"] = gpu.start()
fake.fake_launch(b'k', 7, 1)
sys.setprofile(lambda frame, event, what: seen.append(fake.fake_state(0)) if what is original else None)
with torch.profiler.profile() as profiler:
    torch.ones(2) + 1
sys.setprofile(None)
told["seen"] = seen  # as it is called, and as it returns
told["theirs"] = [event.name for event in profiler.events()]
told["restored"] = module._prepare_profiler is original
"""


def test_pytorchs_own_profiler_finds_cupti_free(cupti: Path) -> None:
    pytest.importorskip("torch")
    told = collected(cupti, WITH_PYTORCH)
    assert told["seen"] == [0, 0]
    assert "aten::add" in told["theirs"]
    assert told["restored"]
    assert told["report"]["gpu.state"] == "taken_over"
    assert "PyTorch's own profiler has begun" in told["report"]["gpu.notes"]
    assert len(events(told, "KERNEL")) == 1


def test_a_recording_leaves_pytorch_as_it_was(cupti: Path) -> None:
    pytest.importorskip("torch")
    work = "gpu.stop(); import torch.autograd.profiler as module; original = module._prepare_profiler; gpu.start(); "
    work += "told['watched'] = module._prepare_profiler is not original; gpu.stop(); "
    told = collected(cupti, work + "told['restored'] = module._prepare_profiler is original")
    assert told["watched"]
    assert told["restored"]
    assert told["report"]["gpu.state"] == "ok"


def test_launches_and_no_kernels(cupti: Path) -> None:
    told = collected(cupti, "fake.fake_call(2, 211); fake.fake_call(2, 211)")
    assert told["report"]["gpu.state"] == "no_kernels"
    assert told["report"]["gpu.notes"].startswith("2 launches and nothing that they ran")


def test_the_last_records_cannot_be_had(cupti: Path) -> None:
    told = collected(cupti, "fake.fake_launch(b'k', 7, 1)", FAKE_CUPTI_FLUSH="999")
    assert told["report"]["gpu.state"] == "failed"
    assert "did not hand over the last records" in told["report"]["gpu.notes"]


def test_a_call_that_is_refused_is_no_lost_gpu(cupti: Path) -> None:
    told = collected(cupti, "fake.fake_returns(704); fake.fake_launch(b'k', 7, 1)")  # peer access is enabled already
    assert told["report"]["gpu.state"] == "ok"


def test_a_gpu_that_is_lost(cupti: Path) -> None:
    told = collected(cupti, "fake.fake_launch(b'k', 7, 2); fake.fake_returns(719); fake.fake_launch(b'k', 7, 1)")
    assert told["report"]["gpu.state"] == "gpu_lost"
    assert told["report"]["gpu.notes"].startswith("a call of the program's returned CUDA error 719")
    assert len(events(told, "KERNEL")) == 3


@pytest.mark.slow
def test_a_kernel_that_never_ends_does_not_keep_the_recording(cupti: Path) -> None:
    told = collected(cupti, "fake.fake_unfinished(b'k'); fake.fake_launch(b'k', 7, 3)")
    assert told["report"]["gpu.state"] == "still_running"
    assert len(events(told, "KERNEL")) == 3
    assert told["lost"]["cupti_bad_time"] == told["report"]["gpu.bad_times"] == 1
    assert (told["subscribed"], told["enabled"]) == (0, [])


@pytest.mark.parametrize("stopped", [False, True])
def test_a_buffer_that_another_thread_hands_over_while_the_process_exits(cupti: Path, stopped: bool) -> None:
    program = f"""
import ctypes, os
fake = ctypes.CDLL(os.environ["PROFD_CUPTI_LIBRARY"])
fake.fake_exit_late()  # after the interpreter has ended
from profclient import _recorder, gpu
_recorder.arm(sources=8)
assert gpu.start() == ""
fake.fake_launch(b"k", 7, 100)
if {stopped}:
    gpu.stop()
    fake.fake_launch(b"k", 7, 100)
    _recorder.disarm()
    _recorder.release()
"""
    environ = {**os.environ, "PROFD_CUPTI_LIBRARY": str(cupti)}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
