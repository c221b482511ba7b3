"""Inputs of the benches: generated once into .bench, the same for every run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.measure import ROOT, SCRATCH


def trace(events: int, **options: int) -> Path:
    """A generated Kineto trace of so many X events; its known truth lies beside it as .npz.

    `options` are those of bench/gen_trace.py: steps, stacks, copies.
    """
    SCRATCH.mkdir(exist_ok=True)
    chosen = "".join(f"-{name}{value}" for name, value in options.items())
    path = SCRATCH / f"generated-{events}{chosen}.json"
    if not path.exists():
        partial = path.with_suffix(".part")
        command = [sys.executable, "bench/gen_trace.py", "--events", str(events), "--out", str(partial)]
        command += [word for name, value in options.items() for word in (f"--{name}", str(value))]
        subprocess.run([*command, "--truth", str(path.with_suffix(".npz"))], cwd=ROOT, check=True)
        partial.rename(path)
    return path


def xspace(events: int) -> Path:
    """A generated XSpace of so many events: launches on a host thread, and as many kernels on two streams of a GPU.

    Steps are marked as JAX marks them, and a thousand kernels long; what is in which step is for readers to find out.
    """
    SCRATCH.mkdir(exist_ok=True)
    path = SCRATCH / f"generated-steps-{events}.xplane.pb"
    if not path.exists():
        partial = path.with_suffix(".part")
        partial.write_bytes(_xspace(events))
        partial.rename(path)
    return path


_STEP_CALLS = 1000


def _xspace(events: int) -> bytes:
    from profproto.xspace import xplane_pb2

    space = xplane_pb2.XSpace()
    device, host = space.planes.add(id=1, name="/device:GPU:0"), space.planes.add(id=2, name="/host:CPU")
    stats = {"correlation_id": 1, "kernel_details": 2, "tf_op": 3, "device_id": 4, "_r": 5, "step_num": 6}
    ops = [f"model/layer_{number}/MatMul:MatMul" for number in range(20)]
    for plane in (device, host):
        for name, number in stats.items():
            plane.stat_metadata[number].id, plane.stat_metadata[number].name = number, name
        for number, op in enumerate(ops, 10):
            plane.stat_metadata[number].id, plane.stat_metadata[number].name = number, op
            plane.event_metadata[number].id, plane.event_metadata[number].name = number, f"gemm_{number}"
    streams = [device.lines.add(id=7, name="Stream #7(Compute)"), device.lines.add(id=8, name="Stream #8")]
    thread = host.lines.add(id=1, name="python")
    host.event_metadata[1].id, host.event_metadata[1].name = 1, "train"
    for number in range(events // 2):
        at, kernel = number * 10_000_000, 10 + number // 4 % len(ops)
        if number % _STEP_CALLS == 0:
            step = thread.events.add(metadata_id=1, offset_ps=at, duration_ps=_STEP_CALLS * 10_000_000 - 1_000)
            step.stats.add(metadata_id=5, int64_value=1)
            step.stats.add(metadata_id=6, int64_value=number // _STEP_CALLS)
        call = thread.events.add(metadata_id=kernel, offset_ps=at, duration_ps=4_000_000)
        call.stats.add(metadata_id=1, int64_value=number + 1)
        call.stats.add(metadata_id=4, int64_value=0)
        work = streams[number & 1].events.add(metadata_id=kernel, offset_ps=at + 5_000_000, duration_ps=8_000_000)
        work.stats.add(metadata_id=1, int64_value=number + 1)
        work.stats.add(metadata_id=2, str_value="regs:32 grid:1,1,1 block:128,1,1")
        work.stats.add(metadata_id=3, ref_value=kernel)
    return bytes(space.SerializeToString())
