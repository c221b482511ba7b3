"""py-spy's records to rows: meaning, hostile input, and agreement with a slow obvious twin."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd import limits
from profd.decode import anchor, samples
from profd.decode.samples import SampleDecoder
from profd.errors import BadTrace, Exhausted
from profd.events import NO_END, DeviceType, Dictionary, Kind, Tracks

BASE = 1_790_000_000_000_000_000
MAIN = "thread (70): MainThread"


def record(phase: str, name: str, ts: int, tid: int = 1, file: str = "/w/train.py", line: int = 3) -> dict[str, Any]:
    args = {"filename": "" if name.startswith("thread (") else file, "line": line}
    return {"args": args, "cat": "py-spy", "name": name, "ph": phase, "pid": 9, "tid": tid, "ts": ts}


def text(records: list[dict[str, Any]]) -> bytes:
    """As serde writes it: no spaces."""
    return json.dumps(records, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def decoder(raw: bytes, **options: Any) -> SampleDecoder:
    return SampleDecoder(io.BytesIO(raw), len(raw), **options)


def rows(found: SampleDecoder) -> list[tuple[str, int, int, int, int]]:
    """(name, start, end, thread, weight) in row order."""
    names = found.dictionaries["name"].values
    result = []
    for batch in found.batches():
        columns = batch.events.columns
        assert (columns["kind"] == Kind.SAMPLE).all()
        assert (columns["device_type"] == DeviceType.CPU).all()
        for place in range(len(batch.events)):
            name = names[columns["name"][place]]
            result.append((name, *(int(columns[key][place]) for key in ("start", "end", "thread", "weight"))))
    return result


def test_threads_that_another_recording_has_get_tracks_beside_theirs() -> None:
    known = Tracks([{"id": 9}], [{"id": 71, "process": 0, "name": "loader"}, {"id": 70, "process": 0}])
    again = [
        record("E", "main", 2000),
        record("E", MAIN, 2000),
        record("B", "thread (71)", 3000),
        record("B", "g", 3000),
    ]
    once_more = [record("B", MAIN, 3000, tid=2), record("B", "h", 3000, tid=2)]  # its id once more: another thread
    unknown = [record("B", "thread (72): new", 4000, tid=3), record("B", "i", 4000, tid=3)]
    found = decoder(
        text([record("B", MAIN, 1000), record("B", "main", 1000), *again, *once_more, *unknown]), tracks=known
    )
    assert [(name.split()[-1], thread) for name, _, _, thread, _ in rows(found)] == [
        ("main", 2),
        ("g", 3),
        ("h", 4),
        ("i", 5),
    ]
    assert found.tracks.processes == [{"id": 9}]
    assert found.tracks.threads == [
        {"id": 71, "process": 0, "name": "loader"},
        {"id": 70, "process": 0},
        {"id": "samples of 70", "process": 0, "name": "MainThread (samples)"},
        {"id": "samples of 71", "process": 0},
        {"id": "samples of 70", "process": 0, "name": "MainThread (samples)"},
        {"id": 72, "process": 0, "name": "new"},
    ]
    assert found.findings.thread_names == {1: "MainThread"}


SIMPLE = [
    record("B", MAIN, 1000),
    record("B", "main", 1000),
    record("B", "step", 1000, line=10),
    record("E", "step", 31_000, line=10),
    record("B", "save", 31_000, line=20),
    record("E", "save", 41_000, line=20),
    record("E", "main", 41_000),
    record("E", MAIN, 41_000),
]


def test_rows_names_times_and_weights() -> None:
    known = anchor.Anchor(pid=9, command="python train.py", began_ns=BASE, interval_ns=10_000_000)
    found = decoder(text(SIMPLE) + anchor.encode(known))
    assert rows(found) == [
        ("/w/train.py(3): main", BASE, BASE + 40_000_000, 0, 4),
        ("/w/train.py(10): step", BASE, BASE + 30_000_000, 0, 3),
        ("/w/train.py(20): save", BASE + 30_000_000, BASE + 40_000_000, 0, 1),
    ]
    assert found.tracks.processes[0]["id"] == 9
    assert found.tracks.processes[0]["name"] == "python train.py"
    assert found.tracks.threads == [{"id": 70, "process": 0, "name": "MainThread"}]
    assert not found.findings.lost
    assert not found.findings.truncated


@pytest.mark.parametrize(
    ("same_ns", "gone_ns", "ends"),
    [
        (BASE + 35_000_000, 0, {"main": 35, "step": 31, "save": 35}),  # its clock cannot have begun after its word
        (BASE + 35_000_000, BASE + 41_000_000, {"main": 35, "step": 31, "save": 35}),
        (BASE + 35_000_000, BASE + 21_000_000, {"main": 41, "step": 31, "save": 41}),  # it began 20 ms before that
        (BASE + 5_000_000, 0, {"main": 5, "step": 5}),
        (BASE - 5_000_000, 0, {}),  # nothing is known to be of the program that was accepted
        (0, BASE, {"main": 41, "step": 31, "save": 41}),
    ],
)
def test_what_may_be_another_programs_is_left_out(same_ns: int, gone_ns: int, ends: dict[str, int]) -> None:
    known = anchor.Anchor(began_ns=BASE, same_ns=same_ns, gone_ns=gone_ns)
    found = rows(decoder(text(SIMPLE) + anchor.encode(known)))
    zero_ns = BASE - 1_000_000
    assert {name.split()[-1]: (end - zero_ns) // 1_000_000 for name, _, end, *_ in found} == ends


@pytest.mark.parametrize(
    ("ended_ns", "zero_ns"),
    [
        (0, BASE - 1_000_000),  # not known: the first sample was taken at once
        (BASE + 90_000_000, BASE + 49_000_000),  # the first sample came 50 ms after py-spy said that it begins
        (BASE + 10_000_000, BASE - 1_000_000),  # impossible: it would have been taken before that
    ],
)
def test_clock_is_fixed_at_the_better_end(ended_ns: int, zero_ns: int) -> None:
    known = anchor.Anchor(began_ns=BASE, ended_ns=ended_ns)
    assert rows(decoder(text(SIMPLE) + anchor.encode(known)))[0][1] == zero_ns + 1_000_000


def test_file_of_py_spy_itself_counts_from_its_start() -> None:
    assert rows(decoder(text(SIMPLE)))[0][1:3] == (1_000_000, 41_000_000)


def test_equal_intervals_come_outermost_first() -> None:
    """The tree takes the first of equal intervals to enclose the others."""
    chain = [record("B", name, 5) for name in "abc"] + [record("E", name, 9) for name in "cba"]
    assert [row[0][-1] for row in rows(decoder(text(chain)))] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("file", "line", "name"),
    [
        ("/usr/lib/python3.11/threading.py", 7, "threading.py(7): f"),
        ("/e/lib/python3.13t/site-packages/torch/nn/m.py", 7, "torch/nn/m.py(7): f"),
        ("/usr/lib/python3/dist-packages/numpy/a.py", 7, "numpy/a.py(7): f"),
        ("<frozen importlib._bootstrap>", 1, "<frozen importlib._bootstrap>(1): f"),
        ("/usr/lib/libc.so.6", 0, "f (libc.so.6)"),
        ("/e/_x.cpython-311-x86_64-linux-gnu.so", 0, "f (_x.cpython-311-x86_64-linux-gnu.so)"),
    ],
)
def test_names(file: str, line: int, name: str) -> None:
    pair = [record("B", "f", 1, file=file, line=line), record("E", "f", 2, file=file, line=line)]
    assert rows(decoder(text(pair)))[0][0] == name


def test_thread_that_ended_is_cut_where_it_was_last_seen() -> None:
    known = anchor.Anchor(began_ns=BASE, ended={"70": BASE + 12_000_000})
    found = rows(decoder(text(SIMPLE) + anchor.encode(known)))
    assert [(row[0][-4:], row[2] - BASE) for row in found] == [
        ("main", 12_000_000),
        ("step", 12_000_000),
        ("save", 30_000_000),  # began after that: nothing is left of it
    ]


def test_interpreter_thread_id_that_is_used_again() -> None:
    again = "thread (71): Thread-2 (work)"
    records = [
        *(record("B", name, 1) for name in (MAIN, "a")),
        *(record("E", name, 5) for name in ("a", MAIN)),
        *(record("B", name, 5) for name in (again, "b")),
        *(record("E", name, 9) for name in ("b", again)),
    ]
    found = decoder(text(records))
    assert [(row[0][-1], row[3]) for row in rows(found)] == [("a", 0), ("b", 1)]
    assert [track["id"] for track in found.tracks.threads] == [70, 71]
    assert [track["name"] for track in found.tracks.threads] == ["MainThread", "Thread-2 (work)"]


def test_interpreter_without_kernel_thread_ids() -> None:
    name = "thread (0x7F00AA): MainThread"
    records = [record("B", name, 1), record("B", "a", 1), record("E", "a", 2), record("E", name, 2)]
    found = decoder(text(records))
    assert len(rows(found)) == 1
    assert found.tracks.threads[0]["id"] == 0x7F00AA


def test_dictionaries_and_tracks_are_shared_with_other_files() -> None:
    dictionaries = {"name": Dictionary(["kernel"])}
    tracks = Tracks(processes=[{"id": 1}], threads=[{"id": 1, "process": 0}])
    raw = text(SIMPLE)
    found = SampleDecoder(io.BytesIO(raw), len(raw), dictionaries, tracks)
    batches = list(found.batches())
    assert found.dictionaries is dictionaries
    assert {thread for batch in batches for thread in batch.events.columns["thread"]} == {1}
    assert {process for batch in batches for process in batch.events.columns["process"]} == {1}
    assert dictionaries["name"].values[0] == "kernel"


def test_nothing_sampled_is_said() -> None:
    found = decoder(b"[]\n")
    assert rows(found) == []
    assert "No stack was sampled" in found.findings.warnings[0]


# --- truncated and hostile files


@pytest.mark.parametrize("cut", range(1, len(text(SIMPLE)) - 1, 13))
def test_every_truncation_keeps_what_is_readable(cut: int) -> None:
    found = decoder(text(SIMPLE)[:cut])
    kept = rows(found)
    assert found.findings.truncated
    assert found.findings.lost == {"truncated": 1}
    assert all(row[2] in (NO_END, 31_000_000, 41_000_000) for row in kept)


@pytest.mark.parametrize("raw", [b"", b"   ", b"{}", b"PK\x03\x04", b"\x1f\x8b\x08", b'"x"', b"null"])
def test_not_an_array(raw: bytes) -> None:
    with pytest.raises(BadTrace) as error:
        rows(decoder(raw))
    assert error.value.offset == 0


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b'{"args":{},"name":"x","ph":"B","pid":1,"tid":1,"ts":-5}', "bad_time"),
        (b'{"args":{},"name":"x","ph":"B","pid":1,"tid":1,"ts":%d}' % 10**30, "bad_time"),
        (b'{"args":{},"name":"x","ph":"B","pid":1,"tid":1,"ts":%d}' % 2**60, "bad_time"),
        (b'{"args":{},"name":"x","ph":"B","pid":1,"tid":1,"ts":NaN}', "malformed"),
        (b'{"args":{},"name":"x","ph":"B","pid":1,"tid":1,"ts":"5"}', "malformed"),
        (b'{"args":{},"name":"x","ph":"X","pid":1,"tid":1,"ts":5}', "unknown_phase"),
        (b'{"args":{},"name":"\xff\xfe","ph":"B","pid":1,"tid":1,"ts":5}', "malformed"),
        (b'{"args":{},"name":5}', "malformed"),
        (b'{"args":{},"name":"x","ph":"B","pid":1,"tid":%d,"ts":5}' % 2**63, "bad_id"),
        (b'{"args":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}", "malformed"),
    ],
)
def test_bad_record_costs_only_itself(bad: bytes, reason: str) -> None:
    # GIVEN a good pair around the bad record
    first, last = text([record("B", "a", 1)])[1:-2], text([record("E", "a", 9)])[1:-2]
    found = decoder(b"[" + first + b"," + bad + b"," + last + b"]")
    assert [row[:3] for row in rows(found)] == [("/w/train.py(3): a", 1000, 9000)]
    assert found.findings.lost == {reason: 1}


def test_names_that_look_like_the_boundary_between_records() -> None:
    name = 'x"},{"args":{"filename":"'
    pair = [record("B", name, 1), record("E", name, 2)]
    assert rows(decoder(text(pair), slice_bytes=7))[0][0] == f"/w/train.py(3): {name}"


def test_unmatched_ends_are_counted() -> None:
    found = decoder(text([record("E", "a", 1), record("B", "a", 2), record("E", "b", 3), record("E", "a", 4)]))
    assert len(rows(found)) == 1
    assert found.findings.counted == {"unmatched_end": 2}


def test_stack_without_bottom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "STACK_DEPTH_MAX", 10)
    found = decoder(text([record("B", f"f{number}", number) for number in range(25)]))
    assert len(rows(found)) == 10
    assert found.findings.lost == {"too_deep": 15}


def test_threads_without_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRACKS_MAX", 10)
    with pytest.raises(Exhausted):
        rows(decoder(text([record("B", "f", number, tid=number) for number in range(25)])))


def test_names_without_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DICTIONARY_BYTES_MAX", 1000)
    with pytest.raises(Exhausted):
        rows(decoder(text([record("B", f"f{number}", number) for number in range(100)])))


def test_record_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EVENT_BYTES_MAX", 5000)
    found = decoder(text([record("B", "a", 1), record("B", "x" * 20_000, 2)]), slice_bytes=1000)
    assert [row[0][-1] for row in rows(found)] == ["a"]
    assert found.findings.lost == {"too_large": 1}


@pytest.mark.parametrize("trailer", [b'\n{"profd_samples":{"pid":"x"}}\n', b'\n{"profd_samples":\xff', b"\n{}\n\n"])
def test_broken_anchor(trailer: bytes) -> None:
    assert len(rows(decoder(text(SIMPLE) + trailer))) >= 2


@given(st.binary(max_size=300))
def test_garbage_raises_nothing_but_bad_trace(raw: bytes) -> None:
    for candidate in (raw, b"[" + raw):
        try:
            rows(decoder(candidate))
        except BadTrace:
            assert not candidate.lstrip().startswith(b"[")


# --- the twin: samples -> py-spy's merging -> rows, against one look at the samples

STACKS = st.lists(st.sampled_from("abc"), min_size=0, max_size=4)


@given(st.lists(st.tuples(st.integers(0, 2), STACKS), min_size=1, max_size=40), st.sampled_from([1, 64, 1 << 20]))
def test_agrees_with_the_samples_themselves(taken: list[tuple[int, list[str]]], slice_bytes: int) -> None:
    # GIVEN samples (thread, stack), one a millisecond, and py-spy's merging of them (src/chrometrace.rs)
    records: list[dict[str, Any]] = []
    last: dict[int, list[str]] = {}
    for ts, (thread, stack) in enumerate(taken):
        before = last.get(thread, [])
        same = next((i for i, (a, b) in enumerate(zip(before, stack, strict=False)) if a != b), None)
        same = min(len(before), len(stack)) if same is None else same
        records += [record("E", name, ts * 1000, tid=thread) for name in reversed(before[same:])]
        records += [record("B", name, ts * 1000, tid=thread) for name in stack[same:]]
        last[thread] = stack
    end = len(taken) * 1000
    for thread, stack in last.items():
        records += [record("E", name, end, tid=thread) for name in reversed(stack)]

    # WHEN they are decoded
    found = rows(decoder(text(records), slice_bytes=slice_bytes))

    # THEN at every sample's time exactly its stack is open, and of equal intervals the outer comes first
    threads = list(dict.fromkeys(entry["tid"] for entry in records))
    for ts, (thread, stack) in enumerate(taken):
        if thread not in threads:
            assert stack == []
            continue
        track = threads.index(thread)
        now = ts * 1_000_000
        opened = [
            (start, -finish, place, name[-1])
            for place, (name, start, finish, row_track, _) in enumerate(found)
            if row_track == track and start <= now < finish
        ]
        assert [name for *_, name in sorted(opened)] == stack


def test_columns_have_the_types_of_the_schema() -> None:
    batch = next(decoder(text(SIMPLE)).batches())
    columns = batch.events.columns
    assert columns["start"].dtype == np.int64
    assert columns["name"].dtype == np.int32
    assert columns["kind"].dtype == np.uint8
    assert all(values.flags.c_contiguous for values in columns.values())
