"""What no sane program records, through the whole pipeline: the right answer or a named count, in linear time.

Each case is so large that what took its square would not end, and recursion would.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import profd.query
import pyarrow.parquet as pq
import pytest
from profd import _engine
from profd.answers.explain import explain
from profd.events import NO_END, NO_ROW, Kind
from profd.export import chrome, folded
from profd.limits import SEGMENT_ROWS
from profd.query.tree import tree_lines
from profd.segments.contract import FIELDS

from tests.support.importing import import_trace
from tests.support.tables import Event, store, table_of

Row = dict[str, Any]
Import = Callable[[list[Row]], profd.query.Trace]
MANY = 100_000


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    def trace(records: list[Row]) -> profd.query.Trace:
        path = tmp_path / "t.json"
        path.write_text(json.dumps({"traceEvents": records}))
        import_trace(path, tmp_path / "trace")
        return profd.query.open(tmp_path / "trace")

    return trace


def span(name: str, ts: float, dur: float, tid: int = 1, pid: int = 1, cat: str = "cpu_op", **args: Any) -> Row:
    args = args.pop("args", args)
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def ask_everything(trace: profd.query.Trace, tmp_path: Path) -> None:
    """Every question, for not failing and not taking forever."""
    for raw in (False, True):
        trace.key_averages(raw=raw, group_by_stack_n=4)
    trace.key_averages(group_by_module=True, with_backward=True)
    trace.summary()
    trace.steps()
    trace.gpu()
    explain(trace.reader)
    for write in (chrome.write, folded.write):
        with (tmp_path / "out").open("wb") as out:
            write(trace.reader, out, None, lambda what, share: None)
    assert sum(count for count, _ in tree_lines(trace.reader)) == len(trace.reader)


def columns(trace: profd.query.Trace, *names: str) -> list[Any]:
    table = trace.events([*names, "start"])
    return [table.column(name) for name in names]


def test_calls_a_hundred_thousand_deep(imported: Import, tmp_path: Path) -> None:
    trace = imported([span(f"f{n % 10}", n, 2 * MANY - 2 * n) for n in range(MANY)])
    parent, depth, own = columns(trace, "parent", "depth", "self_time")
    assert np.array_equal(parent, np.arange(MANY) - 1)
    assert np.array_equal(depth, np.arange(MANY))
    assert own[:-1].tolist() == [2000] * (MANY - 1)
    assert own[-1] == 2000  # 2 us: 2 * MANY - 2 * (MANY - 1)
    assert trace.reader.meta.anomalies == {}
    ask_everything(trace, tmp_path)


def test_a_hundred_thousand_threads(imported: Import, tmp_path: Path) -> None:
    trace = imported([span("f", n, 5, tid=n) for n in range(MANY)])
    (parent,) = columns(trace, "parent")
    assert (parent == NO_ROW).all()
    (row,) = trace.key_averages()
    assert (row.count, row.self_cpu_time_total_ns) == (MANY, 5000 * MANY)
    ask_everything(trace, tmp_path)


@pytest.mark.parametrize(("lasting", "parents"), [(3, np.arange(MANY) - 1), (0, np.full(MANY, NO_ROW))])
def test_everything_at_the_same_time(imported: Import, tmp_path: Path, lasting: int, parents: Any) -> None:
    # Of equal intervals the earlier row encloses the later; what lasts no time encloses nothing.
    trace = imported([span("f", 7, lasting) for _ in range(MANY)])
    (parent,) = columns(trace, "parent")
    assert np.array_equal(parent, parents)
    ask_everything(trace, tmp_path)


def test_negative_durations(imported: Import, tmp_path: Path) -> None:
    trace = imported([span("f", n, -5) for n in range(MANY)])
    assert trace.reader.meta.anomalies == {"end_before_start": MANY}
    (row,) = trace.key_averages()
    assert (row.count, row.cpu_time_total_ns) == (MANY, 0)
    ask_everything(trace, tmp_path)


def test_a_stream_for_every_kernel(imported: Import, tmp_path: Path) -> None:
    trace = imported([span("k", n, 2, pid=0, cat="kernel", device=0, stream=n) for n in range(MANY)])
    answer = trace.gpu()
    assert len(answer["streams"]) + answer["streams_left_out"] == MANY
    assert answer["devices"][0]["busy_ns"] == (MANY + 1) * 1000
    ask_everything(trace, tmp_path)


def test_every_call_overlaps_all_the_others(imported: Import, tmp_path: Path) -> None:
    trace = imported([span(f"f{n % 7}", n, MANY) for n in range(MANY)])
    (parent,) = columns(trace, "parent")
    assert np.array_equal(parent, np.arange(MANY) - 1)  # in the tree a row belongs to what it starts in
    assert trace.reader.meta.anomalies == {"partial_overlap": MANY - 1}
    assert sum(row.self_cpu_time_total_ns for row in trace.key_averages()) == MANY * MANY * 1000  # strict: none nests
    ask_everything(trace, tmp_path)


def test_parents_after_their_children_in_the_file(imported: Import, tmp_path: Path) -> None:
    trace = imported([span("f", n, 2 * MANY - 2 * n) for n in reversed(range(MANY))])
    parent, start = columns(trace, "parent", "start")
    assert np.array_equal(parent, np.arange(MANY) - 1)
    assert all(before < after for before, after in pairwise(start.tolist()))
    ask_everything(trace, tmp_path)


def test_links_in_circles(imported: Import, tmp_path: Path) -> None:
    """Each kernel claims to be caused by the one before it, and the first by the last."""
    kernels = [span("k", n, 1, tid=7, pid=0, cat="kernel", device=0, stream=7) for n in range(MANY)]
    place = {"pid": 0, "tid": 7, "cat": "ac2g", "name": "ac2g"}
    starts = [{"ph": "s", "id": n, "ts": n, **place} for n in range(MANY)]
    ends = [{"ph": "f", "bp": "e", "id": n, "ts": (n + 1) % MANY, **place} for n in range(MANY)]
    trace = imported([*kernels, *starts, *ends])
    parent, linked = columns(trace, "parent", "linked")
    assert (parent == NO_ROW).all()
    assert (linked == NO_ROW).all()
    assert trace.reader.meta.anomalies == {"device_without_launch": MANY}
    ask_everything(trace, tmp_path)


def test_ids_that_collide_across_processes(imported: Import, tmp_path: Path) -> None:
    """A hundred processes with the same thread ids, correlation ids, external ids and sequence numbers."""
    records = []
    ids: list[dict[str, Any]] = [
        {"External id": 5, "Sequence number": 3, "Fwd thread id": 0},
        {"Sequence number": 3, "Fwd thread id": 1},
    ]
    for pid in range(100):
        at = 1000 * pid
        records += [
            span("aten::mm", at, 100, pid=pid, **ids[0]),
            span("cudaLaunchKernel", at + 10, 5, pid=pid, cat="cuda_runtime", correlation=9),
            span("gemm", at + 20, 50, pid=0, tid=7, cat="kernel", device=0, correlation=9, **{"External id": 5}),
            span("MmBackward0", at + 200, 30, pid=pid, tid=2, **ids[1]),
        ]
    trace = imported(records)
    assert trace.reader.meta.anomalies == {"correlation_reused": 99}
    table = trace.events(["name", "process", "linked", "parent", "start"])
    processes = table.columns["process"]
    names = np.array(table.dictionaries["name"].values)[table.columns["name"]]
    launches, kernels = np.flatnonzero(names == "cudaLaunchKernel"), np.flatnonzero(names == "gemm")
    assert np.array_equal(table.column("linked")[kernels], launches)  # in time order the latest is the right one
    assert np.array_equal(processes[table.column("parent")[launches]], processes[launches])
    rows = {row.name: row for row in trace.key_averages(with_backward=True)}
    # An external id of a hundred ops says nothing: each kernel goes to the op around its launch.
    assert rows["aten::mm"].device_time_total_ns == 100 * 50_000
    assert rows["aten::mm"].backward_time_total_ns == 100 * 30_000
    ask_everything(trace, tmp_path)


def test_one_thread_with_ten_million_events() -> None:
    """Calls of a thousand levels, again and again: the tree, segment by segment as it is built when stored."""
    total, levels, segment_rows = 10_000_000, 1000, SEGMENT_ROWS
    tree = _engine.TreeBuilder(1)
    thread, role = (
        np.zeros(segment_rows, dtype=np.int32),
        np.full(segment_rows, 7, dtype=np.uint8),
    )  # nest, frame, timed
    seen = deepest = 0
    for first in range(0, total, segment_rows):
        row = np.arange(first, min(first + segment_rows, total))
        level = row % levels
        start = row // levels * (2 * levels) + level
        parent, depth, _ = tree.feed(start, start + 2 * (levels - level) - 1, thread[: len(row)], role[: len(row)])
        assert np.array_equal(depth, level)
        assert np.array_equal(parent, np.where(level == 0, NO_ROW, row - 1))
        seen, deepest = seen + len(row), max(deepest, int(depth.max()))
    tree.finish()
    assert (seen, deepest, tree.partial_overlap, tree.no_end) == (total, levels - 1, 0, 0)


def test_steps_that_no_program_has(imported: Import, tmp_path: Path) -> None:
    """A step for each event, calls that wait within calls that wait, names that come once, kernels across all steps."""
    records = [span(f"ProfilerStep#{n}", 2 * n, 2, cat="user_annotation") for n in range(MANY // 4)]
    records += [span("cudaStreamSynchronize", n, MANY - 2 * n, cat="cuda_runtime", tid=2) for n in range(MANY // 4)]
    records += [span(f"op {n}", 2 * n + 0.5, 1) for n in range(MANY // 4)]
    records += [
        {**span("k", n, MANY // 2, cat="kernel", tid=7, device=0, stream=n, correlation=n), "pid": 0}
        for n in range(MANY // 4)
    ]
    ask_everything(imported(records), tmp_path)


def test_the_extremes_of_an_int64(tmp_path: Path) -> None:
    low, high = NO_END + 1, (1 << 63) - 1
    events = [
        Event("all", low, high),
        Event("past", low, 0),
        Event("future", 0, high),
        Event("last", high - 1, high),
        Event("k", low, high, Kind.KERNEL, 9, fields={"device": 0}),
        Event("end", high, high),
    ]
    trace = profd.query.open(store(table_of(events), tmp_path / "trace"))
    times = {row.name: (row.cpu_time_total_ns, row.device_time_total_ns) for row in trace.key_averages()}
    assert times == {  # what does not fit is the most that does
        "all": (high, 0),
        "past": (high, 0),
        "future": (high, 0),
        "last": (1, 0),
        "k": (0, high),
        "end": (0, 0),
    }
    ask_everything(trace, tmp_path)


def exported(trace: profd.query.Trace, tmp_path: Path) -> list[Row]:
    with (tmp_path / "out").open("wb") as out:
        chrome.write(trace.reader, out, None, lambda what, share: None)
    records: list[Row] = json.loads((tmp_path / "out").read_bytes())["traceEvents"]
    return [record for record in records if record["ph"] == "X"]


def test_a_hundred_thousand_keys_of_arguments(imported: Import, tmp_path: Path) -> None:
    """Another key for each event: none is lost, and no column comes for any."""
    trace = imported([span("call", n, 1, args={f"key {n}": n}) for n in range(MANY)])
    assert [one["args"][f"key {n}"] for n, one in enumerate(exported(trace, tmp_path))] == [*range(MANY)]
    (file, *_) = trace.reader.directory.glob("segment-*")
    assert len(pq.ParquetFile(file).schema_arrow) == len(FIELDS)
    assert len(trace.key_averages()) == 1


def test_arguments_of_megabytes(imported: Import, tmp_path: Path) -> None:
    """Texts, lists and objects larger than any page: they come back, and questions that read none of them answer."""
    huge = {"text": "x" * (4 << 20), "list": [*range(200_000)], "object": {str(n): [n] for n in range(50_000)}}
    trace = imported([span("small", 0, 1), span("huge", 10, 5, args=huge), span("small", 20, 1)])
    found = exported(trace, tmp_path)
    assert [one["name"] for one in found] == ["small", "huge", "small"]
    assert {key: found[1]["args"][key] for key in huge} == huge
    assert sorted((row.name, row.count) for row in trace.key_averages()) == [("huge", 1), ("small", 2)]
