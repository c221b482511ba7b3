"""Forward-backward links and memory of real GPU traces against the JSON itself, read in the plainest way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from profd.derive.autograd import AUTOGRAD_COLUMNS, find_links

from tests.support.importing import real_trace
from tests.support.tables import nanoseconds


@pytest.mark.slow
def test_numbers_and_flows_say_the_same(trace_data: Path, tmp_path: Path) -> None:
    """Every `fwdbwd` flow of the file joins the ops that thread and sequence number join."""
    trace, records = real_trace("cuda_train_rank0", trace_data, tmp_path)
    table = trace.reader.read([*AUTOGRAD_COLUMNS, "cat"], args=False)
    flows = trace.reader.flows()
    links = find_links(table, flows, trace.reader.tracks)
    backward = np.flatnonzero(links.backward)
    assert int((links.forward_row[backward] >= 0).sum()) == len(backward)
    starts = {record["id"]: record for record in records if record.get("cat") == "fwdbwd" and record["ph"] == "s"}
    ends = {record["id"]: record for record in records if record.get("cat") == "fwdbwd" and record["ph"] == "f"}
    assert len(ends) == 905
    without = find_links(table, None, trace.reader.tracks)
    assert without.forward_row.tolist() == links.forward_row.tolist()
    first = min(nanoseconds(record["ts"]) for record in records if record["ph"] in ("X", "i"))
    base = int(table.columns["start"][0]) - first
    by_start: dict[int, set[int]] = {}
    for row in backward.tolist():
        by_start.setdefault(int(table.columns["start"][row]), set()).add(row)
    for number, end in ends.items():
        rows = by_start[base + nanoseconds(end["ts"])]
        sources = {int(table.columns["start"][links.forward_row[row]]) for row in rows}
        assert base + nanoseconds(starts[number]["ts"]) in sources


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "linked", "all_backward"), [("resnet50_workers0", 1068, 1068), ("ddp_rank0", 185, 560)]
)
def test_links_without_flows(name: str, linked: int, all_backward: int, trace_data: Path, tmp_path: Path) -> None:
    """Traces of 2021 have no such flows: there the one thread that runs forward ops is the forward thread."""
    trace, records = real_trace(name, trace_data, tmp_path)
    table = trace.reader.read([*AUTOGRAD_COLUMNS, "cat"], args=False)
    links = find_links(table, trace.reader.flows(), trace.reader.tracks)
    arguments = [record.get("args") for record in records]
    numbered = [args for args in arguments if isinstance(args, dict) and "Sequence number" in args]
    forward = {args["Sequence number"] for args in numbered if not args.get("Fwd thread id")}
    backward = [args["Sequence number"] for args in numbered if args.get("Fwd thread id")]
    assert len(backward) == int(links.backward.sum()) == all_backward
    assert sum(number in forward for number in backward) == int((links.forward_row >= 0).sum()) == linked


@pytest.mark.slow
def test_memory_by_device(trace_data: Path, tmp_path: Path) -> None:
    trace, records = real_trace("resnet50_workers0", trace_data, tmp_path)
    wanted: dict[str, list[int]] = {}
    for record in records:
        if record["name"] == "[memory]":
            args = record["args"]
            wanted.setdefault("CPU" if args["Device Type"] == 0 else "CUDA", []).append(args["Bytes"])
    found = trace.summary()["memory"]
    assert [use["device_type"] for use in found] == sorted(wanted)
    for use in found:
        sizes = wanted[use["device_type"]]
        assert use["allocations"] == sum(size > 0 for size in sizes)
        assert use["allocated_bytes"] == sum(size for size in sizes if size > 0)
        assert use["net_bytes"] == sum(sizes)
        assert use["peak_bytes"] > 0
    shown = trace.key_averages()
    assert sum(row.self_device_memory_usage or 0 for row in shown) != 0
