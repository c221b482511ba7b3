"""Events of several nodes of a distributed job: rows apart, and nested in nothing of each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import profd.query
import pytest

from tests.support.importing import import_trace

Row = dict[str, Any]


def begin(name: str, ts: float, **args: Any) -> Row:
    return {"ph": "B", "name": name, "ts": ts, "pid": 1, "tid": 1, "args": args}


def end(name: str, ts: float, **args: Any) -> Row:
    return begin(name, ts, **args) | {"ph": "E"}


@pytest.fixture
def trace(tmp_path: Path) -> profd.query.Trace:
    """Node 0 calls mul and waits for node 1, whose mul torch puts on the same thread."""
    records = [
        begin("rpc", 0, node_id=0, handle=1),
        begin("mul", 10, node_id=0, handle=2),
        end("mul", 30, node_id=0, handle=2),
        begin("mul", 40, node_id=1, handle=3, is_remote=True),
        begin("empty", 50, node_id=1, handle=4, is_remote=True),
        end("empty", 60, node_id=1, handle=4, is_remote=True),
        end("mul", 70, node_id=1, handle=3, is_remote=True),
        end("rpc", 100, node_id=0, handle=1),
        {"ph": "X", "name": "mul", "ts": 200, "dur": 5, "pid": 1, "tid": 2, "args": {}},
    ]
    path = tmp_path / "legacy.json"
    path.write_text(json.dumps(records))
    import_trace(path, tmp_path / "trace", kind="torch-legacy")
    return profd.query.open(tmp_path / "trace")


@pytest.mark.parametrize("raw", [False, True])
def test_nodes_are_rows_apart(trace: profd.query.Trace, raw: bool) -> None:
    rows = {(row.name, row.node_id): row for row in trace.key_averages(raw=raw)}
    assert {key: (row.count, row.cpu_time_total_ns, row.self_cpu_time_total_ns) for key, row in rows.items()} == {
        ("rpc", 0): (1, 100_000, 80_000),  # less its own mul, not that of node 1
        ("mul", 0): (1, 20_000, 20_000),
        ("mul", 1): (1, 30_000, 20_000),
        ("empty", 1): (1, 10_000, 10_000),
        ("mul", None): (1, 5_000, 5_000),
    }


def test_the_table_has_torchs_column_of_nodes(trace: profd.query.Trace) -> None:
    lines = trace.table(sort_by="self_cpu_time_total").splitlines()
    heading = lines[1].split("  ")
    assert [word.strip() for word in heading if word.strip()][-2:] == ["# of Calls", "Node ID"]
    assert {(line.split()[0], line.split()[-1]) for line in lines[3:8]} == {
        ("rpc", "0"),
        ("mul", "0"),
        ("mul", "1"),
        ("empty", "1"),
        ("mul", "-1"),
    }


def test_a_trace_without_nodes_has_no_such_column(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([{"ph": "X", "name": "mul", "ts": 0, "dur": 5, "pid": 1, "tid": 2}]))
    import_trace(path, tmp_path / "trace")
    found = profd.query.open(tmp_path / "trace")
    assert "Node ID" not in found.table()
    assert [row.as_json()["node_id"] for row in found.key_averages()] == [None]
