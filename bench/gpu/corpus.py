"""(b) Raw CUPTI buffers as a corpus for tests/data/gpu: recorded once on a GPU, replayed for ever without one.

A file is xz-compressed JSON: `schema`, `program`, `cupti_version`, `machine`, `clock`, `names` (of kernels, by the
pointer in their records), `buffers` (base64), `dropped`, and `expected`: what must come out.
"""

from __future__ import annotations

import base64
import ctypes
import json
import lzma
import os
import time
from pathlib import Path
from typing import Any

from bench.gpu import device, machine
from bench.gpu.buffers import KERNEL, KERNEL_NAME_AT, TIMES_AT, Catcher, records_of
from bench.gpu.driver import Driver
from bench.gpu.program import Program, truth
from bench.gpu.results import Check, Result
from bench.measure import ROOT, ChildFailed, child

SCHEMA = 1
FOLDER = Path(device.FOLDER) if device.REHEARSAL else ROOT / "tests" / "data" / "gpu"
FILE_BYTES_MAX = 2 << 20  # of one file: they are committed
STEPS = 3  # of the torch loop


class BadCorpus(Exception):
    """A file that cannot be replayed; str() says why."""


def run(folder: Path = FOLDER) -> Result:
    """Record both programs, each in a process of its own."""
    result = Result("corpus", machine.describe())
    folder.mkdir(parents=True, exist_ok=True)
    for program in ("truth", "torch"):
        if program == "torch" and not device.REHEARSAL and (why := machine.no_torch_cuda()):
            result.checks.append(Check("corpus torch", None, why))
            continue
        try:
            made = child("bench.gpu.corpus:record", {"program": program, "folder": str(folder)})["result"]
        except ChildFailed as error:
            result.checks.append(Check(f"corpus {program}", False, str(error)[-2000:]))
            continue
        result.data[program] = made
        small = made["file_bytes"] <= FILE_BYTES_MAX
        result.checks.append(Check(f"corpus {program}", small and made["dropped"] == 0, json.dumps(made)))
    return result


def record(program: str, folder: str, library: str = "") -> dict[str, Any]:
    """In a process of its own: run a program and write what CUPTI handed over."""
    work = _truth_program() if program == "truth" else _torch_loop()
    catcher = Catcher(library or os.environ.get("PROFD_CUPTI_LIBRARY") or mapped_cupti())
    catcher.start()
    work()
    catcher.stop()
    about = machine.describe()
    expected = truth().as_dict() if program == "truth" else None
    text = dump(program, catcher, about, expected)
    gpu = (about["gpus"] or ["stand-in"])[0].split()[-1].lower()
    path = Path(folder) / f"{program}-{gpu}-cupti{catcher.version}.json.xz"
    path.write_bytes(text)
    return {"file": path.name, "file_bytes": len(text), "buffers": len(catcher.buffers), "dropped": catcher.dropped}


def dump(program: str, catcher: Catcher, about: dict[str, Any], expected: dict[str, Any] | None) -> bytes:
    """A corpus file."""
    body = {
        "schema": SCHEMA,
        "program": program,
        "cupti_version": catcher.version,
        "machine": about,
        "clock": catcher.clock,
        "names": {str(pointer): name for pointer, name in catcher.names.items()},
        "buffers": [{"thread": tid, "bytes": base64.b64encode(raw).decode("ascii")} for tid, raw in catcher.buffers],
        "dropped": catcher.dropped,
        "expected": expected,
    }
    return lzma.compress(json.dumps(body).encode("ascii"), preset=6)


def load(path: Path) -> dict[str, Any]:
    """A corpus file. Raises BadCorpus."""
    try:
        body = json.loads(lzma.decompress(path.read_bytes()))
        if body["schema"] != SCHEMA:
            raise BadCorpus(f"{path.name} is of schema {body['schema']}, known is {SCHEMA}")
        body["buffers"] = [base64.b64decode(buffer["bytes"], validate=True) for buffer in body["buffers"]]
        body["names"] = {int(pointer): str(name) for pointer, name in body["names"].items()}
    except (lzma.LZMAError, ValueError, KeyError, TypeError) as error:
        raise BadCorpus(f"{path.name} is no corpus of CUPTI buffers: {error}") from error
    found: dict[str, Any] = body
    return found


def replay(path: str) -> dict[str, Any]:
    """In a process of its own: our collector on the recorded buffers, as if recorded now. PROFD_CUPTI_LIBRARY is the
    stand-in that hands them over, FAKE_CUPTI_VERSION the corpus's version.
    """
    from profclient import _recorder, gpu

    from bench.gpu.truth import ARENA_BYTES, of_arena
    from tests.support.arena_reader import read_arena

    corpus = load(Path(path))
    fake = ctypes.CDLL(os.environ["PROFD_CUPTI_LIBRARY"])
    fake.fake_replay.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    fd = _recorder.arm(arena_bytes=ARENA_BYTES, sources=8)
    gpu.start()
    later = time.time_ns() - corpus["clock"][0][0]
    names = {pointer: ctypes.create_string_buffer(name.encode()) for pointer, name in corpus["names"].items()}
    for raw in corpus["buffers"]:
        buffer = ctypes.create_string_buffer(raw, len(raw))
        _point_to(fake, buffer, len(raw), names)
        _move(fake, buffer, len(raw), later)
        if not fake.fake_replay(buffer, len(raw)):
            raise BadCorpus("a recorded buffer is larger than those of the collector")
    time.sleep(max(0, corpus["clock"][-1][2] + later - time.time_ns()) / 1e9)  # what ends after our end is no record
    report = gpu.stop()
    _recorder.disarm()
    return {"seen": of_arena(read_arena(fd)), "report": report, "expected": corpus["expected"]}


def _point_to(fake: Any, buffer: Any, valid: int, names: dict[int, Any]) -> None:
    """Names of kernels are pointers, and those were of another process."""
    for at in records_of(fake, ctypes.addressof(buffer), valid):
        if ctypes.c_uint32.from_address(at).value != KERNEL:
            continue
        pointer = ctypes.c_uint64.from_address(at + KERNEL_NAME_AT)
        known = names.get(pointer.value)
        pointer.value = 0 if known is None else ctypes.addressof(known)


def _move(fake: Any, buffer: Any, valid: int, later_ns: int) -> None:
    """Into the time of this recording: what lies outside of it is left out."""
    for at in records_of(fake, ctypes.addressof(buffer), valid):
        for offset in TIMES_AT.get(ctypes.c_uint32.from_address(at).value, ()):
            moment = ctypes.c_uint64.from_address(at + offset)
            if moment.value:
                moment.value += later_ns


def _truth_program() -> Any:
    return Program(Driver(os.environ.get("PROFD_BENCH_CUDA", "libcuda.so.1"))).work


def _torch_loop() -> Any:
    from bench.gpu.loops import launch_bound

    step = launch_bound()
    for _ in range(5):
        step()

    def work() -> None:
        for _ in range(STEPS):
            step()
        device.synchronize()

    return work


def mapped_cupti() -> str:
    """The libcupti of this process, else the one that the loader finds."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            if "libcupti.so" in line:
                return line.split()[-1]
    return "libcupti.so.13"
