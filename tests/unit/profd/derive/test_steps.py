from __future__ import annotations

from typing import Any

import numpy as np
from profd.derive.steps import OPTIMIZER_STEP, PROFILER_STEP, Steps, find_steps
from profd.events import NO_END, DeviceType, Dictionary, EventTable, Kind

ANNOTATION, GPU = Kind.USER_ANNOTATION, Kind.GPU_USER_ANNOTATION


def table_of(*rows):
    """Rows are (name, start, end, thread, kind)."""
    names = Dictionary()
    columns: dict[str, Any] = {
        "name": np.array([names.code(row[0]) for row in rows], dtype=np.int32),
        "start": np.array([row[1] for row in rows], dtype=np.int64),
        "end": np.array([row[2] for row in rows], dtype=np.int64),
        "thread": np.array([row[3] for row in rows], dtype=np.int32),
        "kind": np.array([row[4] for row in rows], dtype=np.uint8),
        "device_type": np.array([DeviceType.CUDA if row[4] == GPU else DeviceType.CPU for row in rows], dtype=np.uint8),
    }
    return EventTable(columns, {"name": names})


def found(table):
    steps = find_steps(table)
    rows = zip(steps.name, steps.start.tolist(), steps.end.tolist(), steps.thread.tolist(), strict=True)
    return steps.how, list(rows)


def test_profiler_steps():
    table = table_of(
        ("ProfilerStep#1", 0, 10, 0, ANNOTATION),
        ("ProfilerStep#1", 0, 10, 0, Kind.CPU_OP),  # the same step again
        ("Optimizer.step#SGD.step", 8, 9, 0, ANNOTATION),
        ("ProfilerStep#2", 10, 22, 0, ANNOTATION),
        ("ProfilerStep#2", 11, 25, 1, GPU),
        ("ProfilerStep#3", 22, NO_END, 0, ANNOTATION),  # the window ended first
        ("ProfilerStep#x", 30, 31, 0, ANNOTATION),
        ("my ProfilerStep#4", 30, 31, 0, ANNOTATION),
    )
    assert found(table) == (PROFILER_STEP, [("ProfilerStep#1", 0, 10, 0), ("ProfilerStep#2", 10, 22, 0)])
    assert find_steps(table).durations.tolist() == [10, 12]


def test_an_optimizer_range_ends_a_step():
    sgd, wrapper = "Optimizer.step#SGD.step", "Optimizer.step#Wrapper.step"
    table = table_of(
        (sgd, 8, 10, 0, ANNOTATION),
        (sgd, 9, 12, 1, ANNOTATION),  # another thread steps by itself
        (sgd, 18, 19, 0, ANNOTATION),  # inside the wrapper, written before it
        (wrapper, 18, 20, 0, ANNOTATION),
        (sgd, 27, 31, 0, ANNOTATION),
        ("Optimizer.zero_grad#SGD.zero_grad", 32, 33, 0, ANNOTATION),
    )
    assert found(table) == (OPTIMIZER_STEP, [(wrapper, 10, 20, 0), (sgd, 20, 31, 0)])


def test_one_optimizer_range_is_no_step():
    assert found(table_of(("Optimizer.step#SGD.step", 8, 10, 0, ANNOTATION))) == (OPTIMIZER_STEP, [])


def test_steps_are_numbered_by_their_name_or_from_1_on():
    def numbers(*names):
        nothing = np.zeros(len(names), dtype=np.int64)
        return Steps(nothing, nothing, list(names), nothing.astype(np.int32), "").numbers

    assert numbers("ProfilerStep#101", "ProfilerStep#102") == [101, 102]
    assert numbers("Optimizer.step#SGD.step", "Optimizer.step#SGD.step", "train 7") == [1, 2, 3]
    assert numbers("ProfilerStep#" + "9" * 30) == [1]


def test_none_found_is_said():
    assert found(table_of(("aten::add", 0, 1, 0, Kind.CPU_OP))) == ("", [])
    assert found(EventTable({"start": np.empty(0, dtype=np.int64)}, {})) == ("", [])
    assert len(find_steps(table_of(("aten::add", 0, 1, 0, Kind.CPU_OP)))) == 0
