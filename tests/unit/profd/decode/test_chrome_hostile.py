"""Chrome traces that mean harm or are broken: bounded, counted, never a crash."""

from __future__ import annotations

import gzip
import json
import random
import resource
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd import limits
from profd._scan import ChromeScanner
from profd.decode import inflate
from profd.errors import BadTrace

from tests.support.chrome import arguments, as_twin, decode, rows

_TRACE = json.dumps(
    {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}],
        "traceEvents": [
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": 10.5, "dur": 3.25,
             "args": {"External id": 5, "Input Dims": [[1, 2], []], "x": {"y": [None, True, "z\n"]}}},
            {"ph": "B", "name": "b", "pid": 1, "tid": "s", "ts": 11},
            {"ph": "b", "name": "a", "cat": "c", "id": 1, "ts": 12},
            {"ph": "E", "pid": 1, "tid": "s", "ts": 13},
            {"ph": "s", "id": 1, "pid": 1, "tid": 2, "ts": 10.5, "cat": "ac2g", "name": "ac2g"},
            {"ph": "i", "name": "[memory]", "ts": 14, "s": "t", "args": {"Bytes": 1, "Device Type": 1}},
            {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "main é"}},
        ],
        "baseTimeNanoseconds": 1000,
        "traceName": "t",
    }
).encode()  # fmt: skip


def _scanner(**changes: Any) -> ChromeScanner:
    small = {
        "event_bytes": 1000, "depth": 8, "string_bytes": 100, "arg_keys": 4, "dictionary_bytes": 1 << 20,
        "tracks": 100, "open_rows": 100,
    }  # fmt: skip
    return ChromeScanner(**(small | changes))


def _lost(scanner: ChromeScanner, text: str, slice_bytes: int = 1 << 20) -> dict[str, int]:
    data = text.encode()
    for first in range(0, len(data), slice_bytes):
        scanner.feed(data[first : first + slice_bytes], False)
    scanner.feed(b"", True)
    assert scanner.fault == ""
    return scanner.lost


def _survives(data: bytes, slice_bytes: int = 1 << 20) -> None:
    """Decodes to something, or is refused with an offset inside the input."""
    refused = -1
    try:
        batches, decoder = decode(data, slice_bytes)
    except BadTrace as error:
        refused = error.offset
        batches = []
    assert refused <= len(data)
    for batch in batches:
        assert (batch.events.columns["thread"] < len(decoder.tracks.threads)).all()
        assert (batch.events.columns["name"] < len(decoder.dictionaries["name"])).all()


@pytest.mark.parametrize("seed", range(300))
def test_random_damage(seed: int) -> None:
    rnd = random.Random(seed)
    data = bytearray(_TRACE)
    for _ in range(rnd.randrange(1, 6)):
        at = rnd.randrange(len(data))
        choice = rnd.randrange(4)
        if choice == 0:
            data[at] = rnd.randrange(256)
        elif choice == 1:
            del data[at : at + rnd.randrange(1, 30)]
        elif choice == 2:
            data[at:at] = rnd.choice([b'"', b"\\", b"{", b"}", b"[", b"]", b",", b"\x00", b"\xff", b"1e999", b"null"])
        else:
            other = rnd.randrange(len(data))
            data[at:at] = data[other : other + rnd.randrange(60)]
    _survives(bytes(data), rnd.choice([1, 7, 64, 1 << 20]))


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    _survives(data)
    _survives(b'{"traceEvents":[{"ph":"X","ts":1,"dur":1,' + data)


@pytest.mark.parametrize("cut", range(0, len(_TRACE), 7))
def test_cut_anywhere_keeps_what_was_whole(cut: int) -> None:
    whole, _ = rows(_TRACE)
    if cut < _TRACE.index(b'}, {"ph": "B"'):
        with pytest.raises(BadTrace):
            rows(_TRACE[:cut])
        return
    found, decoder = rows(_TRACE[:cut])
    assert decoder.findings.truncated
    assert 0 < len(found) <= len(whole)


def test_slices_of_any_size_give_the_same() -> None:
    expected = [as_twin(row) for row in rows(_TRACE)[0]]
    for slice_bytes in (1, 2, 3, 17, 100):
        assert [as_twin(row) for row in rows(_TRACE, slice_bytes)[0]] == expected


