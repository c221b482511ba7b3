"""Records through cupti-python's callbacks: a module of our own with the same API on a libcupti of our own, and the
package itself as far as that goes without a GPU. None of this is a claim about a GPU.

The package (its licence is NVIDIA's, so no test environment of ours brings it) is that of the interpreter that
PROFD_CUPTI_PYTHON names, which must be of this Python's version.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.profclient.gpu import test_collector as collector
from tests.unit.profclient.gpu.test_collector import ROOT, events

cupti, cuda = collector.cupti, collector.cuda  # fixtures

STAND_IN = ROOT / "tests" / "support" / "fake_cupti_python"
PROGRAM = collector.PROGRAM.replace("gpu.start()", "gpu.start(cupti_python=True)").replace(
    "fd = _recorder", "ctypes.CDLL(os.environ['CUDA']) if 'CUDA' in os.environ else None\nfd = _recorder"
)
SLOW = "recorded by cupti-python: slow, can deadlock"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder in which cupti-python is installed, as far as importlib.metadata can tell."""
    installed(tmp_path, "13.4.0")
    return tmp_path


def installed(folder: Path, version: str) -> None:
    about = folder / "cupti_python.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: cupti-python\nVersion: {version}\n")


def run(program: str, *arguments: str, **variables: str) -> dict[str, Any]:
    environ = {key: value for key, value in os.environ.items() if key != "PROFD_CUPTI_LIBRARY"}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env={**environ, **variables}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def collected(cupti: Path, cuda: Path, package: Path, work: str, **variables: str) -> dict[str, Any]:
    found = {"PROFD_CUPTI_LIBRARY": str(cupti), "CUDA": str(cuda), "PYTHONPATH": f"{package}:{STAND_IN}:{ROOT}"}
    return run(PROGRAM, work, str(16 << 20), **{**found, **variables})


@pytest.mark.parametrize("thread", ["0", "1"])
def test_the_same_events_as_from_our_own_buffers(cupti: Path, cuda: Path, package: Path, thread: str) -> None:
    work = "gemm, node = b'gemm', b'node'\n"  # names are pointers, and the last buffer is read at the stop
    work += "[fake.fake_launch(gemm, 9, 20_000), fake.fake_copy(1, 5), fake.fake_memset(9), fake.fake_sync(3)]; "
    work += "fake.fake_graph(node, 7, 5); fake.fake_call(2, 17)"
    told = collected(cupti, cuda, package, work, FAKE_CUPTI_THREAD=thread)
    own = collector.collected(cupti, work, FAKE_CUPTI_THREAD=thread)
    assert (told["notes"], own["notes"]) == (SLOW, "")
    assert told["report"]["gpu.state"] == "ok"
    assert told["report"]["gpu.collector"] == "cupti-python"
    assert "gpu.collector" not in own["report"]

    def seen(of: dict[str, Any]) -> list[Any]:
        keys = ("kind", "name", "correlation", "device", "context", "stream", "bytes", "node", "graph", "rest")
        return sorted([[event[key] for key in keys] for event in of["events"]], key=str)

    assert seen(told) == seen(own)
    assert len(events(told, "KERNEL")) == 20_005
    counts = ("records", "events", "device_events", "launches", "filtered")
    assert [told["report"][f"gpu.{key}"] for key in counts] == [own["report"][f"gpu.{key}"] for key in counts]


def test_nothing_is_left_after_the_stop(cupti: Path, cuda: Path, package: Path) -> None:
    work = "fake.fake_launch(b'k', 7, 5); from cupti import cupti"
    after = "told['held'] = len(cupti.buffers)\nprint(json.dumps(told))"
    program = PROGRAM.replace("print(json.dumps(told))", after)
    found = {"PROFD_CUPTI_LIBRARY": str(cupti), "CUDA": str(cuda), "PYTHONPATH": f"{package}:{STAND_IN}:{ROOT}"}
    told = run(program, work, str(16 << 20), **found)
    assert (told["subscribed"], told["enabled"], told["forced"], told["held"]) == (0, [], 1, 0)


def test_our_own_buffers_once_more_afterwards(cupti: Path, cuda: Path, package: Path) -> None:
    work = "theirs, ours = b'theirs', b'ours'; fake.fake_launch(theirs, 7, 5); gpu.stop(); "
    work += "told['again'] = gpu.start(); fake.fake_launch(ours, 7, 5)"
    told = collected(cupti, cuda, package, work)
    assert told["again"] == ""
    assert [event["name"] for event in events(told, "KERNEL")] == ["theirs"] * 5 + ["ours"] * 5
    assert "gpu.collector" not in told["report"]


