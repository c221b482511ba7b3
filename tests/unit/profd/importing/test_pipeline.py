from __future__ import annotations

import decimal
import gzip
import json
import os
import threading
from collections import Counter, defaultdict
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profd.collate.collator import Collator
from profd.decode import anchor
from profd.errors import BadInput, BadTrace, Exhausted
from profd.importing import pipeline
from profd.importing.pipeline import store_trace
from profd.limits import RECALL_AT_END_BYTES_MAX
from profd.model.remembered import REMEMBERED as REMEMBERED_FORMAT
from profd.model.remembered import Remembered, RememberedCall
from profd.query.averages import Grouping, averages_of_trace
from profd.query.summary import summarise
from profd.segments.meta import read_meta
from profd.segments.reader import TraceReader

from tests.support import chunk_cases as cases
from tests.support import chunk_twin as twin
from tests.unit.profd.decode.test_chunks import HEADER
from tests.unit.profd.decode.test_chunks_hostile import chunk

# Segments smaller than the traces, so that links and frames cross from one into another.
REAL = [
    ("amd_minitoy", 17),
    ("cuda_alexnet", 101),
    ("cuda_diff_control", 20_000),
    ("cuda_diff_test", 1 << 19),
    ("cuda_event_sync", 7),
    ("cuda_train_rank0", 5000),
    ("cuda_triton", 3),
    ("ddp_rank0", 301),
    ("ddp_rank1", 301),
    ("mtia_inference", 1001),
    ("resnet50_workers0", 20_000),
]
DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset", "mtia_ccp_events"}
CALLS = {"cuda_runtime", "runtime", "cuda_driver", "mtia_runtime"}


def store(staging, *files, meta=None, progress=lambda what, share: None):
    """Files are (format, path)."""
    staging.mkdir(exist_ok=True)
    fds = [os.open(path, os.O_RDONLY) for _, path in files]
    described = [{"format": kind, "label": path.name, "fd": number} for number, (kind, path) in enumerate(files)]
    try:
        return store_trace({"files": described, "staging": str(staging), "meta": meta or {}}, fds, progress)
    finally:
        for fd in fds:
            os.close(fd)


def write(path, events, **top_level):
    path.write_text(json.dumps({"traceEvents": events} | top_level))
    return path


