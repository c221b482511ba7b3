"""`top --raw` and `tree` of real traces against the JSON itself, read and counted in the plainest way."""

from __future__ import annotations

import gzip
import io
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from profd.query import open_trace
from profd.questions.jobs import find

from tests.support.importing import import_trace
from tests.support.tables import chrome_records, events_of_chrome, nanoseconds
from tests.support.torch_oracle import torch_table

FILES = [
    "amd_minitoy",
    "cuda_alexnet",
    "cuda_event_sync",
    "cuda_triton",
    "cuda_train_rank0",
    "ddp_rank0",
    "ddp_rank1",
    "mtia_inference",
    "resnet50_workers0",
]
ON_DEVICE = {
    *("kernel", "gpu_memcpy", "gpu_memset", "cuda_sync", "gpu_user_annotation", "mtia_ccp_events"),
    *("Kernel", "Memcpy", "Memset"),
}
APART = {"Trace", "overhead"}


def counted(records: list[dict[str, Any]]) -> dict[str, list[int]]:
    """name -> [count, CPU total, self CPU, device total]; self by interval nesting per (pid, tid)."""
    table: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    tracks: dict[tuple[Any, Any], list[tuple[int, int, int, str]]] = defaultdict(list)
    for number, record in enumerate(records):
        start, lasting = nanoseconds(record["ts"]), nanoseconds(record.get("dur", 0))
        row, category = table[record["name"]], record.get("cat", "")
        row[0] += 1
        if category in ON_DEVICE:
            row[3] += lasting
            continue
        row[1] += lasting
        row[2] += lasting
        if category not in APART:
            tracks[record["pid"], record["tid"]].append((start, -(start + lasting), number, record["name"]))
    for track in tracks.values():
        stack: list[tuple[int, str]] = []
        for start, minus_end, _, name in sorted(track):
            while stack and (stack[-1][0] <= start or stack[-1][0] < -minus_end):
                stack.pop()
            if stack:
                table[stack[-1][1]][2] -= -minus_end - start
            stack.append((-minus_end, name))
    return dict(table)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_real_trace(name: str, trace_data: Path, tmp_path: Path) -> None:
    file = trace_data / f"{name}.json.gz"
    if not file.exists():
        pytest.skip(f"no {file}")
    records = chrome_records(gzip.decompress(file.read_bytes()))
    report = import_trace(file, tmp_path / "stored")
    assert report["events"] == len(records)

    trace = open_trace(tmp_path / "stored")
    got: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for row in trace.key_averages(raw=True):
        values = (row.count, row.cpu_time_total_ns, row.self_cpu_time_total_ns, row.self_device_time_total_ns)
        got[row.name] = [a + b for a, b in zip(got[row.name], values, strict=True)]
    assert dict(got) == counted(records)

    default = trace.key_averages()
    shown = sum(row.count for row in default)
    assert 0 < shown <= len(records)
    device = sum(row.self_device_time_total_ns for row in default if row.device_type != "CPU")
    assert device == sum(values[3] for values in counted(records).values())
    assert len(trace.summary()["top"]) == 5
    _check_tree(tmp_path / "stored", records, tmp_path / "lines")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cuda_train_rank0", "cuda_event_sync", "cuda_triton"])
def test_device_time_of_ops(name: str, trace_data: Path, tmp_path: Path) -> None:
    """The default table against torch's rules in plain objects; here external ids name ops."""
    file = trace_data / f"{name}.json.gz"
    if not file.exists():
        pytest.skip(f"no {file}")
    import_trace(file, tmp_path / "stored")
    got: dict[tuple[str, str], list[int]] = {}
    for row in open_trace(tmp_path / "stored").key_averages():
        values = (row.count, row.cpu_time_total_ns, row.self_cpu_time_total_ns)
        device = (row.device_time_total_ns, row.self_device_time_total_ns)
        have = got.get((row.name, row.device_type), [0] * 5)
        got[row.name, row.device_type] = [a + b for a, b in zip(have, values + device, strict=True)]
    assert got == torch_table(events_of_chrome(gzip.decompress(file.read_bytes())))


def _check_tree(directory: Path, records: list[dict[str, Any]], path: Path) -> None:
    """Every event has a line, lines are in start order, and parents enclose or launched their children."""
    with path.open("wb+") as out:
        result = find("tree")({"trace_dir": str(directory)}, [out.fileno()], lambda what, share: None)
    lines = [json.loads(line) for line in io.BytesIO(path.read_bytes())]
    assert result["rows"] == len(lines) == len(records)
    assert [line["row"] for line in lines] == list(range(len(lines)))
    assert sorted(line["name"] for line in lines) == sorted(record["name"] for record in records)
    for line in lines:
        if line["parent"] is None:
            assert line["depth"] == 0
            continue
        parent = lines[line["parent"]]
        assert line["depth"] == parent["depth"] + 1
        if line["device_type"] == "CPU":
            # Traces of 2021 write one thread as a number and as a string.
            assert parent["process"] == line["process"]
            assert str(parent["thread"]) == str(line["thread"])
            assert parent["start_ns"] <= line["start_ns"] <= parent["end_ns"]
