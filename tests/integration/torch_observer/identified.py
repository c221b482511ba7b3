"""Run as a program: workloads under the observer and torch.profiler at once, both with shapes, memory and tensors.

    python identified.py FOLDER WORKLOAD ...

Writes for each WORKLOAD.pfc, the chunks of our recording, and WORKLOAD.json: torch's event tree and key averages.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import torch
from profclient import _recorder
from profclient.drain import drain
from profclient.torch import observer

from tests.integration.torch_observer.observed import INPUTS, MEMORY, OPS, RANGES, TENSOR_IDS
from tests.integration.torch_observer.workloads import WORKLOADS


@contextlib.contextmanager
def recorded(path: Path) -> Iterator[None]:
    """Our recording of the block, as the chunks that a streamer would send."""
    loaded = observer.load()
    assert loaded is not None, "there is no build of the observer"
    arena = _recorder.arm(arena_bytes=64 << 20, sources=RANGES | OPS | MEMORY)
    loaded.start(INPUTS | TENSOR_IDS)
    loaded.start_memory()
    try:
        yield
    finally:
        loaded.stop_memory()
        loaded.stop()
        _recorder.disarm()
        with path.open("wb") as file:
            drain(_recorder.Drainer(arena), file)
        while not _recorder.release():
            pass


def tree(profiler: Any) -> list[dict[str, Any]]:
    """Torch's operators and allocations in its own order: of the stable sort by start that its ids were given in."""
    rows: list[tuple[int, dict[str, Any]]] = []
    waiting = list(reversed(profiler.profiler.kineto_results.experimental_event_tree()))
    while waiting:
        event = waiting.pop()
        waiting += reversed(event.children)
        kind = event.tag.name
        row: dict[str, Any] = {"kind": kind, "name": event.name, "tid": event.start_tid}
        if kind == "TorchOp":
            row["inputs"] = [tensor for value in event.extra_fields.inputs for tensor in tensors(value)]
        elif kind == "Allocation":
            extra = event.extra_fields
            row |= {"ptr": extra.ptr, "bytes": extra.alloc_size, "id": extra.id}
        rows.append((event.start_time_ns, row))
    return [row for _, row in sorted(rows, key=lambda row: row[0])]


def tensors(value: Any) -> list[dict[str, Any]]:
    """Those of an input, which may be a list."""
    if isinstance(value, list):
        return [tensor for entry in value for tensor in tensors(entry)]
    if not hasattr(value, "impl_ptr"):
        return []
    return [{"impl": value.impl_ptr, "storage": value.storage_data_ptr, "id": value.id}]


def averages(profiler: Any) -> list[dict[str, Any]]:
    """Torch's own table, less times, which are those of another clock."""
    return [
        {
            "name": row.key,
            "shapes": str(row.input_shapes),
            "count": row.count,
            "memory": [row.cpu_memory_usage, row.self_cpu_memory_usage],
        }
        for row in profiler.key_averages(group_by_input_shape=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("workloads", nargs="+", choices=WORKLOADS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.workloads:
        torch.manual_seed(0)
        run = WORKLOADS[name]()
        run()
        cpu = [torch.profiler.ProfilerActivity.CPU]
        with (
            torch.profiler.profile(activities=cpu, record_shapes=True, profile_memory=True) as profiler,
            recorded(arguments.folder / f"{name}.pfc"),
        ):
            run()
        said = {"pid": os.getpid(), "tree": tree(profiler), "averages": averages(profiler)}
        (arguments.folder / f"{name}.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main()