def span(name, start, duration, tid=1, cat="cpu_op", **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": duration, "args": args}


def small(folder, name="trace.json", first_us=0):
    return write(
        folder / name,
        [
            span("aten::mm", first_us, 100),
            span("cudaLaunchKernel", first_us + 10, 5, cat="cuda_runtime", correlation=3),
            span("gemm", first_us + 20, 50, tid=7, cat="kernel", correlation=3, device=0, stream=7),
        ],
        schemaVersion=1,
    )


def test_a_small_trace(tmp_path):
    seen = []
    result = store(
        tmp_path / "staging",
        ("chrome", small(tmp_path)),
        meta={"source": "import", "lost": [{"stage": "source", "reason": "late", "count": 2}]},
        progress=lambda what, share: seen.append((what, share)),
    )
    assert result | {"bytes": 0, "timings_ns": {}} == {
        "events": 3,
        "gpu_events": 1,
        "launches": 1,
        "start_ns": 0,
        "end_ns": 100_000,
        "bytes": 0,
        "lost": [],
        "warnings": [],
        "truncated": "",
        "anomalies": {},
        "timings_ns": {},
    }
    assert set(result["timings_ns"]) == {"decode", "collate", "tree", "store"}
    assert seen[-1] == ("storing", 1.0)
    meta = read_meta(tmp_path / "staging")
    assert [loss.reason for loss in meta.lost] == ["late"]
    assert meta.top_level == {"schemaVersion": 1}
    table = TraceReader(tmp_path / "staging").read()
    assert table.column("parent").tolist() == [-1, 0, 1]
    assert table.column("linked").tolist() == [-1, -1, 1]


def load(path):
    with gzip.open(path) as file:
        return json.load(file, parse_float=decimal.Decimal)["traceEvents"]


def spans_in_start_order(events):
    """X events as the trace has them: (start, end, thread key, category, event), stable by start."""
    rows = []
    for event in events:
        if event["ph"] == "X":
            start = decimal.Decimal(event["ts"]) * 1000
            thread = (str(event["pid"]), str(event["tid"]))
            rows.append((start, start + decimal.Decimal(event.get("dur", 0)) * 1000, thread, event))
    return sorted(rows, key=lambda row: row[0])


def stored_links(folder):
    """Multiset of (device event, its launch) by name, time and correlation id, and one of (row, parent) on hosts."""
    reader = TraceReader(folder)
    table = reader.read(("name", "start", "correlation", "linked", "parent", "thread"), args=False)
    names = reader.dictionaries["name"].values
    word = [names[code] for code in table.column("name").tolist()]
    start = table.column("start") - reader.meta.start_ns
    key = list(zip(word, start.tolist(), table.column("correlation").tolist(), strict=True))
    linked = table.column("linked").tolist()
    return Counter((key[row], key[launch]) for row, launch in enumerate(linked) if launch >= 0)


def stated_links(events):
    """The same, from the file: the last call with the id that starts no later, else the first after."""
    rows = spans_in_start_order(events)
    # Instants are rows as well, and may be the first.
    times = [decimal.Decimal(event["ts"]) * 1000 for event in events if event["ph"] in "Xi"]
    first = min(times)
    calls, devices = defaultdict(list), []
    for start, _, _, event in rows:
        category, correlation = event.get("cat", "").lower(), (event.get("args") or {}).get("correlation")
        if not correlation:
            continue
        key = (event["name"], int(start - first), correlation)
        if category in CALLS:
            calls[correlation].append(key)
        elif category in DEVICE or category == "cuda_sync":
            devices.append(key)
    links = Counter()
    for key in devices:
        before = [call for call in calls[key[2]] if call[1] <= key[1]]
        if calls[key[2]]:
            links[key, before[-1] if before else calls[key[2]][0]] += 1
    return links


HOST = {"cpu_op", "operator", "user_annotation", "python_function"} | CALLS


def stated_parents(events):
    """(name, start) of each host span and of the span around it, by replaying each thread."""
    threads = defaultdict(list)
    for start, end, thread, event in spans_in_start_order(events):
        if event.get("cat", "").lower() in HOST:
            threads[thread].append((start, -end, len(threads[thread]), event["name"]))
    first = min(decimal.Decimal(event["ts"]) * 1000 for event in events if event["ph"] in "Xi")
    parents = Counter()
    for rows in threads.values():
        stack = []
        for start, minus_end, _, name in sorted(rows):
            while stack and stack[-1][0] <= start:
                stack.pop()
            key = (name, int(start - first))
            parents[key, stack[-1][1] if stack else None] += 1
            if -minus_end > start:
                stack.append((min([-minus_end] + [frame[0] for frame in stack]), key))
    return parents


def stored_parents(folder):
    """The same, as stored."""
    reader = TraceReader(folder)
    table = reader.read(("name", "cat", "phase", "start", "parent"), args=False)
    names, cats = reader.dictionaries["name"].values, reader.dictionaries["cat"].values
    start = (table.column("start") - reader.meta.start_ns).tolist()
    key = [(names[code], at) for code, at in zip(table.column("name").tolist(), start, strict=True)]
    parents = Counter()
    parent = table.column("parent").tolist()
    for row, (cat, phase) in enumerate(zip(table.column("cat").tolist(), table.column("phase").tolist(), strict=True)):
        if cat >= 0 and cats[cat].lower() in HOST and phase == ord("X"):
            parents[key[row], key[parent[row]] if parent[row] >= 0 else None] += 1
    return parents


@pytest.mark.parametrize(("name", "segment_rows"), REAL)
def test_links_and_tree_of_a_real_trace(trace_data, tmp_path, monkeypatch, name, segment_rows):
    path = trace_data / f"{name}.json.gz"
    monkeypatch.setattr(pipeline, "Collator", partial(Collator, segment_rows=segment_rows))
    store(tmp_path / "staging", ("chrome", path))
    events = load(path)
    links = stored_links(tmp_path / "staging")
    assert links == stated_links(events)
    assert sum(links.values()) > 0
    assert stored_parents(tmp_path / "staging") == stated_parents(events)


def test_forward_and_backward_flows_bind_to_ops(trace_data, tmp_path):
    store(tmp_path / "staging", ("chrome", trace_data / "cuda_train_rank0.json.gz"))
    reader = TraceReader(tmp_path / "staging")
    flows, table = reader.flows(), reader.read(("name", "cat", "start"), args=False)
    cats = reader.dictionaries["cat"].values
    found = Counter()
    for category, phase, row, time in zip(
        flows.category.tolist(), flows.phase.tolist(), flows.row.tolist(), flows.time.tolist(), strict=True
    ):
        assert table.column("start")[row] == time
        found[cats[category], chr(phase), cats[table.column("cat")[row]]] += 1
    assert found["fwdbwd", "s", "cpu_op"] == found["fwdbwd", "f", "cpu_op"] == 905
    assert found["ac2g", "s", "cuda_runtime"] == 6401
    assert found["ac2g", "f", "kernel"] == 4350


def test_two_ranks_in_one_trace(trace_data, tmp_path):
    files = [trace_data / f"ddp_rank{rank}.json.gz" for rank in (0, 1)]
    result = store(tmp_path / "both", *(("chrome", path) for path in files))
    alone = [store(tmp_path / path.name, ("chrome", path)) for path in files]
    assert result["events"] == sum(each["events"] for each in alone)
    assert result["gpu_events"] == sum(each["gpu_events"] for each in alone)

    def without_times(folder):
        return Counter(((a[0], a[2]), (b[0], b[2])) for a, b in stored_links(folder).elements())

    assert without_times(tmp_path / "both") == sum((without_times(tmp_path / path.name) for path in files), Counter())


def test_samples_nest_and_join_other_files(tmp_path):
    def record(phase, name, time_us, file="/w/train.py"):
        args = {"filename": file, "line": 3}
        return {"args": args, "cat": "py-spy", "name": name, "ph": phase, "pid": 1, "tid": 1, "ts": time_us}

    records = [
        record("B", "thread (1): MainThread", 0, ""),
        record("B", "main", 0),
        record("B", "step", 0),
        record("E", "step", 60),
        record("B", "save", 70),  # still on the stack when the recording ends
    ]
    samples = tmp_path / "samples"
    samples.write_bytes(json.dumps(records, separators=(",", ":")).encode() + b"\n")
    result = store(tmp_path / "staging", ("pyspy", samples), ("chrome", small(tmp_path, first_us=200)))
    assert result["events"] == 6
    assert result["anomalies"]["no_end"] == 2
    reader = TraceReader(tmp_path / "staging")
    table = reader.read(("name", "parent", "depth", "self_time", "thread"))
    names = reader.dictionaries["name"].values
    assert [names[code].split()[-1] for code in table.column("name").tolist()] == [
        "main",
        "step",
        "save",
        "aten::mm",
        "cudaLaunchKernel",
        "gemm",
    ]
    # One process, one thread: the frames that never ended are around what the other file recorded.
    assert table.column("parent").tolist() == [-1, 0, 0, 2, 3, 4]
    assert table.column("depth").tolist() == [0, 1, 1, 2, 3, 4]


def test_one_unreadable_file_of_several(tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text("nothing of the kind")
    result = store(tmp_path / "staging", ("chrome", bad), ("chrome", small(tmp_path)))
    assert result["events"] == 3
    assert result["lost"] == [{"stage": "decode", "reason": "unreadable_file", "count": 1}]
    assert "bad.json" in result["warnings"][0]
    with pytest.raises(BadTrace):
        store(tmp_path / "none", ("chrome", bad), ("chrome", bad))
    with pytest.raises(BadTrace):
        store(tmp_path / "none", ("chrome", bad))


def test_a_file_that_ends_too_soon(tmp_path):
    whole = small(tmp_path).read_text()
    cut = tmp_path / "cut.json"
    cut.write_text(whole[: whole.index("gemm")])
    result = store(tmp_path / "staging", ("chrome", cut))
    assert result["events"] == 2
    assert "cut.json: " in result["truncated"]
    assert read_meta(tmp_path / "staging").truncated == result["truncated"]


class Forgetful(Collator):
    """A collator with a fault: it keeps the last row to itself."""

    def segments(self, dictionaries):
        for segment in super().segments(dictionaries):
            if segment.first_row + len(segment) < self.rows:
                yield segment


def test_rows_that_the_collator_forgets_are_lost_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "Collator", partial(Forgetful, segment_rows=2))
    result = store(tmp_path / "staging", ("chrome", small(tmp_path)))
    assert result["events"] == 2
    assert result["lost"] == [{"stage": "collate", "reason": "missing", "count": 1}]
    assert read_meta(tmp_path / "staging").lost[0].count == 1


def test_losses_of_the_decoder_are_in_the_trace(tmp_path):
    path = write(tmp_path / "t.json", [span("a", 1, 1), span("b", "x", 1), {"ph": "q", "name": "c", "ts": 1}])
    result = store(tmp_path / "staging", ("chrome", path))
    assert result["events"] == 1
    assert sum(loss["count"] for loss in result["lost"]) == 2
    assert {loss["stage"] for loss in result["lost"]} == {"decode"}
    assert len(read_meta(tmp_path / "staging").lost) == len(result["lost"])


def test_the_largest_clock_error_and_every_step_of_the_wall_clock_are_in_the_trace(tmp_path):
    base, real = HEADER["base"], HEADER["real"]
    first, second = tmp_path / "a.pfc", tmp_path / "b.pfc"
    hour = 3_600_000_000_000
    first.write_bytes(chunk(0, error=250) + chunk(1, base=base + 500, real=real + 500 + hour, at=500, error=900))
    second.write_bytes(chunk(0, error=40))
    staging = tmp_path / "staging"
    store(staging, ("chunks", first), ("chunks", second), ("chrome", small(tmp_path)))
    meta = read_meta(staging)
    assert meta.clock_error_ns == 900
    assert meta.anomalies["clock_steps"] == 1
    assert summarise(TraceReader(staging))["clock_error_ns"] == 900


def test_a_trace_whose_source_says_nothing_of_its_clock(tmp_path):
    store(tmp_path / "staging", ("chrome", small(tmp_path)))
    assert read_meta(tmp_path / "staging").clock_error_ns is None


def test_a_trace_without_events(tmp_path):
    result = store(tmp_path / "staging", ("chrome", write(tmp_path / "t.json", [])))
    assert (result["events"], result["start_ns"], result["end_ns"]) == (0, None, None)
    assert len(TraceReader(tmp_path / "staging").read()) == 0


def test_more_events_than_a_trace_can_have(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "TRACE_EVENTS_MAX", 2)
    with pytest.raises(Exhausted, match="more than 2 events"):
        store(tmp_path / "staging", ("chrome", small(tmp_path)))


def test_no_thread_reads_the_file_of_an_import_that_has_failed(tmp_path, monkeypatch):
    """Its number may be another file's by then. A traceback keeps the frames that had the thread."""
    monkeypatch.setattr(pipeline, "TRACE_EVENTS_MAX", 2)
    before = {*threading.enumerate()}
    with pytest.raises(Exhausted) as raised:
        store(tmp_path / "staging", ("chrome", small(tmp_path)))
    assert raised.tb is not None
    assert not {*threading.enumerate()} - before


def test_what_the_caller_gets_wrong(tmp_path):
    with pytest.raises(BadInput, match="description of the trace is malformed"):
        store(tmp_path / "staging", ("chrome", small(tmp_path)), meta={"pid": "x"})
    with pytest.raises(BadInput, match="xspace"):
        store(tmp_path / "staging", ("nonsense", small(tmp_path)))


def recording(path, threads=3, chunks=20, ranges=7):
    """Chunks of several threads whose times interleave; the ranges of one of them overlap."""
    made = []
    for tid in range(threads):
        for sequence in range(chunks):
            moved = 1000 * sequence + 10 * tid
            starts = [cases.REAL + moved + 100 * at for at in range(ranges)]
            events = [
                twin.Event(at, 3, "call", start=start, end=start + (150 if tid == 1 else 50))
                for at, start in enumerate(starts)
            ]
            place = {"stream": tid, "tid": tid, "sequence": sequence}
            times = {"base": HEADER["base"] + moved, "real": HEADER["real"] + moved}
            made.append(twin.write_chunk({**HEADER, **place, **times}, events))
    path.write_bytes(b"".join(made))
    return path


def columns_of(staging):
    reader = TraceReader(staging)
    table = reader.read(None)
    return {name: values.tolist() for name, values in table.columns.items()}, dict(reader.dictionaries)["name"].values


def texts_of(staging):
    """The columns, with texts instead of their numbers, which depend on what was met first."""
    reader = TraceReader(staging)
    columns = {name: values.tolist() for name, values in reader.read(None).columns.items()}
    for name in ("name", "cat"):
        columns[name] = [dict(reader.dictionaries)[name].values[code] for code in columns[name]]
    return columns


def test_what_is_settled_is_stored_while_the_rest_is_decoded(tmp_path, monkeypatch):
    path = recording(tmp_path / "recording.pfc")
    whole = store(tmp_path / "whole", ("chunks", path))
    monkeypatch.setattr(pipeline, "Collator", partial(Collator, segment_rows=50))
    monkeypatch.setattr("profd.decode.chunks.BATCH_ROWS", 20)
    monkeypatch.setattr("profd.collate.sorter.SpillFile", None)  # nothing is written but the trace
    parts = store(tmp_path / "parts", ("chunks", path))
    assert len(read_meta(tmp_path / "parts").segments) == 9
    assert columns_of(tmp_path / "parts") == columns_of(tmp_path / "whole")
    assert parts["anomalies"] == whole["anomalies"]
    assert parts["anomalies"]["partial_overlap"] > 0


def samples_of(path, stretches):
    """Samples of recorded threads and others, where stretches are (tid, from, how long, frames), in us."""
    records = [{"args": {"filename": "", "line": 0}, "name": "thread (0)", "ph": "B", "tid": 0, "ts": 0}]
    for tid, first, long, frames in sorted(stretches):
        thread = [f"thread ({tid}): t{tid}", *(f"f{depth}" for depth in range(frames))]
        for phase, time, names in (("B", first, thread), ("E", first + long, reversed(thread))):
            files = (("" if name.startswith("thread") else "/w/a.py", name) for name in names)
            place = {"ph": phase, "tid": tid, "ts": time}
            records += [{"args": {"filename": file, "line": 1}, "name": name, **place} for file, name in files]
    text = json.dumps([{**record, "pid": HEADER["pid"]} for record in records], separators=(",", ":"))
    path.write_bytes(text.encode() + anchor.encode(anchor.Anchor(pid=HEADER["pid"], began_ns=cases.REAL)))
    return path


STRETCHES = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 20), st.integers(0, 20), st.integers(0, 3)), max_size=20
)


