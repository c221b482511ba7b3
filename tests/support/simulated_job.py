"""A job as Kineto would write it, a file for each rank: steps, operators, collectives of gloo or NCCL, clocks apart."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

STEP_NS = 10_000_000
TRANSFER_NS = 200_000
_NAMES = ("aten::mm", "aten::add", "aten::relu", "aten::copy_", "aten::view", "aten::sum", "aten::mul")
APART_NS = 40_000_000


@dataclass(frozen=True)
class Plan:
    """What the job does. Times in ns."""

    ranks: int = 3
    steps: int = 30
    late: dict[int, int] = field(
        default_factory=dict
    )  # by rank: so much more work, in operators that others do not call
    every: int = 1  # of so many steps one
    device: bool = False  # NCCL's kernels, else gloo's threads
    sequence: bool = False  # NCCL's collectives are numbered
    shapes: bool = True
    cut: dict[int, int] = field(default_factory=dict)  # by rank: so many steps are missing at its begin
    world: int = 0  # what the files say; 0: as many as there are
    seed: int = 1
    operators: int = 1  # of a step; on a device each launches a kernel
    delays: int = 0  # by up to so much more each second collective lasts
    apart_ns: int = APART_NS  # of each clock to the next


def files(folder: Path, plan: Plan) -> list[Path]:
    """One for each rank, in their order."""
    times = _times(plan)
    return [_write(folder / f"rank{rank}.json", rank, plan, _events(plan, rank, times)) for rank in range(plan.ranks)]


def _times(plan: Plan) -> list[np.ndarray]:
    """Of each step when it begins, its usual work ends, all its work ends and it ends; a column for each rank."""
    random = np.random.default_rng(plan.seed)
    free = np.full(plan.ranks, 1_000_000_000)
    found = []
    for step in range(plan.steps):
        work = (STEP_NS * random.normal(1, 0.01, plan.ranks)).astype(np.int64)
        begun, arrived = free.copy(), free + work
        for rank, more in plan.late.items():
            if step % plan.every == plan.every - 1:
                arrived[rank] += more
        free = arrived.max() + TRANSFER_NS + random.integers(0, 20_000, plan.ranks)
        if plan.delays and step % 2:
            free += int(random.integers(plan.delays))
        found.append(np.stack([begun, begun + work, arrived, free]))
    return found


def _events(plan: Plan, rank: int, times: list[np.ndarray]) -> list[dict[str, Any]]:
    steps = range(plan.cut.get(rank, 0), plan.steps)
    found = [_step(plan, rank, step, times[step][:, rank].tolist()) for step in steps]
    return list(itertools.chain.from_iterable(found))


def _step(plan: Plan, rank: int, step: int, times: list[int]) -> list[dict[str, Any]]:
    begun, worked, arrived, free = (moment + rank * plan.apart_ns for moment in times)
    found = [_event("user_annotation", f"ProfilerStep#{step}", begun, free)]
    kind, stretch = ("kernel", {"device": 0, "stream": 7}) if plan.device else ("cpu_op", {})
    thread = 7 if plan.device else 1
    edges = np.linspace(begun, worked, plan.operators + 1).astype(np.int64).tolist()
    for number, (start, end) in enumerate(itertools.pairwise(edges)):
        if plan.device and plan.operators > 1:
            launched = {"correlation": (step + 1) * 100_000 + number}
            found.append(_event("cpu_op", _NAMES[number % len(_NAMES)], start, end - 500))
            found.append(_event("cuda_runtime", "cudaLaunchKernel", start + 500, start + 1500, **launched))
            stretch = {"device": 0, "stream": 7, **launched}
        found.append(_event(kind, "gemm" if plan.device else "aten::mm", start, end, thread, **stretch))
    if arrived > worked:
        edges = np.linspace(worked, arrived, 5).astype(np.int64).tolist()
        found += [_event("cpu_op", "aten::sort", *pair) for pair in itertools.pairwise(edges)]
    if plan.device:
        found += _nccl(plan, step, arrived, free)
    else:
        said = {"Input Dims": [[1_000_000]], "Input type": ["float"]} if plan.shapes else {}
        found.append(_event("user_annotation", "gloo:all_reduce", arrived, free, 2, **said))
    return found


def _nccl(plan: Plan, step: int, arrived: int, free: int) -> list[dict[str, Any]]:
    said: dict[str, Any] = {
        "Collective name": "allreduce",
        "dtype": "Float",
        "Process Group Name": "dp",
        "Group size": plan.ranks,
    }
    said |= {"In msg nelems": 1_000_000, "Out msg nelems": 1_000_000} if plan.shapes else {}
    said |= {"Seq": 100 + step} if plan.sequence else {}
    launched = {"correlation": step + 1}
    return [
        _event("cpu_op", "record_param_comms", arrived - 9000, arrived - 5000, 1, **said),
        _event("cuda_runtime", "cudaLaunchKernelExC", arrived - 8000, arrived - 6000, 1, **launched),
        _event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", arrived, free, 9, device=0, stream=9, **launched),
    ]


def _event(category: str, name: str, start: int, end: int, thread: int = 1, **args: Any) -> dict[str, Any]:
    times = {"ts": start / 1000, "dur": (end - start) / 1000}
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, **times, "args": args}


def _write(path: Path, rank: int, plan: Plan, events: list[dict[str, Any]]) -> Path:
    said = {"backend": "nccl" if plan.device else "gloo", "rank": rank, "world_size": plan.world or plan.ranks}
    path.write_text(json.dumps({"schemaVersion": 1, "distributedInfo": said, "traceEvents": events}))
    return path
