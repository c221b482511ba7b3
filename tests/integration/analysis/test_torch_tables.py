"""Our `top` against torch's own key_averages(), on captures made here and now by the real torch.

Where functions call themselves the two differ on purpose: torch adds up the times of all calls, `top` those of the
outermost ones. What these are is told by the trace file, the slow way.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from profd.query import Average, open_trace

from tests.support.importing import import_trace
from tests.support.tables import chrome_records, nanoseconds

CAPTURE = Path(__file__).with_name("torch_capture.py")
CAPTURE_SECONDS = 600  # it imports torch and records ten times, beside whatever else runs: 120 were too few at load 30
CAPTURES = ["plain", "steps", "shapes", "shapes+stacks", "memory", "stacks+memory+steps", "threads+shapes", "symbols"]
WITH_CALL_STACKS = ["verbose+stacks", "verbose+stacks+memory+threads"]
STACK_FRAMES = 5  # as in torch_capture

pytest.importorskip("torch", reason="compares with torch.profiler, and there is no torch here")

Key = tuple[str, str, str]
Values = list[tuple[int, int, int, int]]


def wanted(rows: list[dict[str, Any]]) -> dict[Key, Values]:
    found: dict[Key, Values] = {}
    for row in rows:
        key = (row["name"], row["device_type"], row["shapes"].replace(" ", ""))
        found.setdefault(key, []).append((row["count"], row["cpu_ns"], row["self_cpu_ns"], row["flops"] or 0))
    return {key: sorted(values) for key, values in found.items()}


def recursive(trace: Path) -> dict[str, int]:
    """Functions that have a call within a call of their own -> ns of the outermost ones."""
    calls: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for record in chrome_records(trace.read_bytes()):
        if record.get("cat") == "python_function":
            start = nanoseconds(record["ts"])
            key = (record["name"], str(record["pid"]), str(record["tid"]))
            calls.setdefault(key, []).append((start, start + nanoseconds(record["dur"])))
    found: dict[str, int] = {}
    within: set[str] = set()
    for (name, _, _), spans in calls.items():
        until = -1
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            if end <= until:
                within.add(name)
            else:
                found[name] = found.get(name, 0) + end - start
                until = end
    return {name: ns for name, ns in found.items() if name in within}


def once(rows: dict[Key, Values], functions: dict[str, int]) -> dict[Key, Values]:
    """Torch's rows, with the totals of recursive functions counted once."""
    changed = dict(rows)
    for key, values in rows.items():
        name = key[0]
        if name in functions:
            ((count, total, own, flops),) = values
            assert functions[name] < total
            changed[key] = [(count, functions[name], own, flops)]
    return changed


