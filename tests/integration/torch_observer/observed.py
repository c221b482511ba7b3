"""Run as a program: workloads under the observer and torch.profiler at once, and what each of them saw, as JSON.

    python observed.py OUTPUT WORKLOAD ... [--without] [--bits N]

`--without`: neither of them, for results to compare with.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import torch
from profclient import _recorder
from profclient.torch import observer

from tests.integration.torch_observer.workloads import WORKLOADS, Workload
from tests.support.arena_reader import Arena, read_arena
from tests.support.waiting import until

RANGES, OPS, MEMORY = 1, 4, 16
INPUTS, TENSOR_IDS, STACKS, MODULES = 1, 2, 4, 8


@contextlib.contextmanager
def observed(bits: int) -> Any:
    """Record into a list of one Arena, which is there afterwards."""
    found: list[Arena] = []
    loaded = observer.load()
    assert loaded is not None, "there is no build of the observer"
    descriptor = _recorder.arm(arena_bytes=64 << 20, sources=RANGES | OPS | MEMORY)
    loaded.start(bits)
    try:
        yield found
    finally:
        loaded.stop()
        _recorder.disarm()
        found.append(read_arena(descriptor))
        while not _recorder.release():
            pass


def ours(arena: Arena) -> list[dict[str, Any]]:
    """Events of the arena in start order."""
    return [
        {
            "name": event.name,
            "kind": event.kind.name,
            "start": event.start,
            "end": event.end,
            "tid": event.tid,
            "scope": event.scope,
            "flags": event.flags,
            "sequence": (event.payload & ((1 << 40) - 1)) - 1,
            "forward": event.payload >> 40,
            "ext": {str(tag): value.hex() for tag, value in event.ext.items()},
        }
        for event in arena.events
    ]


def theirs(profiler: Any) -> list[dict[str, Any]]:
    """Operators and annotations of torch.profiler's JSON in start order."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "trace.json")
        profiler.export_chrome_trace(path)
        events = json.loads(Path(path).read_text())["traceEvents"]
    return [event for event in events if event.get("cat") in ("cpu_op", "user_annotation") and event.get("ph") == "X"]


def others_wait() -> bool:
    """Whether no other thread of this process runs."""
    tasks = [task for task in Path("/proc/self/task").iterdir() if task.name != str(os.getpid())]
    states = []
    for task in tasks:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            states.append((task / "stat").read_text().rpartition(")")[2].split()[0])
    return not {"R", "D"} & set(states)


def both(run: Workload, bits: int) -> tuple[Any, Arena, list[dict[str, Any]]]:
    """Results, what the observer saw, what torch.profiler saw.

    What a TorchScript function forks may run on when its result is there. An op that ends after torch.profiler's stop
    writes into memory that this has freed (docs/torch.md).
    """
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, record_shapes=True) as profiler, observed(bits) as found:
        results = run()
        until(others_wait, "threads that ran operators have ended them")
    return results, found[0], theirs(profiler)


def digest(results: list[torch.Tensor]) -> str:
    """Of every bit."""
    total = hashlib.sha256()
    for tensor in results:
        total.update(tensor.detach().contiguous().numpy().tobytes())
    return total.hexdigest()


def recorded(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """One workload, after a run to warm up."""
    torch.manual_seed(0)
    run = WORKLOADS[name]()
    run()
    if arguments.without:
        return {"digest": digest(run())}
    results, arena, events = both(run, arguments.bits)
    return {
        "digest": digest(results),
        "ours": ours(arena),
        "theirs": events,
        "lost": arena.lost,
        "pid": os.getpid(),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=Path)
    parser.add_argument("workloads", nargs="+", choices=WORKLOADS)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--bits", type=int, default=INPUTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        meeting = f"file://{os.environ['MEETING']}"
        torch.distributed.init_process_group("gloo", meeting, rank=int(os.environ["RANK"]), world_size=2)
    arguments.output.write_text(json.dumps({name: recorded(name, arguments) for name in arguments.workloads}))
    if "RANK" in os.environ:
        # Without this a rank was once aborted in torch's own threads as it ended, with none of ours in it.
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