def test_ranges_push_no_ids(cupti: Path, cuda: Path, package: Path) -> None:
    """The thread that would do so has the GIL."""
    work = "import profclient\nwith profclient.record_function('step'): fake.fake_launch(b'k', 7, 5)"
    told = collected(cupti, cuda, package, work)
    assert told["report"]["gpu.external"] == 0
    assert len(events(told, "KERNEL")) == 5


@pytest.mark.slow
def test_no_more_memory_than_our_own_collector_takes(cupti: Path, cuda: Path, package: Path) -> None:
    work = "fake.fake_launch(b'k', 7, 210_000); from cupti import cupti; told['held'] = len(cupti.buffers)"
    told = collected(cupti, cuda, package, work, FAKE_CUPTI_HOARD="1", ONLY_COUNTED="1")
    assert told["held"] == 24
    assert told["lost"]["cupti_dropped"] > 0
    assert told["report"]["gpu.records"] + told["lost"]["cupti_dropped"] == 420_000


def test_records_that_cannot_be_read_are_counted(cupti: Path, cuda: Path, package: Path) -> None:
    told = collected(cupti, cuda, package, "fake.fake_launch(b'k', 7, 5)", FAKE_CUPTI_PYTHON="shapeless")
    assert told["events"] == []
    assert told["lost"]["cupti_dropped"] == told["report"]["gpu.dropped"] == 10


# --- what stands in the way ---

REFUSED = """
import ctypes, json, os, sys
for library in filter(None, os.environ.get("LOADED", "").split(":")):
    ctypes.CDLL(library)
from profclient import _recorder, gpu
_recorder.arm(sources=8)
try:
    gpu.start(cupti_python=True)
except gpu.CuptiUnavailable as error:
    state = error.state or gpu.report()["gpu.state"]
    print(json.dumps({"state": state, "why": str(error), "imported": "cupti" in sys.modules}))
"""


def test_not_installed() -> None:
    told = run(REFUSED)
    assert (told["state"], told["imported"]) == ("no_cupti", False)
    assert told["why"].startswith("cupti-python is not installed: pip install cupti-python")


@pytest.mark.parametrize("version", ["13.0.1", "12.8.0", "13.1.0rc1", "unknown"])
def test_too_old(package: Path, version: str) -> None:
    installed(package, version)
    told = run(REFUSED, PYTHONPATH=str(package))
    assert (told["state"], told["imported"]) == ("unknown_cupti", False)
    assert told["why"].startswith(f"cupti-python {version} is too slow, 13.2 is the oldest")


def test_without_the_driver_it_is_not_imported(package: Path) -> None:
    told = run(REFUSED, PYTHONPATH=f"{package}:{STAND_IN}")
    assert told == {
        "state": "no_driver",
        "why": "the process has not loaded CUDA's driver library yet, capture again when it uses CUDA",
        "imported": False,
    }


def test_never_a_second_libcupti(cuda: Path, package: Path) -> None:
    old = package / "libcupti.so.12"
    shared = ["cc", "-shared", "-Wl,-soname,libcupti.so.12", "-x", "c", "/dev/null", "-o", str(old)]
    subprocess.run(shared, check=True)
    told = run(REFUSED, PYTHONPATH=f"{package}:{STAND_IN}", LOADED=f"{cuda}:{old}")
    assert (told["state"], told["imported"]) == ("unknown_cupti", False)
    assert "the libcupti of CUDA 12" in told["why"]


@pytest.mark.parametrize(
    ("behaviour", "state", "why"),
    [
        ("no_driver", "driver_mismatch", "cupti-python does not work with this driver: CUDA driver is not found"),
        ("refuses", "no_privilege", "CUPTI takes no buffers: CUPTI_ERROR_FAKE (35)"),
    ],
)
def test_what_the_package_says(cupti: Path, cuda: Path, package: Path, behaviour: str, state: str, why: str) -> None:
    found = {"PROFD_CUPTI_LIBRARY": str(cupti), "PYTHONPATH": f"{package}:{STAND_IN}", "LOADED": str(cuda)}
    told = run(REFUSED, FAKE_CUPTI_PYTHON=behaviour, **found)
    assert told["state"] == state
    assert told["why"].startswith(why)