@settings(max_examples=25)
@given(STRETCHES, st.integers(1, 3), st.integers(1, 20), st.integers(5, 60))
def test_samples_beside_events_change_nothing_of_what_is_stored_early(
    tmp_path_factory, stretches, threads, chunks, segment_rows
):
    folder = tmp_path_factory.mktemp("beside")
    files = (
        ("chunks", recording(folder / "recording.pfc", threads, chunks)),
        ("pyspy", samples_of(folder / "samples", stretches)),
    )
    whole = store(folder / "whole", *files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "Collator", partial(Collator, segment_rows=segment_rows))
        patch.setattr("profd.decode.chunks.BATCH_ROWS", 20)
        parts = store(folder / "parts", *files)
    assert texts_of(folder / "parts") == texts_of(folder / "whole")
    assert read_meta(folder / "parts").tracks == read_meta(folder / "whole").tracks
    assert (parts["events"], parts["anomalies"]) == (whole["events"], whole["anomalies"])


def test_events_are_stored_as_they_come_where_samples_are_beside_them(tmp_path, monkeypatch):
    events = recording(tmp_path / "recording.pfc")
    samples = samples_of(tmp_path / "samples", [(tid, first, 3, 2) for tid in (1, 7) for first in (0, 9, 17)])
    monkeypatch.setattr(pipeline, "Collator", partial(Collator, segment_rows=60))
    monkeypatch.setattr("profd.decode.chunks.BATCH_ROWS", 20)
    monkeypatch.setattr("profd.collate.sorter.SpillFile", None)  # nothing is written but the trace
    stored = store(tmp_path / "stored", ("chunks", events), ("pyspy", samples))
    assert stored["events"] == 3 * 20 * 7 + 12
    tracks = read_meta(tmp_path / "stored").tracks.threads
    assert {(track["id"], track.get("name")) for track in tracks} == {
        (0, None),
        (1, "t1"),
        (2, None),
        ("samples of 0", None),
        ("samples of 1", "t1 (samples)"),
        (7, "t7"),
    }


