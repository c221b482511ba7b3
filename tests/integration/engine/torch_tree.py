"""Trains a little under torch.profiler; writes the Chrome trace and torch's own event tree.

    torch_tree.py TRACE.json TREE.json

The tree is a list of [name, start ns, parent's name, parent's start, parent's end].
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile


def train(steps: int) -> profile:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with profile(activities=[ProfilerActivity.CPU], with_stack=True, profile_memory=True) as profiler:
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(8, 32)).sum().backward()
            optimizer.step()
            profiler.step()
    return profiler


def main(trace: str, tree: str) -> None:
    # The profiler imports modules of its own when it starts. Their code objects are freed at once, and torch reads
    # their names when it stops: garbage, or those of whatever lies there by then. A first run gets that over with.
    train(1)
    profiler = train(5)
    profiler.export_chrome_trace(trace)
    rows = []
    results: Any = profiler.profiler
    waiting = [(root, None) for root in results.kineto_results.experimental_event_tree()]
    while waiting:
        event, parent = waiting.pop()
        above = [parent.name, parent.start_time_ns, parent.end_time_ns] if parent else [None, None, None]
        rows.append([event.name, event.start_time_ns, *above])
        waiting += [(child, event) for child in event.children]
    with open(tree, "w") as file:
        json.dump(rows, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
