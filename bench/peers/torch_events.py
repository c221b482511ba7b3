"""torch.profiler's own way from events to key averages, on the known truth of a generated trace.

It is given the events as numpy columns: no JSON is parsed, nothing is stored.
"""

from __future__ import annotations

import numpy as np
from torch.autograd.profiler_util import EventList, FunctionEvent, Kernel
from torch.profiler import DeviceType

OP, RUNTIME, KERNEL = 0, 1, 2


def averages(truth: str) -> int:
    """Construct FunctionEvents, build their tree, average by key; the number of keys."""
    columns = np.load(truth)
    names = columns["names"].tolist()
    events, by_correlation = [], {}
    rows = zip(*(columns[key].tolist() for key in ("kind", "tid", "name", "start", "dur", "corr")), strict=True)
    for number, (kind, thread, name, start, duration, correlation) in enumerate(rows):
        device = DeviceType.CUDA if kind == KERNEL else DeviceType.CPU
        begin = start / 1000
        event = FunctionEvent(
            id=number,
            name=names[name],
            thread=thread,
            start_us=begin,
            end_us=begin + duration / 1000,
            device_type=device,
            stack=[],
        )
        events.append(event)
        if kind == RUNTIME:
            by_correlation[correlation] = event
        elif kind == KERNEL and correlation in by_correlation:
            by_correlation[correlation].kernels.append(Kernel(event.name, 0, duration / 1000))
    events.sort(key=lambda event: [event.time_range.start, -event.time_range.end])
    table = EventList(events, use_device="cuda")
    table._build_tree()
    return len(table.key_averages())
