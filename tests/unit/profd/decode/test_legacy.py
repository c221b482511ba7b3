"""The dialect torch-legacy: rules, agreement with torch's own parser retold, and hostile text."""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profd import limits
from profd.decode.legacy import DROPPED, LegacyDecoder
from profd.errors import BadTrace, Exhausted
from profd.events import DeviceType, Kind

Row = dict[str, Any]


def begin(name: str, ts: float, tid: int = 1, **args: Any) -> Row:
    return {"ph": "B", "name": name, "ts": ts, "pid": 1, "tid": tid, "args": args}


def end(name: str, ts: float, tid: int = 1, **args: Any) -> Row:
    return begin(name, ts, tid, **args) | {"ph": "E"}


def memory(ts: float, size: int, tid: int = 1, **args: Any) -> Row:
    return begin("[memory]", ts, tid, Bytes=size, **args) | {"ph": "i"}


def decode_text(raw: bytes) -> tuple[LegacyDecoder, list[Row]]:
    decoder = LegacyDecoder(io.BytesIO(raw), len(raw))
    rows: list[Row] = []
    for batch in decoder.batches():
        columns = {name: values.tolist() for name, values in batch.events.columns.items()}
        rows += [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        for (key, _), arg in batch.events.args.items():
            for row, value in zip(arg.rows.tolist(), arg.values.tolist(), strict=True):
                rows[row][key] = json.loads(arg.dictionary.values[value]) if arg.dictionary else value
    names = decoder.dictionaries["name"].values
    for row in rows:
        row["name"] = names[row["name"]]
    return decoder, rows


def decode(records: list[Any], **top_level: Any) -> tuple[LegacyDecoder, list[Row]]:
    return decode_text(json.dumps({**top_level, "traceEvents": records}).encode())


def spans(rows: list[Row]) -> list[tuple[str, int, int]]:
    return [(row["name"], row["start"], row["end"]) for row in rows]


def test_wrappers_that_say_the_same_twice_are_one() -> None:
    decoder, rows = decode(
        [
            begin("mul", 1),
            begin("mul", 2),
            begin("mul", 3),
            begin("add", 4),
            begin("mul", 5),
            *(end("mul", 6), end("add", 7), end("mul", 8), end("mul", 9), end("mul", 10)),
            *(begin("mul", 11), end("mul", 12), begin("mul", 13), end("mul", 14)),
        ]
    )
    assert spans(rows) == [
        ("mul", 1000, 10_000),
        ("add", 4000, 7000),
        ("mul", 5000, 6000),
        ("mul", 11_000, 12_000),
        ("mul", 13_000, 14_000),
    ]
    assert decoder.findings.counted == {"duplicate_wrapper": 2}
    assert decoder.findings.lost == {}


def test_wrappers_of_different_nodes_are_different() -> None:
    _, rows = decode([begin("a", 1, node_id=1), begin("a", 2, node_id=2), end("a", 3), end("a", 4)])
    assert [row["node_id"] for row in rows] == [1, 2]


def test_events_of_another_node_are_on_a_thread_of_their_own() -> None:
    decoder, rows = decode(
        [
            begin("rpc", 1, node_id=0),
            begin("mul", 2, node_id=1),
            begin("add", 3, node_id=0),
            *(end(name, 4 + at, node_id=node) for at, (name, node) in enumerate([("add", 0), ("mul", 1), ("rpc", 0)])),
        ]
    )
    assert [(row["name"], decoder.tracks.threads[row["thread"]]) for row in rows] == [
        ("rpc", {"id": 1, "process": 0, "node": 0}),
        ("mul", {"id": "node_id:1, thread_id:1", "process": 0, "node": 1}),
        ("add", {"id": 1, "process": 0, "node": 0}),
    ]


def test_remote_events_are_told_by_their_end_too() -> None:
    decoder, rows = decode(
        [
            begin("a", 1, handle=1, node_id=3),
            end("a", 2, handle=1, node_id=3, is_remote=True),
            begin("b", 3, handle=2, node_id=3),
            end("b", 4, handle=2, node_id=3),
        ]
    )
    assert [decoder.tracks.threads[row["thread"]]["id"] for row in rows] == ["node_id:3, thread_id:1", 1]


@pytest.mark.parametrize("node", [-1, True, "x", 1.5, None, {}])
def test_what_is_no_node(node: Any) -> None:
    decoder, _ = decode([begin("a", 1, node_id=node), end("a", 2)])
    assert decoder.tracks.threads == [{"id": 1, "process": 0}]


def test_utility_operators_are_dropped_and_are_nothing_in_between() -> None:
    decoder, rows = decode(
        [
            begin("a", 1),
            *(part for name in sorted(DROPPED) for part in (begin(name, 2), end(name, 2))),
            begin("a", 3),
            end("a", 4),
            end("a", 5),
        ]
    )
    assert spans(rows) == [("a", 1000, 5000)]
    assert decoder.findings.counted == {"duplicate_wrapper": 1, "utility_op": len(DROPPED)}


@pytest.mark.parametrize("how", [{}, {"handle": 7}])
def test_an_event_that_ends_on_another_thread_is_asynchronous(how: dict[str, Any]) -> None:
    _, rows = decode([begin("wait", 1, **how), begin("op", 2, 2), end("wait", 3, 2, **how), end("op", 4, 2)])
    assert spans(rows) == [("wait", 1000, 3000), ("op", 2000, 4000)]
    assert [(chr(row["phase"]), row["is_async"]) for row in rows] == [("b", 1), ("B", 0)]
    assert [row["thread"] for row in rows] == [0, 1]


def test_handles_pair_what_names_cannot() -> None:
    _, rows = decode([begin("a", 1, handle=1), begin("b", 1, handle=2), end("", 5, handle=1), end("", 9, handle=2)])
    assert spans(rows) == [("b", 1000, 9000), ("a", 1000, 5000)]


def test_a_handle_that_is_used_again_before_its_end() -> None:
    decoder, rows = decode([begin("a", 1, handle=1), begin("b", 2, handle=1), end("b", 3, handle=1)])
    assert spans(rows) == [("b", 2000, 3000)]
    assert decoder.findings.lost == {"unmatched_begin": 1}


def test_memory_goes_to_every_open_event_of_the_thread() -> None:
    _, rows = decode(
        [
            begin("outer", 1),
            memory(2, 100),
            begin("inner", 3),
            memory(4, 20),
            memory(4, 7, **{"Device Type": 1, "Device Id": 3}),
            begin("other thread", 4, 2),
            end("other thread", 5, 2),
            end("inner", 6),
            memory(7, -100),
            end("outer", 8),
            memory(9, 1),
        ]
    )
    use = {row["name"]: (row.get("cpu_memory_usage"), row.get("cuda_memory_usage")) for row in rows}
    assert use == {"outer": (20, 7), "inner": (20, 7), "other thread": (None, None), "[memory]": (None, None)}
    marks = [row for row in rows if row["kind"] == Kind.MEMORY]
    assert [row["bytes"] for row in marks] == [100, 20, 7, -100, 1]
    assert (marks[2]["device_type"], marks[2]["device"]) == (DeviceType.CUDA, 3)


def test_arguments_times_and_names() -> None:
    frames = ["torch/autograd/__init__.py(99): backward", "train.py(3): step"]
    found: dict[str, Any] = {
        "Sequence number": 5,
        "fwd_thread": 2,
        "shapes": [[2, 3]],
        "stack": frames,
        "flops": 12,
        "@x": None,
    }
    decoder, rows = decode(
        [
            {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "main"}},
            begin("a", 1.0015, **found),
            end("a", 2),
            {"ph": "X", "name": "x", "ts": 3, "dur": 0.5, "pid": 1, "tid": 1, "cat": "Function"},
        ],
        baseTimeNanoseconds=10**18,
        schemaVersion=1,
    )
    first, second = rows
    assert (first["start"], first["end"]) == (10**18 + 1001, 10**18 + 2000)
    assert (first["sequence"], first["fwd_thread"], first["flops"], first["@@x"]) == (5, 2, 12, None)
    assert decoder.dictionaries["stack"].values == ["train.py(3): step"]
    assert decoder.dictionaries["inputs"].values == ['{"Input Dims": [[2, 3]]}']
    assert (second["start"], second["end"]) == (10**18 + 3000, 10**18 + 3500)
    assert decoder.tracks.threads[0]["name"] == "main"
    assert decoder.findings.top_level["schemaVersion"] == 1


