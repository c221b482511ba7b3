"""Chrome traces by hand: what each phase, argument, id and time becomes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from profd.errors import BadTrace
from profd.events import DeviceType, Kind

from tests.support.chrome import arguments, decode, flows, members, rows


def event(**fields: Any) -> dict[str, Any]:
    return {"ph": "X", "name": "e", "cat": "cpu_op", "pid": 1, "tid": 2, "ts": 1, "dur": 2, **fields}


def one(**fields: Any) -> dict[str, Any]:
    found, _ = rows(json.dumps({"traceEvents": [event(**fields)]}))
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    ("ts", "ns"),
    [
        ("0", 0),
        ("1", 1000),
        ("1.5", 1500),
        ("1712195495519689.044", 1712195495519689044),
        ("-2.25", -2250),
        ("0.0005", 0),  # halves go to the even nanosecond
        ("0.0015", 2),
        ("-0.0005", 0),
        ("-0.0015", -2),
        ("0.00050000001", 0),  # below a femtosecond nothing counts
        ("0.000500001", 1),
        ("1e3", 1_000_000),
        ("1.5E-3", 2),
        ("12345e-4", 1234),
        ("9223372036854775.805", 9223372036854775805),
        ('"7.5"', 7500),
    ],
)
def test_times_are_exact(ts: str, ns: int) -> None:
    found, _ = rows(f'[{{"ph":"X","ts":{ts},"dur":0}}]')
    assert [row["start"] for row in found] == [ns]


@pytest.mark.parametrize(
    "ts", ["NaN", "-Infinity", "inf", "1e300", "9223372036854775808", "null", '"soon"', "[1]", "true"]
)
@pytest.mark.parametrize("field", ["ts", "dur"])
def test_times_that_are_none_lose_the_event(ts: str, field: str) -> None:
    other = "dur" if field == "ts" else "ts"
    found, decoder = rows(f'[{{"ph":"X","{field}":{ts},"{other}":1}},{{"ph":"X","ts":1,"dur":1}}]')
    assert len(found) == 1
    assert decoder.findings.lost == {"bad_time": 1}


@pytest.mark.parametrize("last", [False, True])
def test_base_time_counts_wherever_it_stands(last: bool) -> None:
    base = {"baseTimeNanoseconds": 1_790_857_026_000_000_000}
    events = {"traceEvents": [event(ts=701805216966.892, dur=0.5)]}
    found, decoder = rows(json.dumps(events | base if last else base | events), slice_bytes=16)
    assert (found[0]["start"], found[0]["end"]) == (1791558831216966892, 1791558831216967392)
    assert decoder.base_ns == base["baseTimeNanoseconds"]


def test_an_end_before_the_start_is_kept_and_counted() -> None:
    found, decoder = rows(json.dumps([event(ts=5, dur=-3)]))
    assert (found[0]["start"], found[0]["end"]) == (5000, 5000)
    assert decoder.findings.counted == {"end_before_start": 1}
    assert decoder.findings.lost == {}


def test_without_a_duration_no_end_was_seen() -> None:
    found, _ = rows('[{"ph":"X","ts":1}]')
    assert found[0]["end"] is None


def test_begin_and_end_are_one_row() -> None:
    found, decoder = rows(
        json.dumps(
            [
                event(ph="B", name="outer", ts=1, dur=0, args={"a": 1, "keep": "x"}),
                event(ph="B", name="inner", ts=2),
                event(ph="B", name="other thread", tid=3, ts=2),
                {"ph": "E", "ts": 3, "pid": 1, "tid": 2, "args": {"stream": 7}},
                {"ph": "E", "ts": 4, "pid": 1, "tid": 2, "args": {"a": 1.5}},
                {"ph": "E", "ts": 5, "pid": 1, "tid": 2},
            ]
        )
    )
    assert [(row["name"], row["start"], row["end"]) for row in found] == [
        ("inner", 2000, 3000),
        ("outer", 1000, 4000),
        ("other thread", 2000, None),
    ]
    assert found[0]["stream"] == 7
    assert arguments(found[1]) == {"a": 1.5, "keep": "x"}
    assert decoder.findings.lost == {"unmatched_end": 1}


def test_async_events_pair_by_category_id_and_name() -> None:
    common = {"cat": "c", "id": "0x1", "pid": 1}
    found, decoder = rows(
        json.dumps(
            [
                {"ph": "b", "name": "n", "ts": 1, "tid": 1, **common},
                {"ph": "b", "name": "m", "ts": 2, "tid": 1, **common},
                {"ph": "n", "name": "n", "ts": 3, "tid": 1, **common},
                {"ph": "e", "name": "n", "ts": 4, "tid": 9, "tts": 5, **common},
                {"ph": "e", "name": "n", "ts": 5, "tid": 9, **common},
            ]
        )
    )
    assert [(row["phase"], row["name"], row["end"]) for row in found] == [
        ("n", "n", 3000),
        ("b", "n", 4000),
        ("b", "m", None),
    ]
    assert members(found[1]) == {"id": "0x1", "end.tts": 5, "end.pid": 1, "end.tid": 9}
    assert decoder.findings.lost == {"unmatched_end": 1}


def test_instants_counters_and_samples() -> None:
    found, _ = rows(
        json.dumps(
            [
                {"ph": "i", "s": "g", "name": "mark", "ts": 1},
                {"ph": "I", "name": "old", "ts": 2},
                {"ph": "C", "name": "one", "ts": 3, "args": {"v": 2.5}},
                {"ph": "C", "name": "two", "ts": 4, "args": {"v": 1, "w": 2}},
                {"ph": "P", "name": "s", "ts": 5},
            ]
        )
    )
    assert [row["kind"] for row in found] == [Kind.INSTANT, Kind.INSTANT, Kind.COUNTER, Kind.COUNTER, Kind.SAMPLE]
    assert all(row["end"] == row["start"] for row in found)
    assert members(found[0]) == {"s": "g"}
    assert found[2]["value"] == 2.5
    assert found[3]["value"] != found[3]["value"]  # two series: no single value


def test_flows_are_no_events() -> None:
    text = json.dumps(
        [
            {"ph": "s", "id": 5, "pid": 1, "tid": 2, "ts": 1, "cat": "ac2g", "name": "ac2g"},
            {"ph": "t", "id": "5", "pid": 1, "tid": 2, "ts": 2},
            {"ph": "f", "id2": {"local": "0x1"}, "pid": "p", "tid": "t", "ts": 3, "bp": "e"},
            {"ph": "f", "id": 5, "ts": "never"},
        ]
    )
    found = flows(text)
    assert [(flow["phase"], flow["id"], flow["enclosing"], flow["time"]) for flow in found] == [
        ("s", 5, False, 1000),
        ("t", "5", False, 2000),
        ("f", {"id2": {"local": "0x1"}}, True, 3000),
    ]
    assert found[2]["place"] == ("p", "t")
    assert decode(text)[1].findings.lost == {"bad_flow_time": 1}


def test_metadata_names_tracks() -> None:
    _, decoder = rows(
        json.dumps(
            [
                event(pid=7, tid="x"),
                {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "old"}},
                {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "python"}},
                {"ph": "M", "name": "process_labels", "pid": 0, "args": {"labels": "GPU 0"}},
                {"ph": "M", "name": "thread_name", "pid": 7, "tid": "x", "args": {"name": "main"}},
                {"ph": "M", "name": "thread_sort_index", "pid": 7, "tid": "x", "args": {"sort_index": -1}},
                {"ph": "M", "name": "num_cpus", "pid": 7, "args": {"number": 4}},
            ]
        )
    )
    python, gpu = decoder.tracks.processes
    assert (python["id"], python["name"]) == (7, "python")
    assert python["metadata"][0]["args"] == {"number": 4}
    assert gpu == {"id": 0, "labels": "GPU 0"}
    assert decoder.tracks.threads == [{"id": "x", "process": 0, "name": "main", "sort_index": -1}]


def test_numbers_and_strings_are_different_ids() -> None:
    found, decoder = rows(json.dumps([event(tid=7), event(tid="7"), event(tid=7), event(pid="Spans", tid=-1)]))
    assert [row["tid"] for row in found] == [7, "7", 7, -1]
    assert len(decoder.tracks.threads) == 3
    assert len({row["process"] for row in found}) == 2


def test_well_known_integers_live_in_columns_only() -> None:
    args = {
        "External id": 1, "correlation": 2, "stream": 3, "device": 0, "context": 1,
        "Sequence number": 4, "Fwd thread id": 5, "bytes": 6,
    }  # fmt: skip
    row = one(cat="kernel", args=args)
    assert row["args"] == {}
    assert (row["external"], row["correlation"], row["bytes"]) == (1, 2, 6)
    assert arguments(row) == args


def test_aliases_fill_the_column_and_stay() -> None:
    row = one(args={"external id": 3})
    assert row["external"] == 3
    assert row["args"] == {("external id", "int"): 3}
    both = one(args={"External id": 1, "external id": 3})
    assert both["external"] == 1
    assert both["args"] == {("external id", "int"): 3, ("External id", "int"): 1}


def test_a_well_known_key_that_is_no_integer_is_an_argument() -> None:
    row = one(cat="cuda_runtime", args={"stream": "0x0", "correlation": 1.5})
    assert row["args"] == {("stream", "str"): "0x0", ("correlation", "float"): 1.5}
    assert "stream" not in row


def test_memory_events() -> None:
    row = one(
        ph="i",
        name="[memory]",
        cat="cpu_instant_event",
        dur=None,
        args={"Bytes": -4, "Device Type": 1, "Device Id": 0, "Addr": 99},
    )
    assert (row["kind"], row["device_type"]) == (Kind.MEMORY, DeviceType.CUDA)
    assert (row["bytes"], row["ptr"], row["device"]) == (-4, 99, 0)
    on_host = one(ph="i", name="[memory]", args={"Bytes": 4, "Device Type": 0})
    assert on_host["device_type"] == DeviceType.CPU


def test_inputs_are_one_string() -> None:
    inputs = {"Input Dims": [[2, 3], []], "Input type": ["float", ""], "Concrete Inputs": ["", "1"]}
    row = one(args={**inputs, "Call stack": "a;b", "Module Hierarchy": "M"})
    assert json.loads(row["inputs"]) == inputs
    assert (row["stack"], row["module"]) == ("a;b", "M")
    assert row["args"] == {}


def test_other_arguments_keep_their_type_and_text() -> None:
    text = (
        '{"i":1,"f":1.5,"s":"x","n":null,"b":true,"l":[1, 2],'
        '"big":123456789012345678901234567890,"min":-9223372036854775808}'
    )
    found, _ = rows(f'[{{"ph":"X","ts":1,"dur":1,"args":{text}}}]')
    assert found[0]["args"] == {
        ("i", "int"): 1,
        ("f", "float"): 1.5,
        ("s", "str"): "x",
        ("n", "json"): "null",
        ("b", "json"): "true",
        ("l", "json"): "[1, 2]",
        ("big", "json"): "123456789012345678901234567890",
        ("min", "json"): "-9223372036854775808",
    }


def test_repeated_members_the_last_one_counts() -> None:
    found, _ = rows(
        '[{"ph":"X","ph":"X","ts":9,"ts":1,"dur":1,"q":1,"q":2,'
        '"args":{"gone":1},"args":{"k":1,"k":"two","stream":7,"stream":"s","Input Dims":1,"Input Dims":[2]}}]'
    )
    assert found[0]["start"] == 1000
    assert arguments(found[0]) == {"k": "two", "stream": "s", "Input Dims": [2]}
    assert members(found[0]) == {"q": 2}


def test_keys_that_look_like_ours_stay_apart() -> None:
    row = one(id=4, args={"@id": 5, "@@x": 6, "id": 7})
    assert arguments(row) == {"@id": 5, "@@x": 6, "id": 7}
    assert members(row) == {"id": 4}


def test_strings_of_any_bytes() -> None:
    found, _ = rows(
        b'[{"ph":"X","ts":1,"dur":1,"name":"\xff\xc3\xa9\x01\\ud83d\\ude00\\ud83d C:\\Users",'
        b'"args":{"j":["\xff\x02\\q"],"k":NaN}}]'
    )
    assert found[0]["name"] == "\ufffdé\x01😀\ufffd C:\\Users"
    assert arguments(found[0]) == {"j": ["\ufffd\x02\\q"], "k": "NaN"}


def test_names_that_are_no_strings() -> None:
    found, _ = rows('[{"ph":"X","ts":1,"dur":1,"name":5,"cat":[1],"pid":1.5,"tid":null}]')
    assert (found[0]["name"], found[0]["cat"], found[0]["pid"], found[0]["tid"]) == ("5", "[1]", 1.5, None)


@pytest.mark.parametrize(
    ("cat", "kind", "device"),
    [
        ("cpu_op", Kind.CPU_OP, DeviceType.CPU),
        ("Operator", Kind.CPU_OP, DeviceType.CPU),
        ("user_annotation", Kind.USER_ANNOTATION, DeviceType.CPU),
        ("python_function", Kind.PYTHON_FUNCTION, DeviceType.CPU),
        ("cuda_runtime", Kind.RUNTIME, DeviceType.CPU),
        ("Runtime", Kind.RUNTIME, DeviceType.CPU),
        ("cuda_driver", Kind.DRIVER, DeviceType.CPU),
        ("kernel", Kind.KERNEL, DeviceType.CUDA),
        ("Kernel", Kind.KERNEL, DeviceType.CUDA),
        ("gpu_memcpy", Kind.MEMCPY, DeviceType.CUDA),
        ("Memset", Kind.MEMSET, DeviceType.CUDA),
        ("cuda_sync", Kind.SYNC, DeviceType.CUDA),
        ("gpu_user_annotation", Kind.GPU_USER_ANNOTATION, DeviceType.CUDA),
        ("overhead", Kind.OVERHEAD, DeviceType.CPU),
        ("Trace", Kind.TRACE, DeviceType.CPU),
        ("mtia_runtime", Kind.RUNTIME, DeviceType.CPU),
        ("mtia_ccp_events", Kind.OTHER, DeviceType.MTIA),
        ("never heard of", Kind.OTHER, DeviceType.CPU),
    ],
)
def test_kinds_and_devices_by_category(cat: str, kind: Kind, device: DeviceType) -> None:
    row = one(cat=cat)
    assert (row["kind"], row["device_type"]) == (kind, device)


@pytest.mark.parametrize(
    ("devices", "events", "device"),
    [
        ([{"name": "AMD Instinct MI250X"}], [], DeviceType.HIP),
        ([{"name": "NVIDIA H100"}], [], DeviceType.CUDA),
        ([{"name": "Intel(R) Data Center GPU Max 1550"}], [], DeviceType.XPU),
        ([], [event(cat="cuda_runtime", name="hipLaunchKernel")], DeviceType.HIP),
        ([], [event(cat="xpu_runtime", name="urEnqueue")], DeviceType.XPU),
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_what_device_rows_ran_on(devices: Any, events: Any, device: DeviceType, last: bool) -> None:
    beside = {"deviceProperties": devices}
    trace = {"traceEvents": [*events, event(cat="kernel")]}
    found, _ = rows(json.dumps(trace | beside if last else beside | trace))
    assert found[-1]["device_type"] == device


def test_top_level_keys_are_kept() -> None:
    _, decoder = rows('{"schemaVersion":1,"traceEvents":[],"distributedInfo":{"rank":3},"traceName":"a\\u0001"}')
    assert decoder.findings.top_level == {"schemaVersion": 1, "distributedInfo": {"rank": 3}, "traceName": "a\x01"}


def test_an_open_array_is_whole() -> None:
    for text in ('[{"ph":"X","ts":1,"dur":1}', '[{"ph":"X","ts":1,"dur":1},\n', '\ufeff[{"ph":"X","ts":1,"dur":1}]\n'):
        found, decoder = rows(text)
        assert len(found) == 1
        assert decoder.findings.truncated == ""
        assert decoder.findings.lost == {}


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("hello", 0),
        ('{"traceEvents":[{"ph":"X" "ts":1}]}', 26),
        ('{"a" 1}', 5),
        ('{"a":tru}', 8),
        ("[01]", 2),
        ("", 0),
        ("[" * 100_000, 100_000),
    ],
)
def test_nothing_readable_is_an_error_with_its_offset(text: str, offset: int) -> None:
    with pytest.raises(BadTrace) as raised:
        decode(text)
    assert raised.value.offset == offset
    assert str(offset) in str(raised.value)


def test_what_stands_before_the_fault_is_kept() -> None:
    text = '{"traceEvents":[{"ph":"X","ts":1,"dur":1},{"ph":"X","ts":1,"dur":1} oops]}'
    found, decoder = rows(text)
    assert len(found) == 2
    assert f"byte {text.index('oops')}" in decoder.findings.truncated


def test_events_without_a_known_phase_are_counted() -> None:
    found, decoder = rows('[{"ph":"Q","ts":1},{"ts":1},{"ph":5,"ts":1},{"ph":"XX","ts":1},7,null,"x",[{"ph":"X"}]]')
    assert found == []
    assert decoder.findings.lost == {"unknown_phase": 4, "not_an_event": 4}