def test_nothing_imports_it_unasked(cupti: Path, cuda: Path, package: Path) -> None:
    program = collector.PROGRAM.replace("print(json", "told['modules'] = sorted(sys.modules)\nprint(json")
    found = {"PROFD_CUPTI_LIBRARY": str(cupti), "PYTHONPATH": f"{package}:{STAND_IN}:{ROOT}"}
    told = run(program, "fake.fake_launch(b'k', 7, 1)", str(16 << 20), **found)
    assert not {"cupti", "profclient.cupti_python"} & set(told["modules"])


# --- the package itself ---


@pytest.fixture(scope="module")
def theirs() -> str:
    """The folder that it is installed in."""
    python = os.environ.get("PROFD_CUPTI_PYTHON", sys.executable)
    program = "import cupti, sys; print(sys.version_info[:2]); print(cupti.__path__[0].rpartition('/')[0])"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, cwd="/")
    if done.returncode:
        pytest.skip("no cupti-python: set PROFD_CUPTI_PYTHON to an interpreter that has it")
    version, folder = done.stdout.splitlines()
    if version != str(tuple(sys.version_info[:2])):
        pytest.skip(f"PROFD_CUPTI_PYTHON is Python {version}, this is another")
    return folder


def test_the_package_in_a_process_without_a_driver(theirs: str) -> None:
    assert run(REFUSED, PYTHONPATH=theirs)["state"] == "no_driver"


def test_the_package_and_its_libcupti_with_a_driver_that_is_none(theirs: str, cuda: Path) -> None:
    """What is said is typed, and the process lives."""
    told = run(REFUSED, PYTHONPATH=theirs, LOADED=str(cuda))
    assert told["imported"]
    assert told["state"] in ("failed", "driver_mismatch", "no_cupti")
    assert told["why"]


OF_ITS_OWN = """
import ctypes
import numpy
from cupti import cupti as package
from profclient import cupti_python

def made(kind, of_class, of, **fields):
    data = numpy.zeros(1, dtype=getattr(package, of))
    data["kind"] = kind
    for key, value in fields.items():
        data[key] = value
    return getattr(package, of_class).from_data(data)

kinds = package.ActivityKind
text = ctypes.create_string_buffer(b"void gemm<float>(int)")
now = time.time_ns()
class Collector:
    profd_gpu_take = gpu._library.profd_gpu_take
given = cupti_python.Buffers(package, Collector)
given.completed([
    made(kinds.RUNTIME, "ActivityAPI", "activity_api_dtype", cbid=211, start=now, end=now + 5, correlation_id=3),
    made(kinds.CONCURRENT_KERNEL, "ActivityKernel13", "activity_kernel13_dtype", start=now + 10, end=now + 30,
         name=ctypes.addressof(text), correlation_id=3, stream_id=9, device_id=1, context_id=7, grid_x=80),
    made(kinds.MEMCPY, "ActivityMemcpy7", "activity_memcpy7_dtype", start=now + 40, end=now + 47, copy_kind=1, bytes=5,
         correlation_id=4),
    made(kinds.MEMSET, "ActivityMemset5", "activity_memset5_dtype", start=now + 50, end=now + 57, bytes=6,
         correlation_id=5),
])
"""


def test_records_of_its_own_classes(theirs: str, cupti: Path) -> None:
    variables = {"PROFD_CUPTI_LIBRARY": str(cupti), "PYTHONPATH": f"{ROOT}:{theirs}"}
    told = run(collector.PROGRAM, OF_ITS_OWN, str(16 << 20), **variables)
    [call, kernel, copy, fill] = told["events"]
    assert (call["kind"], call["name"], call["correlation"]) == ("API", "cudaLaunchKernel", 3)
    assert (kernel["name"], kernel["stream"], kernel["correlation"]) == ("void gemm<float>(int)", 9, 3)
    assert (kernel["end"] - kernel["start"], kernel["rest"][1]) == (20, 80)
    assert (copy["name"], copy["bytes"]) == ("Memcpy HtoD", 5)
    assert (fill["kind"], fill["bytes"]) == ("MEMSET", 6)


def test_the_oldest_version_is_the_extra_s() -> None:
    """Older ones are refused in a target; the daemon's counters need a newer one, which the extra asks for."""
    extra = re.search(r'^cupti = \["cupti-python>=(\d+)\.(\d+)"\]', (ROOT / "pyproject.toml").read_text(), re.M)
    assert extra is not None
    assert (int(extra[1]), int(extra[2])) >= (13, 2)