NAMES = st.sampled_from(["a", "b", "aten::is_leaf"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("B"), st.integers(1, 6), NAMES, st.integers(1, 2)),
        st.tuples(st.just("E"), st.integers(1, 6), NAMES, st.integers(1, 2)),
        st.tuples(st.just("M"), st.integers(-50, 50), st.just(""), st.integers(1, 2)),
    ),
    max_size=40,
)


def reference(steps: list[tuple[str, int, str, int]]) -> Counter[tuple[Any, ...]]:
    """What torch's parse_legacy_records makes of lists per thread, each end on the thread of its begin."""
    lists: dict[int, list[tuple[int, str, int, str, int]]] = {1: [], 2: []}
    begun: dict[int, tuple[int, str]] = {}  # handle -> thread, name
    for time, (kind, number, name, thread) in enumerate(steps):
        home, said = thread, name
        if kind == "B":
            begun[number] = (thread, name)
        elif kind == "E":
            home, said = begun.pop(number)
        lists[home].append((time, kind, number, said, thread))
    found: Counter[tuple[Any, ...]] = Counter()
    for records in lists.values():
        starts: dict[int, tuple[int, str, int]] = {}
        allocated: dict[int, int] = {}
        filtered: set[int] = set()
        before: tuple[str, str] | None = None
        for time, kind, number, name, thread in records:
            if kind != "M" and (name in DROPPED or number in filtered):
                filtered.add(number)
                continue
            if kind == "B":
                if before == ("B", name):
                    filtered.add(number)
                    continue
                starts[number] = (time, name, thread)
                allocated[number] = 0
            elif kind == "E":
                start, name, where = starts.pop(number)
                found[name, start * 1000, time * 1000, allocated.pop(number), where != thread] += 1
            else:
                allocated = {handle: size + number for handle, size in allocated.items()}
            before = (kind, name)
    return found