@pytest.mark.parametrize("nest", ["[", '{"a":'])
def test_a_million_nested(nest: str) -> None:
    deep = nest * 1_000_000
    closed = deep + "1" + ("]" if nest == "[" else "}") * 1_000_000
    found, decoder = rows(f'[{{"ph":"X","ts":1,"args":{{"x":{closed}}}}},{{"ph":"X","ts":2}}]')
    assert [row["start"] for row in found] == [2000]
    assert decoder.findings.lost == {"too_deep": 1}
    found, decoder = rows(f'{{"x":{closed},"traceEvents":[{{"ph":"X","ts":2}}]}}')
    assert len(found) == 1
    assert decoder.findings.warnings
    with pytest.raises(BadTrace):
        decode('{"traceEvents":[{"ph":"X","args":' + deep)


@pytest.mark.parametrize("slice_bytes", [10, 1 << 20])
def test_large_events_and_strings_are_lost_one_by_one(slice_bytes: int) -> None:
    big = json.dumps({"ph": "X", "ts": 1, "args": {f"k{n}": n for n in range(200)}})
    long = json.dumps({"ph": "X", "ts": 1, "name": "n" * 101})
    small = '{"ph":"X","ts":1}'
    scanner = _scanner()
    assert _lost(scanner, f"[{small},{big},{small},{long},{small}]", slice_bytes) == {"too_large": 2}
    assert scanner.rows == 3


def test_arguments_beyond_the_limit_of_keys_share_a_column() -> None:
    scanner = _scanner(arg_keys=2)
    _lost(scanner, '[{"ph":"X","ts":1,"args":{"a":1,"b":2,"c":3,"stream":7,"@e":4,"d":"x\\u0001"}}]')
    taken = scanner.take()
    assert [(key, kind) for _, key, kind, _, _ in taken["args"]] == [("a", "int"), ("b", "int"), ("@extra", "json")]
    strings = dict(taken["arg_strings"])
    assert json.loads(strings[2][0]) == {"c": 3, "@e": 4, "d": "x\x01"}
    assert taken["columns"]["stream"].tolist() == [7]


def test_many_keys_lose_nothing() -> None:
    args = {f"key {n}": n for n in range(limits.ARG_KEYS_MAX + 100)}
    found, _ = rows(json.dumps([{"ph": "X", "ts": 1, "args": args}, {"ph": "X", "ts": 2, "args": args}]))
    assert [arguments(row) for row in found] == [args, args]


def test_full_dictionaries_lose_events_not_memory() -> None:
    scanner = _scanner(dictionary_bytes=5000)
    text = json.dumps([{"ph": "X", "ts": 1, "name": f"name {n}"} for n in range(100)])
    lost = _lost(scanner, text)["dictionary_full"]
    assert 0 < lost < 100
    assert scanner.rows == 100 - lost


def test_too_many_tracks() -> None:
    scanner = _scanner(tracks=10)
    lost = _lost(scanner, json.dumps([{"ph": "X", "ts": 1, "tid": n} for n in range(30)]))
    assert lost == {"too_many_tracks": 30 - scanner.rows}
    assert 0 < scanner.rows <= 10


@pytest.mark.parametrize("phase", ["B", "b"])
def test_begins_that_never_end_are_bounded(phase: str) -> None:
    scanner = _scanner(open_rows=20)
    text = json.dumps([{"ph": phase, "ts": n, "id": n} for n in range(50)])
    assert _lost(scanner, text) == {}
    assert scanner.rows == 50
    assert scanner.counted["too_many_open"] >= 30


def test_ends_of_begins_beyond_the_bound_do_not_end_others() -> None:
    scanner = _scanner(open_rows=2)
    begins = [{"ph": "B", "ts": n, "name": str(n)} for n in range(4)]
    ends = [{"ph": "E", "ts": n} for n in range(10, 14)]
    assert _lost(scanner, json.dumps(begins + ends)) == {"unmatched_end": 2}
    columns = scanner.take()["columns"]
    pairs = sorted(zip(columns["start"].tolist(), columns["end"].tolist(), strict=True))
    assert pairs[:2] == [(0, 13000), (1000, 12000)]


