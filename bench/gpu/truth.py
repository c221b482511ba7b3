"""(a) The program of known truth, recorded by our collector, by cupti-python, and by our collector through it: each in
a process of its own.
"""

from __future__ import annotations

import os
import struct
from typing import Any

from bench.gpu import machine
from bench.gpu.driver import Driver
from bench.gpu.program import Program, truth
from bench.gpu.records import Recorded, agree, compare
from bench.gpu.results import Check, Result
from bench.measure import ChildFailed, child

ARENA_BYTES = 64 << 20
_GPU = struct.Struct("<6IQQI")  # correlation device context stream tid detail bytes node graph: GpuRecord of arena.h
_GPU_SOURCE = 8
_BUFFER_BYTES = 8 << 20


def run() -> Result:
    """The result. Every recorder has a process of its own: CUPTI serves one."""
    result = Result("truth", machine.describe())
    ours = child("bench.gpu.truth:ours", {})["result"]
    result.data["cuda"] = ours["cuda"]
    mine = Recorded(**ours["seen"])
    result.data["ours"] = {**mine.as_dict(), "report": ours["report"]}
    result.checks += [
        Check("the GPU computed what it should", ours["computed"] == ours["expected"], str(ours["computed"])),
        *compare(truth(), mine, "ours"),
    ]
    try:
        theirs = Recorded(**child("bench.gpu.truth:cupti_python", {})["result"])
    except ChildFailed as error:
        result.checks.append(Check("ours and cupti-python agree", None, str(error)[-2000:]))
        return result
    result.data["cupti_python"] = theirs.as_dict()
    result.checks += [*compare(truth(), theirs, "cupti-python"), agree(mine, theirs)]
    through = Recorded(**child("bench.gpu.truth:ours", {"cupti_python": True})["result"]["seen"])
    result.checks += compare(truth(), through, "ours through cupti-python")
    return result


def ours(cupti_python: bool = False) -> dict[str, Any]:
    """In a process of its own: the program under our collector."""
    from profclient import _recorder, gpu

    from tests.support.arena_reader import read_arena

    driver = Driver(os.environ.get("PROFD_BENCH_CUDA", "libcuda.so.1"))
    program = Program(driver)
    fd = _recorder.arm(arena_bytes=ARENA_BYTES, sources=_GPU_SOURCE)
    gpu.start(cupti_python=cupti_python)
    expected = program.work()
    report = gpu.stop()
    _recorder.disarm()
    added = float(expected.kernels["profd_truth_add"] // expected.streams)
    return {
        "seen": of_arena(read_arena(fd)),
        "report": report,
        "computed": program.computed(),
        "expected": (added, float(expected.kernels["profd_truth_node"])),
        "cuda": driver.version,
    }


def cupti_python() -> dict[str, Any]:
    """In a process of its own: the same under cupti-python. Its callbacks take the GIL; that is no matter here."""
    from cupti import cupti  # type: ignore[import-not-found]  # an extra, proprietary

    seen = Recorded()
    program = Program(Driver())
    kinds = cupti.ActivityKind
    wanted = (kinds.RUNTIME, kinds.DRIVER, kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET)

    def completed(records: list[Any]) -> None:
        for record in records:
            if record.kind in (kinds.RUNTIME, kinds.DRIVER):
                seen.calls.append(record.correlation_id)
            elif record.kind == kinds.CONCURRENT_KERNEL:
                place = (record.stream_id, record.correlation_id, record.start, record.end)
                seen.kernels.append((record.name, *place))
            elif record.kind == kinds.MEMCPY:
                seen.copies.append((int(record.copy_kind), record.bytes))
            elif record.kind == kinds.MEMSET:
                seen.fills.append(record.bytes)

    cupti.activity_register_callbacks(lambda: (_BUFFER_BYTES, 0), completed)
    for kind in wanted:
        cupti.activity_enable(kind)
    program.work()
    cupti.activity_flush_all(1)
    for kind in wanted:
        cupti.activity_disable(kind)
    return {name: getattr(seen, name) for name in Recorded.__slots__}


def of_arena(arena: Any) -> dict[str, Any]:
    """The fields of Recorded, of an arena that holds CUPTI's records."""
    seen = Recorded(lost=sum(arena.lost.values()))
    for event in arena.events:
        correlation, _, _, stream, _, detail, size, _, _ = _GPU.unpack_from(event.ext[11].ljust(_GPU.size, b"\0"))
        match event.kind.name:
            case "API":
                seen.calls.append(correlation)
            case "KERNEL":
                seen.kernels.append((event.name, stream, correlation, event.start, event.end))
            case "MEMCPY":
                seen.copies.append((detail, size))
                seen.copy_names.append(event.name)
            case "MEMSET":
                seen.fills.append(size)
    return {name: getattr(seen, name) for name in Recorded.__slots__}