def ours(rows: list[Average]) -> dict[Key, Values]:
    found: dict[Key, Values] = {}
    for row in rows:
        values = (row.count, row.cpu_time_total_ns, row.self_cpu_time_total_ns, row.flops or 0)
        found.setdefault((row.name, row.device_type, row.input_shapes or ""), []).append(values)
    return {key: sorted(values) for key, values in found.items()}


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a capture of each name in CAPTURES and WITH_CALL_STACKS."""
    folder = tmp_path_factory.mktemp("captures")
    subprocess.run(
        [sys.executable, str(CAPTURE), str(folder), *CAPTURES, *WITH_CALL_STACKS],
        check=True,
        capture_output=True,
        timeout=CAPTURE_SECONDS,
    )
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", CAPTURES)
def test_key_averages_are_those_of_torch(name: str, captures: Path, tmp_path: Path) -> None:
    import_trace(captures / name / "trace.json", tmp_path / "stored")
    trace = open_trace(tmp_path / "stored")
    tables = json.loads((captures / name / "averages.json").read_text())
    assert len(tables["plain"]) > 20
    functions = recursive(captures / name / "trace.json")
    assert bool(functions) == ("stacks" in name)
    assert ours(trace.key_averages()) == once(wanted(tables["plain"]), functions)
    assert ours(trace.key_averages(group_by_input_shape=True)) == once(wanted(tables["shapes"]), functions)
    steps = trace.summary()["steps"]
    # Without a schedule torch marks no steps: four optimizer steps are the ends of three.
    assert (steps["n"], steps["from"]) == (3, "ProfilerStep" if "steps" in name else "Optimizer.step")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in [*CAPTURES, *WITH_CALL_STACKS] if "memory" in name])
def test_memory_is_that_of_torch(name: str, captures: Path, tmp_path: Path) -> None:
    import_trace(captures / name / "trace.json", tmp_path / "stored")
    trace = open_trace(tmp_path / "stored")
    tables = json.loads((captures / name / "averages.json").read_text())
    functions = recursive(captures / name / "trace.json")
    found = sorted(
        (row.name, None if row.name in functions else row.cpu_memory_usage, row.self_cpu_memory_usage)
        for row in trace.key_averages(group_by_input_shape=True)
    )
    assert found == sorted(
        (row["name"], None if row["name"] in functions else row["cpu_bytes"], row["self_cpu_bytes"])
        for row in tables["shapes"]
    )
    assert sum(bytes_ not in (0, None) for _, bytes_, _ in found) > 10
    (host,) = trace.summary()["memory"]
    assert (host["device_type"], host["device"], host["out_of_memory"]) == ("CPU", None, 0)
    assert host["peak_bytes"] >= host["net_bytes"]
    assert host["allocated_bytes"] - host["freed_bytes"] == host["net_bytes"]


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_CALL_STACKS)
def test_stacks_are_those_of_torch(name: str, captures: Path, tmp_path: Path) -> None:
    """Those of backward functions are their forward ops'."""
    import_trace(captures / name / "trace.json", tmp_path / "stored")
    trace = open_trace(tmp_path / "stored")
    tables = json.loads((captures / name / "averages.json").read_text())["stacks"]
    found = sorted(
        (
            row.name,
            row.device_type,
            tuple(row.stack or ()),
            row.count,
            row.cpu_time_total_ns,
            row.self_cpu_time_total_ns,
        )
        for row in trace.key_averages(group_by_stack_n=STACK_FRAMES)
    )
    keys = ("count", "cpu_ns", "self_cpu_ns")
    assert found == sorted(
        (row["name"], row["device_type"], tuple(row["stack"]), *(row[key] for key in keys)) for row in tables
    )
    backward = [stack for name, _, stack, *_ in found if name == "AddmmBackward0"]
    assert backward
    assert all(any("linear" in frame for frame in stack) for stack in backward)


@pytest.mark.slow
def test_modules_and_backward_times(captures: Path, tmp_path: Path) -> None:
    import_trace(captures / "stacks+memory+steps" / "trace.json", tmp_path / "stored")
    rows = open_trace(tmp_path / "stored").key_averages(group_by_module=True, with_backward=True)
    module = {(row.name, row.module): row for row in rows}
    assert {path for name, path in module if name == "aten::addmm"} == {
        "Model_0.Sequential_0.Linear_0",
        "Model_0.Sequential_0.Linear_1",
    }
    # Backward functions have the modules of their forward ops.
    assert {path for name, path in module if name == "AddmmBackward0"} == {
        "Model_0.Sequential_0.Linear_0",
        "Model_0.Sequential_0.Linear_1",
    }
    assert {path for name, path in module if name == "ConvolutionBackward0"} == {"Model_0.Conv2d_0"}
    for path in ("Model_0.Sequential_0.Linear_0", "Model_0.Sequential_0.Linear_1"):
        forward, backward = module["aten::addmm", path], module["AddmmBackward0", path]
        engine = module["autograd::engine::evaluate_function: AddmmBackward0", path]
        assert forward.backward_time_total_ns == engine.cpu_time_total_ns >= backward.cpu_time_total_ns > 0
        assert backward.backward_time_total_ns == 0