def test_of_two_recordings_one_settles_what_both_have(tmp_path, monkeypatch):
    first, second = recording(tmp_path / "1.pfc"), recording(tmp_path / "2.pfc", threads=1)
    store(tmp_path / "whole", ("chunks", first), ("chunks", second))
    monkeypatch.setattr(pipeline, "Collator", partial(Collator, segment_rows=50))
    monkeypatch.setattr("profd.decode.chunks.BATCH_ROWS", 20)
    store(tmp_path / "parts", ("chunks", first), ("chunks", second))
    assert columns_of(tmp_path / "parts") == columns_of(tmp_path / "whole")


@pytest.mark.parametrize("segment_rows", [1, 10])
@pytest.mark.parametrize("first_us", [15, 5])  # of the device's row: after its call began, or before
def test_an_op_that_only_waits_has_the_time_of_the_device(tmp_path, monkeypatch, segment_rows, first_us):
    monkeypatch.setattr(pipeline, "Collator", partial(Collator, segment_rows=segment_rows))
    events = [
        span("aten::item", 0, 100),
        span("cudaStreamSynchronize", 10, 80, cat="cuda_runtime", correlation=3),
        span("Stream Sync", first_us, 70, tid=7, cat="cuda_sync", correlation=3, device=0, stream=7),
    ]
    store(tmp_path / "staging", ("chrome", write(tmp_path / "trace.json", events)))
    reader = TraceReader(tmp_path / "staging")
    assert reader.meta.gpu_events == 0
    rows = averages_of_trace(reader, raw=False, grouping=Grouping())
    assert {row.name: row.device_time_total_ns for row in rows if row.device_type == "CPU"} == {
        "aten::item": 70_000,
        "cudaStreamSynchronize": 0,
    }


