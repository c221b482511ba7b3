"""`import profd.query`: what a notebook finds there."""

from __future__ import annotations

import gzip
import inspect
import json
from pathlib import Path

import profd.query
import pytest
from profd.errors import BadInput, NotFound
from profd.events import Kind
from profd.query.averages import Average

from tests.support.tables import Event, store, table_of

IDS = ["06v2k9x4h8t1z", "06v2k9x5h8t1z", "07v2k9x4h8t1z"]


def stored(path: Path) -> Path:
    events = [
        Event("aten::linear", 0, 9000, fields={"external": 1, "stack": "model.py(7): forward x;train.py(3): main"}),
        Event("aten::mm", 1000, 7000, fields={"external": 2, "stack": "model.py(7): forward x;train.py(3): main"}),
        Event("aten::add", 20_000, 22_500, fields={"external": 3, "stack": "train.py(4): main"}),
        Event("gemm", 30_000, 1_530_000, Kind.KERNEL, 9, fields={"external": 2, "device": 0}),
    ]
    return store(table_of(events), path)


def cells(line: str) -> list[str]:
    return [cell for cell in map(str.strip, line.split("  ")) if cell]


def test_all_is_public_and_documented() -> None:
    assert sorted(profd.query.__all__) == sorted(set(profd.query.__all__))
    for name in profd.query.__all__:
        value = getattr(profd.query, name)
        assert not callable(value) or inspect.getdoc(value), name
    for kind in (profd.query.Trace, profd.query.Averages, profd.query.Average):
        for name, member in inspect.getmembers(kind, inspect.isfunction):
            own = (getattr(member, "__module__", None) or "").startswith("profd")
            assert name.startswith("_") or not own or inspect.getdoc(member), f"{kind.__name__}.{name}"
    wanted = {"events", "key_averages", "total_average", "table", "export_chrome_trace", "export_stacks", "to_arrow"}
    assert wanted <= set(dir(profd.query.Trace))


def test_opening(tmp_path: Path) -> None:
    for id_ in IDS:
        stored(tmp_path / "traces" / id_)
    (tmp_path / "traces" / "not-a-trace").mkdir()
    assert profd.query.open(tmp_path / "traces" / IDS[0]).reader.directory.name == IDS[0]
    assert profd.query.open(tmp_path).reader.directory.name == IDS[2]
    assert profd.query.open(str(tmp_path), IDS[1]).reader.directory.name == IDS[1]
    assert profd.query.open(tmp_path, "07").reader.directory.name == IDS[2]
    with pytest.raises(BadInput, match="beginning of 2 traces"):
        profd.query.open(tmp_path, "06")
    for wrong in ("zz", "../traces", IDS[0] + "0"):
        with pytest.raises(NotFound):
            profd.query.open(tmp_path, wrong)
    with pytest.raises(NotFound):
        profd.query.open(tmp_path / "nowhere")


def test_a_table_with_device_work(tmp_path: Path) -> None:
    text = (
        profd.query.open(stored(tmp_path / "t"))
        .key_averages(group_by_stack_n=2)
        .table(sort_by="self_cuda_time_total", header="Where it went", max_src_column_width=21)
    )
    lines = text.splitlines()
    assert lines[:2] == ["=" * len(lines[0]), "Where it went"]
    titles = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"]
    titles += ["Self CUDA", "Self CUDA %", "CUDA total", "CUDA time avg", "# of Calls", "Source Location"]
    assert cells(lines[3]) == titles
    row = next(line for line in lines if "aten::mm" in line)
    assert cells(row) == [
        *("aten::mm", "52.17%", "6.000us", "52.17%", "6.000us", "6.000us"),
        *("1.500ms", "100.00%", "1.500ms", "1.500ms", "1", "...l.py(7): forward x"),
    ]
    assert cells(lines[lines.index(row) + 1]) == ["train.py(3): main"]
    assert lines[-2:] == ["Self CPU time total: 11.500us", "Self CUDA time total: 1.500ms"]


def test_options_of_the_table(tmp_path: Path) -> None:
    trace = profd.query.open(stored(tmp_path / "t"))
    top = trace.table(top_level_events_only=True)
    assert "aten::linear" in top
    assert "aten::mm" not in top
    assert "only display top-level" in top
    assert trace.table(sort_by="cpu_time_total", row_limit=1).count("aten::") == 1
    with pytest.raises(BadInput, match="sort by one of"):
        trace.table(sort_by="speed")
    assert profd.query.Averages().table() == ""
    large = [
        Average("a" * 60, "CPU", 1, 2_500_000_000, 0, 0, 0, flops=1_500_000, cpu_memory_usage=3 << 30),
        Average("b", "CPU", 1, 0, 0, 0, 0, self_cpu_memory_usage=-1536, cpu_memory_usage=2 << 20),
    ]
    text = profd.query.Averages(large).table()
    for part in ("a" * 52 + "...", "2.500s", "NaN", "3.00 GB", "2.00 MB", "-1.50 KB", "Total MFLOPs", "1.500", "--"):
        assert part in text


def test_total_average(tmp_path: Path) -> None:
    total = profd.query.open(stored(tmp_path / "t")).total_average()
    assert (total.count, total.cpu_time_total_ns, total.self_cpu_time_total_ns) == (4, 17_500, 11_500)
    assert (total.flops, total.cpu_memory_usage) == (None, None)


def test_exports(tmp_path: Path) -> None:
    trace = profd.query.open(stored(tmp_path / "t"))
    trace.export_chrome_trace(tmp_path / "out.json")
    trace.export_chrome_trace(str(tmp_path / "out.json.gz"))
    plain = (tmp_path / "out.json").read_bytes()
    assert gzip.decompress((tmp_path / "out.json.gz").read_bytes()) == plain
    assert {event["name"] for event in json.loads(plain)["traceEvents"] if event["ph"] == "X"} >= {"aten::mm", "gemm"}
    trace.export_stacks(tmp_path / "cpu")
    assert sorted((tmp_path / "cpu").read_text().splitlines()) == [
        "train.py(3):_main;model.py(7):_forward_x 9",
        "train.py(4):_main 2",
    ]
    trace.export_stacks(tmp_path / "gpu", "self_cuda_time_total")
    assert (tmp_path / "gpu").read_text() == "train.py(3):_main;model.py(7):_forward_x 1500\n"
    with pytest.raises(BadInput, match="no metric"):
        trace.export_stacks(tmp_path / "x", "speed")


def test_events_as_columns(tmp_path: Path) -> None:
    trace = profd.query.open(stored(tmp_path / "t"))
    assert trace.events(["name"]).columns["start"].tolist() == [0, 1000, 20_000, 30_000]
    arrow = trace.to_arrow()
    assert arrow.num_rows == 4
    assert arrow.column("name").to_pylist() == ["aten::linear", "aten::mm", "aten::add", "gemm"]
    assert arrow.column("duration_ns").to_pylist() == [9000, 6000, 2500, 1_500_000]
    assert arrow.column("kind").to_pylist()[-1] == "kernel"
    assert trace.steps()["n"] == trace.summary()["steps"]["n"] == 0