@given(steps=STEPS)
@settings(max_examples=200, deadline=None)
def test_as_torch_itself_parsed(steps: list[tuple[str, int, str, int]]) -> None:
    # Handles of torch are used once, and every end has its begin.
    fresh, open_now, clean = 100, {}, []
    for kind, number, name, thread in steps:
        if kind == "B":
            fresh += 1
            open_now.setdefault(number, []).append(fresh)
            clean.append((kind, fresh, name, thread))
        elif kind == "E" and open_now.get(number):
            clean.append((kind, open_now[number].pop(), name, thread))
        elif kind == "M":
            clean.append((kind, number, name, thread))
    make = {"B": begin, "E": end}
    records = [
        memory(time, number, thread) if kind == "M" else make[kind](name, time, thread, handle=number)
        for time, (kind, number, name, thread) in enumerate(clean)
    ]
    _, rows = decode(records)
    assert Counter(
        (row["name"], row["start"], row["end"], row.get("cpu_memory_usage", 0), chr(row["phase"]) == "b")
        for row in rows
        if row["kind"] == Kind.CPU_OP
    ) == reference(clean)


def test_what_cannot_be_read_is_counted() -> None:
    huge = 10**400
    decoder, rows = decode(
        [
            *(7, None, [1]),
            begin("a", 1, deep=1),
            end("nothing", 2),
            {"ph": "?"},
            {"ph": "B", "name": "no time", "ts": "x"},
            {"ph": "X", "name": "no length", "ts": 1, "dur": []},
            {"ph": "B", "name": ["x"], "ts": huge, "pid": {"a": 1}, "tid": huge},
            {"ph": "B", "name": "\ud800", "ts": 3, "pid": huge, "tid": "\ud800"},
            {"ph": "E", "ts": 2.5, "pid": huge, "tid": "\ud800"},
            {"ph": "E", "ts": 4, "pid": huge, "tid": "\ud800"},
        ]
    )
    assert decoder.findings.lost == {
        "malformed": 3,
        "unmatched_end": 2,
        "unknown_phase": 1,
        "bad_time": 3,
        "unmatched_begin": 1,
    }
    assert spans(rows) == [("?", 3000, 4000)]