def test_nothing_but_the_trace_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "Collator", partial(Collator, segment_rows=2))
    store(tmp_path / "staging", ("chrome", small(tmp_path)))
    names = sorted(entry.name for entry in (tmp_path / "staging").iterdir())
    assert names == ["meta.json", "segment-00000.parquet", "segment-00001.parquet"]


REMEMBERED = {
    "entries": [
        {"process_group": ["1", "undefined"], "collective_seq_id": 8, "profiling_name": "gloo:all_reduce"}
        | {"input_sizes": [[2, 8]], "time_created_ns": 2000},
        {"process_group": ["0", "default_pg"], "collective_seq_id": 4, "profiling_name": "gloo:barrier"}
        | {"time_created_ns": 1000},
        {"process_group": ["0", "default_pg"], "is_p2p": True, "profiling_name": "gloo:send", "time_created_ns": 1500},
    ]
}


def test_what_a_flight_recorder_remembers_is_kept_beside_the_events(tmp_path):
    (tmp_path / "collectives.json").write_text(json.dumps(REMEMBERED))
    events = write(tmp_path / "t.json", [{"ph": "X", "name": "f", "ts": 1, "dur": 1, "pid": 1, "tid": 1}])
    done = store(tmp_path / "s", ("chrome", events), (REMEMBERED_FORMAT, tmp_path / "collectives.json"))
    assert (done["events"], done["warnings"]) == (1, [])
    assert read_meta(tmp_path / "s").remembered == Remembered(
        [
            RememberedCall("0 default_pg", 4, "barrier", None, 1000),
            RememberedCall("1", 8, "all_reduce", 16, 2000),
        ]
    )


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"{", "malformed"),
        (b" " * (RECALL_AT_END_BYTES_MAX + 1), "bytes"),
        (json.dumps({"entries": [REMEMBERED["entries"][0]] * 1001}).encode(), "1001 collectives"),
    ],
    ids=["malformed", "long", "many"],
)
def test_a_flight_recorder_that_lies_takes_nothing_from_the_trace(tmp_path, said, why):
    (tmp_path / "collectives.json").write_bytes(said)
    events = write(tmp_path / "t.json", [{"ph": "X", "name": "f", "ts": 1, "dur": 1, "pid": 1, "tid": 1}])
    done = store(tmp_path / "s", ("chrome", events), (REMEMBERED_FORMAT, tmp_path / "collectives.json"))
    assert done["events"] == 1
    [warning] = done["warnings"]
    assert warning.startswith("groups and sequence numbers of collectives are not recorded: ")
    assert why in warning
    assert read_meta(tmp_path / "s").remembered == Remembered()
