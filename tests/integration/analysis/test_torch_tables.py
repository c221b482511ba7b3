"""Our `top` against torch's own key_averages(), on captures made here and now by the real torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from profd.query import Average, open_trace

from tests.support.importing import import_trace

CAPTURE = Path(__file__).with_name("torch_capture.py")
CAPTURE_SECONDS = 120
CAPTURES = ["plain", "steps", "shapes", "shapes+stacks", "memory", "stacks+memory+steps", "threads+shapes"]

pytest.importorskip("torch", reason="compares with torch.profiler, and there is no torch here")

Key = tuple[str, str, str]
Values = list[tuple[int, int, int, int]]


def wanted(rows: list[dict[str, Any]]) -> dict[Key, Values]:
    found: dict[Key, Values] = {}
    for row in rows:
        key = (row["name"], row["device_type"], row["shapes"].replace(" ", ""))
        found.setdefault(key, []).append((row["count"], row["cpu_ns"], row["self_cpu_ns"], row["flops"] or 0))
    return {key: sorted(values) for key, values in found.items()}


def ours(rows: list[Average]) -> dict[Key, Values]:
    found: dict[Key, Values] = {}
    for row in rows:
        values = (row.count, row.cpu_time_total_ns, row.self_cpu_time_total_ns, row.flops or 0)
        found.setdefault((row.name, row.device_type, row.input_shapes or ""), []).append(values)
    return {key: sorted(values) for key, values in found.items()}


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a capture of each name in CAPTURES."""
    folder = tmp_path_factory.mktemp("captures")
    subprocess.run(
        [sys.executable, str(CAPTURE), str(folder), *CAPTURES], check=True, capture_output=True, timeout=CAPTURE_SECONDS
    )
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", CAPTURES)
def test_key_averages_are_those_of_torch(name: str, captures: Path, tmp_path: Path) -> None:
    import_trace(captures / name / "trace.json", tmp_path / "stored")
    trace = open_trace(tmp_path / "stored")
    tables = json.loads((captures / name / "averages.json").read_text())
    assert len(tables["plain"]) > 20
    assert ours(trace.key_averages()) == wanted(tables["plain"])
    assert ours(trace.key_averages(group_by_input_shape=True)) == wanted(tables["shapes"])
    steps = trace.summary()["steps"]
    # Without a schedule torch marks no steps: four optimizer steps are the ends of three.
    assert (steps["n"], steps["from"]) == (3, "ProfilerStep" if "steps" in name else "Optimizer.step")