WHOLE = json.dumps({"schemaVersion": 1, "traceEvents": [begin("a", 1), end("a", 2), begin("b", 3), end("b", 4)]})


@pytest.mark.parametrize(
    "raw",
    [WHOLE.encode(), b"\xef\xbb\xbf" + WHOLE.encode(), gzip.compress(WHOLE.encode(), mtime=0)],
    ids=["plain", "byte order mark", "gzip"],  # every test process must name them alike
)
def test_encodings(raw: bytes) -> None:
    decoder, rows = decode_text(raw)
    assert (len(rows), decoder.findings.truncated) == (2, "")


@pytest.mark.parametrize("length", range(1, len(WHOLE), 3))
def test_text_that_is_cut_off(length: int) -> None:
    try:
        decoder, rows = decode_text(WHOLE[:length].encode())
    except BadTrace:
        assert WHOLE[:length].count("}, {") == 0
        return
    assert len(rows) <= 2
    whole = WHOLE[:length].rstrip().endswith(("}", "},"))  # an array may lack its bracket
    assert whole or decoder.findings.truncated


@given(st.binary(max_size=200))
def test_any_bytes(raw: bytes) -> None:
    try:
        decode_text(b"[" + raw)
    except BadTrace:
        return


def test_numbers_that_explode() -> None:
    for number in ("1e999999999", "1e999999", "-1e999999", "9" * 5000, "NaN", "1e-999999"):
        text = f'[{{"ph":"B","name":"a","ts":{number}}},{{"ph":"E","name":"a","ts":9,"args":{{"x":1e999}}}}]'
        try:
            decode_text(text.encode())
        except BadTrace:
            continue


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LEGACY_TEXT_BYTES_MAX", 50)
    with pytest.raises(Exhausted, match="dialect"):
        decode_text(WHOLE.encode())
    monkeypatch.undo()
    monkeypatch.setattr(limits, "TRACKS_MAX", 2)
    with pytest.raises(Exhausted, match="threads"):
        decode([begin("a", 1, tid) for tid in range(4)])
    monkeypatch.undo()
    monkeypatch.setattr(limits, "ARG_KEYS_MAX", 1)
    decoder, _ = decode([begin("a", 1, x=1, y=2), end("a", 2)])
    assert decoder.findings.counted == {"arguments_dropped": 1}


def test_deep_values_cost_themselves() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    text = '[{"ph":"X","name":"a","ts":1,"dur":1,"pid":1,"tid":1},{"ph":"B","ts":2,"args":{"x":' + deep + "}}]"
    decoder, rows = decode_text(text.encode())
    assert spans(rows) == [("a", 1000, 2000)]
    assert decoder.findings.truncated


def test_many_events_on_many_threads_in_linear_time() -> None:
    """Ends that fit nothing, against begins on another thread: a search through all would take hours."""
    records = [begin(f"n{number}", 1) for number in range(20_000)] + [end("none", 2, 2)] * 20_000
    decoder, _ = decode(records)
    assert decoder.findings.lost == {"unmatched_end": 20_000, "unmatched_begin": 20_000}
