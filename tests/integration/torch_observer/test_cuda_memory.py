"""The part for CUDA, compiled against torch's own headers and told of blocks by a test: there is no GPU."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
HEADERS = sorted(Path("/usr/local").glob("cuda*/include/cuda_runtime_api.h"))

# ALLOC 0, FREE_REQUESTED 1, FREE_COMPLETED 2, SEGMENT_ALLOC 3, OOM 8; the second device, too.
TOLD = """
import ctypes, sys
import torch
from profclient import _recorder
from profclient.torch import observer
from tests.support.arena_reader import Ext, Kind, read_arena
library = ctypes.CDLL(sys.argv[1])
trace = ctypes.cast(library.profd_torch_cuda_trace, ctypes.c_void_p)
def tell(action, device, address, size):
    library.tell(trace, action, device, ctypes.c_uint64(address), ctypes.c_uint64(size))
tell(0, 0, 4096, 512)  # nobody records yet
library.profd_torch_cuda_start.argtypes = [ctypes.c_void_p]
descriptor = _recorder.arm(sources=16)
library.profd_torch_cuda_start(observer._api_address())
for told in ((3, 0, 1 << 40, 2 << 20), (0, 0, 1 << 40, 1024), (0, 1, 1 << 41, 4096), (1, 0, 1 << 40, 1024),
             (2, 0, 1 << 40, 1024), (8, 1, 77, 1 << 50)):
    tell(*told)
library.profd_torch_cuda_stop()
tell(0, 0, 8192, 512)
_recorder.disarm()
for event in read_arena(descriptor).events:
    memory = event.ext[Ext.MEMORY]
    signed = event.payload - (1 << 64) if event.payload >> 63 else event.payload
    place = (memory[0], int.from_bytes(memory[2:4], "little"), int.from_bytes(memory[8:16], "little", signed=True))
    print(event.kind.name, signed, event.end, *place)
"""


def as_in_nvidias_wheel(folder: Path) -> Path:
    """CUDA's headers without those that only nvcc brings: what `pip install torch` leaves on a machine."""
    wheel = folder / "wheel"
    wheel.mkdir()
    for header in HEADERS[-1].parent.iterdir():
        if header.name != "crt":
            (wheel / header.name).symlink_to(header)
    return wheel


@pytest.fixture(params=["toolkit", "wheel"])
def library(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    torch = pytest.importorskip("torch", reason="needs torch")
    if not HEADERS or not shutil.which("c++"):
        pytest.skip("needs a C++ compiler and the headers of CUDA")
    from profclient.torch import build

    found = build.ask(sys.executable)
    generated = tmp_path / "include" / "c10" / "cuda" / "impl"
    generated.mkdir(parents=True)
    if torch.version.cuda is None:  # which torch's own build would have made
        (generated / "cuda_cmake_macros.h").write_text("#define C10_CUDA_BUILD_SHARED_LIBS\n")
    made = tmp_path / "observer_cuda.so"
    fake = ROOT / "tests" / "support" / "fake_cuda_allocator.cpp"
    headers = HEADERS[-1].parent if request.param == "toolkit" else as_in_nvidias_wheel(tmp_path)
    command = build.cuda_command(found, build.compiler(), made, headers)
    command.remove("-lc10_cuda")
    done = subprocess.run(
        [*command, f"-isystem{tmp_path / 'include'}", str(fake)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return made


def test_blocks_of_devices_are_told(library: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TOLD, str(library)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [
        f"ALLOC 1024 {1 << 40} 2 0 1024",
        f"ALLOC 4096 {1 << 41} 2 1 4096",
        f"ALLOC -1024 {1 << 40} 2 0 0",
        f"OUT_OF_MEMORY {1 << 50} 0 2 1 4096",
    ]
