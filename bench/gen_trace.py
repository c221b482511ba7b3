#!/usr/bin/env python3
"""Write a seeded, realistic Kineto trace (Chrome JSON) of any size, with its known truth beside it.

    gen_trace.py --events 1000000 --out t1m.json --truth t1m.npz [--threads 4] [--depth 8] [--gpu 0.25] [--gz]
        [--steps 100] [--stacks 2000] [--copies 10]

Nested CPU ops on several threads; a share of them launches kernels on two streams. Layout and field order
are those of torch 2.13 exports (ts and dur in µs with three decimals, relative to baseTimeNanoseconds).
The truth file holds one row per X event, in file order: kind (0 op, 1 runtime, 2 kernel), tid, name id,
start ns, duration ns, correlation id, parent row (-1 none; for kernels: the launch), depth.
With --steps there are as many `ProfilerStep#` rows besides, each around its share of the first thread's outermost ops;
with --stacks ops carry one of so many call stacks. --copies writes everything so often, one after the other: the truth
is that of one.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

BASE_NS = 1_763_000_000_000_000_000
PID = 4242
OPS = [
    f"aten::{n}"
    for n in [
        "linear",
        "addmm",
        "mm",
        "t",
        "transpose",
        "view",
        "reshape",
        "add",
        "add_",
        "mul",
        "sum",
        "mean",
        "softmax",
        "_softmax",
        "layer_norm",
        "gelu",
        "dropout",
        "empty",
        "empty_strided",
        "copy_",
        "to",
        "contiguous",
        "cat",
        "slice",
        "select",
        "expand",
        "bmm",
        "matmul",
        "embedding",
        "relu",
        "conv2d",
        "convolution",
        "batch_norm",
        "max_pool2d",
        "div",
        "sqrt",
        "addcdiv_",
        "lerp_",
        "zero_",
        "fill_",
        "detach",
    ]
]
OPS += [
    f"autograd::engine::evaluate_function: {n}Backward0"
    for n in ["Addmm", "Mm", "Mul", "Add", "Softmax", "Gelu", "Bmm", "Cat"]
]
OPS += ["Optimizer.step#AdamW.step", "Optimizer.zero_grad#AdamW.zero_grad"]
OPS += [f"nn.Module: {m}_{i}" for m in ("Linear", "LayerNorm", "Attention", "MLP") for i in range(24)]
RUNTIME = ["cudaLaunchKernel", "cuLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync"]
KERNELS = [
    f"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >#{i}"
    for i in range(40)
]
KERNELS += [
    f"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_execute_segment_k_off_kernel_{i}" for i in range(30)
]
NAMES = OPS + RUNTIME + KERNELS
STREAMS = (7, 20)
START, DUR, CORR = 3, 4, 5


def generate(events: int, threads: int, depth: int, gpu: float, seed: int) -> dict[str, np.ndarray]:
    """Columns of a trace with `events` X events, `gpu` of them launches and kernels in equal parts."""
    rnd = random.Random(seed)
    launches = int(events * gpu / 2)
    ops = events - 2 * launches
    rows: list[list[int]] = []  # kind, tid, name, start, dur, corr, parent, depth
    pending: list[int] = []
    for thread in range(threads):
        ops_left = ops * (thread + 1) // threads - ops * thread // threads
        launches_left = launches * (thread + 1) // threads - launches * thread // threads
        now, stack = rnd.randrange(10**6), []
        while ops_left or launches_left or stack:
            if ops_left and (not stack or (len(stack) < depth and rnd.random() < 0.62)):
                rows.append(
                    [
                        0,
                        PID + thread,
                        min(int(rnd.expovariate(1 / 30)), len(OPS) - 1),
                        now,
                        0,
                        0,
                        stack[-1] if stack else -1,
                        len(stack),
                    ]
                )
                stack.append(len(rows) - 1)
                ops_left -= 1
                now += rnd.randrange(200, 1100)
            elif launches_left and (not stack or rnd.random() < launches_left / max(1, ops_left + len(stack))):
                dur = rnd.randrange(2500, 5500)
                rows.append(
                    [
                        1,
                        PID + thread,
                        len(OPS) + rnd.randrange(len(RUNTIME)),
                        now,
                        dur,
                        0,
                        stack[-1] if stack else -1,
                        len(stack),
                    ]
                )
                pending.append(len(rows) - 1)
                launches_left -= 1
                now += dur + rnd.randrange(50, 300)
            else:
                now += rnd.randrange(100, 1600)
                top = stack.pop()
                rows[top][DUR] = now - rows[top][START]
                now += rnd.randrange(50, 450)
    _run_kernels(rows, pending, rnd)
    columns = np.array(rows, dtype=np.int64).T
    return dict(zip(("kind", "tid", "name", "start", "dur", "corr", "parent", "depth"), columns, strict=True))


def _run_kernels(rows: list[list[int]], pending: list[int], rnd: random.Random) -> None:
    """Append one kernel per launch, in launch order, each stream running its kernels back to back."""
    free = dict.fromkeys(STREAMS, 0)
    pending.sort(key=lambda row: rows[row][START])
    for corr, row in enumerate(pending, start=1):
        rows[row][CORR] = corr
        stream = STREAMS[0] if rnd.random() < 0.85 else STREAMS[1]
        begin = max(rows[row][START] + rows[row][DUR], free[stream]) + 800
        dur = 1500 + int(rnd.expovariate(1 / 6000))
        free[stream] = begin + dur
        rows.append([2, stream, len(OPS) + len(RUNTIME) + rnd.randrange(len(KERNELS)), begin, dur, corr, row, 0])


STEP, STEP_NAME = 3, "ProfilerStep#"


def _add_steps(trace: dict[str, np.ndarray], steps: int) -> None:
    """Append rows of kind STEP, named by the numbers after NAMES: user annotations that ops do not cross."""
    outermost = np.flatnonzero((trace["tid"] == PID) & (trace["depth"] == 0) & (trace["kind"] != 2))
    shares = np.array_split(outermost, steps)
    start = np.array([trace["start"][share[0]] for share in shares])
    end = np.array([trace["start"][share[-1]] + trace["dur"][share[-1]] for share in shares])
    added = {"kind": STEP, "tid": PID, "name": len(NAMES) + np.arange(steps), "start": start, "dur": end - start}
    for column, values in trace.items():
        more = added.get(column, -1 if column == "parent" else 0)
        trace[column] = np.concatenate([values, np.broadcast_to(more, steps)])


FRAMES = 6


def _stack(number: int) -> str:
    """Frames as torch writes them, innermost first; stacks share their outer frames, as those of a program do."""
    files = ("train.py", "model.py", "layers/attention.py", "torch/nn/modules/module.py")
    lines = [number // 4**level for level in range(FRAMES)]
    return ";".join(f"{files[line % 4]}({10 + line % 400}): forward_{line % 90}" for line in lines)


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _event(index: int, columns: tuple[int, ...], stacks: int) -> str:
    kind, tid, name, start, dur, corr, _, _ = columns
    label = NAMES[name] if kind != STEP else f"{STEP_NAME}{name - len(NAMES)}"
    head = f'"name": {json.dumps(label)}, "ts": {_us(start)}, "dur": {_us(dur)}'
    if kind == STEP:
        return (
            f'  {{\n    "ph": "X", "cat": "user_annotation", "pid": {PID}, "tid": {tid}, {head},\n    "args": {{\n      '
            f'"External id": {index + 1}, "Ev Idx": {index}\n    }}\n  }}'
        )
    if kind == 0:
        stack = f', "Call stack": "{_stack((name * 31 + index % 20) % stacks)}"' if stacks else ""
        return (
            f'  {{\n    "ph": "X", "cat": "cpu_op", "pid": {PID}, "tid": {tid}, {head},\n    "args": {{\n      '
            f'"External id": {index + 1}, "Record function id": 0, "Concrete Inputs": ["", "", ""], '
            '"Input type": ["c10::BFloat16", "c10::BFloat16", "c10::BFloat16"], "Input Strides": [[393216, 768, 1], [1, 768], [1]], '
            f'"Input Dims": [[32, {512 << (index & 3)}, 768], [768, 768], [768]], "Ev Idx": {index}{stack}\n    }}\n  }}'
        )
    if kind == 1:
        return (
            f'  {{\n    "ph": "X", "cat": "cuda_runtime", "pid": {PID}, "tid": {tid}, {head},\n    "args": {{\n      '
            f'"cbid": 211, "correlation": {corr}\n    }}\n  }},\n'
            f'  {{\n    "ph": "s", "id": {corr}, "pid": {PID}, "tid": {tid}, "ts": {_us(start)}, "cat": "ac2g", "name": "ac2g"\n  }}'
        )
    return (
        f'  {{\n    "ph": "X", "cat": "kernel", "pid": 0, "tid": {tid}, {head},\n    "args": {{\n      '
        f'"queued": 0, "device": 0, "context": 1, "stream": {tid}, "correlation": {corr}, "registers per thread": 168, '
        '"shared memory": 49152, "blocks per SM": 1.939394, "warps per SM": 7.757576, "grid": [256, 1, 1], '
        '"block": [128, 1, 1], "est. achieved occupancy %": 12\n    }\n  },\n'
        f'  {{\n    "ph": "f", "id": {corr}, "pid": 0, "tid": {tid}, "ts": {_us(start)}, "cat": "ac2g", "name": "ac2g", "bp": "e"\n  }}'
    )


def _copies(trace: dict[str, np.ndarray], copies: int) -> Iterator[dict[str, np.ndarray]]:
    """The trace again and again, each a little later than the one before, with correlation ids of its own."""
    lasting, launches = int((trace["start"] + trace["dur"]).max()) + 10**6, int(trace["corr"].max())
    for number in range(copies):
        launched = trace["corr"] + np.where(trace["corr"] > 0, number * launches, 0)
        yield {**trace, "start": trace["start"] + number * lasting, "corr": launched}


def write(trace: dict[str, np.ndarray], out: IO[str], stacks: int = 0, copies: int = 1) -> None:
    """Write the trace as torch's exporter lays it out: events first in recording order, traceName last."""
    out.write(
        '{\n  "schemaVersion": 1,\n  "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150000000000, "numSms": 132}],\n'
        '  "record_shapes": 1,\n  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8},\n  "displayTimeUnit": "ms",\n'
        f'  "baseTimeNanoseconds": {BASE_NS},\n  "traceEvents": [\n'
    )
    index = 0
    for copy in _copies(trace, copies):
        for row in zip(*(column.tolist() for column in copy.values()), strict=True):
            out.write(_event(index, row, stacks) + ",\n")
            index += 1
    out.write(
        f'  {{\n    "ph": "M", "name": "process_name", "pid": {PID}, "tid": 0, "ts": 0.000, "args": {{"name": "python"}}\n  }}\n  ],\n'
        '  "traceName": "generated.json"\n}\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--gpu", type=float, default=0.25, help="share of launches and kernels, in equal parts")
    parser.add_argument("--steps", type=int, default=0, help="ProfilerStep rows, besides --events")
    parser.add_argument("--stacks", type=int, default=0, help="distinct call stacks of ops; 0: ops have none")
    parser.add_argument("--copies", type=int, default=1, help="how often the events are written")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", required=True)
    parser.add_argument("--truth", help="npz file for the known truth")
    parser.add_argument("--gz", action="store_true")
    args = parser.parse_args()
    trace = generate(args.events, args.threads, args.depth, args.gpu, args.seed)
    if args.steps:
        _add_steps(trace, args.steps)
    if args.truth:
        arrays: dict[str, Any] = {"names": np.array(NAMES), **trace}
        np.savez(args.truth, **arrays)
    opener = gzip.open(args.out, "wt", compresslevel=6) if args.gz else open(args.out, "w", buffering=1 << 20)
    with opener as out:
        write(trace, out, args.stacks, args.copies)


if __name__ == "__main__":
    main()