def test_a_large_top_level_member_is_dropped_with_a_warning() -> None:
    scanner = _scanner()
    text = json.dumps({"big": [1] * 1000, "small": 1, "traceEvents": []})
    scanner.feed(text.encode(), True)
    scanner.begin(0, 0)
    scanner.feed(b"", True)
    assert scanner.take()["members"] == [("small", "1")]
    assert scanner.counted["top_level_dropped"] == 1
    assert scanner.done


def test_numbers_beyond_python_and_doubles() -> None:
    digits = "9" * 5000
    text = (
        f'{{"huge":{digits},"far":1e999,"traceEvents":[{{"ph":"X","ts":1,"args":{{"x":[{digits},-1e999,-5]}}}},'
        f'{{"ph":"X","ts":1,"args":{{"x":{digits}}}}},{{"ph":"X","ts":2,"pid":1e999}},'
        f'{{"ph":"M","name":"process_name","pid":1,"args":{{"name":{digits}}}}}]}}'
    )
    found, decoder = rows(text)
    assert decoder.findings.top_level == {"huge": digits, "far": "1e999"}
    assert arguments(found[0])["x"][0] == digits
    assert found[1]["pid"] == "1e999"
    assert decoder.findings.lost == {"too_large": 2}


def test_tracks_that_only_metadata_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRACKS_MAX", 10)
    _, decoder = rows(
        json.dumps([{"ph": "M", "name": "process_name", "pid": n, "args": {"name": "p"}} for n in range(30)])
    )
    assert len(decoder.tracks.processes) == 10
    assert decoder.findings.counted == {"metadata_dropped": 20}


def test_trailing_bytes_are_warned_of() -> None:
    _, decoder = rows('{"traceEvents":[{"ph":"X","ts":1}]} {"traceEvents":[]}')
    assert "ignored" in decoder.findings.warnings[0]


def test_gzip_of_several_members() -> None:
    half = len(_TRACE) // 2
    packed = gzip.compress(_TRACE[:half]) + gzip.compress(_TRACE[half:]) + b"\0\0\0"
    assert len(rows(packed, 64)[0]) == len(rows(_TRACE)[0])


@pytest.mark.parametrize("cut", [1, 8, 9, 30, 150])
def test_cut_gzip_keeps_what_can_be_read(cut: int) -> None:
    events = json.dumps([{"ph": "X", "ts": n, "name": f"n{n * 7919 % 1000}"} for n in range(1000)]).encode()
    found, decoder = rows(gzip.compress(events)[:-cut])
    assert len(found) >= (1000 if cut <= 9 else 500)
    assert "gzip" in decoder.findings.truncated


def test_corrupt_gzip() -> None:
    packed = bytearray(gzip.compress(_TRACE))
    packed[-8] ^= 1  # the checksum
    found, decoder = rows(bytes(packed))
    assert len(found) == 4
    assert "corrupt" in decoder.findings.truncated
    packed[12] ^= 0xFF  # the data
    _survives(bytes(packed))


def test_a_bomb_is_refused_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflate, "_RATIO_FREE_BYTES", 1 << 16)
    packed = gzip.compress(b'[{"ph":"X","ts":1,"dur":1}' + b" " * (1 << 24))
    found, decoder = rows(packed, 1 << 16)
    assert len(found) == 1
    assert "bomb" in decoder.findings.truncated


def test_gzip_beyond_the_absolute_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRACE_INFLATED_BYTES_MAX", 1000)
    _, decoder = rows(gzip.compress(b'[{"ph":"X","ts":1,"dur":1}' + random.Random(1).randbytes(5000).hex().encode()))
    assert "1000 bytes" in decoder.findings.truncated


def test_a_base_of_hundreds_of_millions_of_digits_is_not_written_out() -> None:
    """Where a number is parsed, it may say an exponent instead; 106 bytes took a worker all its CPU time."""
    program = (
        "from profd.decode.chrome import base_ns_of\n"
        "print([base_ns_of(x) for x in ('1e300000000', '-1e300000000', '1e-300000000', '1e18', 'NaN')])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (20, 20)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == f"[0, 0, 0, {10**18}, 0]\n"
