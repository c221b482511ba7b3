"""The native decoder against the slow obvious one, on any events in slices of any size."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.chrome import CANONICAL, Twin, as_twin, flows, rows

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_NUMBER = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
_JSON = st.recursive(
    st.none() | st.booleans() | _NUMBER | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)
_KEYS = st.sampled_from([*CANONICAL.values(), "bytes", "Bytes", "external id", "Input Dims", "Call stack", "@id", "a"])
_ARGS = st.dictionaries(_KEYS | _TEXT, _JSON, max_size=5)
_ID = st.integers(0, 2) | st.sampled_from(["0", "1", "stream 7"])
# Whole microseconds, with three decimals, with more, and with an exponent.
_TIME = st.builds(
    lambda digits, places: Decimal(digits).scaleb(-places),
    st.integers(-(10**8), 10**15),
    st.integers(0, 6),
)


def _dumps(value: Any) -> str:
    """JSON with Decimals exactly as they are."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {_dumps(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",\n ".join(map(_dumps, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


_EVENT = st.fixed_dictionaries(
    {"ph": st.sampled_from([*"XXXBEBEbebeniICPstf", "M", "Q"]), "ts": _TIME},
    optional={
        "name": st.sampled_from(["f", "g", "näme\n"]),
        "cat": st.sampled_from(["cpu_op", "kernel", "odd"]),
        "pid": _ID,
        "tid": _ID,
        "dur": _TIME,
        "id": _ID,
        "bp": st.just("e"),
        "s": st.sampled_from(["g", "t"]),
        "tts": st.integers(0, 10),
        "args": _ARGS,
    },
)


def _without_flow_extras(events: list[Any]) -> list[Any]:
    """Members that flow records do not keep, taken away (and counted by the decoder, see its warnings)."""
    keep = {"ph", "ts", "name", "cat", "pid", "tid", "id", "bp"}
    return [
        {key: value for key, value in event.items() if key in keep} if event["ph"] in "stf" else event
        for event in events
    ]


@given(st.lists(_EVENT, max_size=12), st.integers(1, 200), st.sampled_from([None, 0, 10**18]), st.booleans())
def test_same_rows_flows_and_losses(events: list[Any], slice_bytes: int, base: int | None, last: bool) -> None:
    events = _without_flow_extras(events)
    trace = {"traceEvents": events}
    beside = {} if base is None else {"baseTimeNanoseconds": base}
    text = _dumps(trace | beside if last else beside | trace)
    twin = Twin(base or 0).decode(events)

    found, decoder = rows(text, slice_bytes)
    assert sorted(map(repr, map(_plain, found))) == sorted(repr(_normal(row)) for row in twin.rows)
    assert [_normal(flow) for flow in flows(text, slice_bytes)] == [_normal(flow) for flow in twin.flows]
    assert decoder.findings.lost == dict(twin.lost)
    assert decoder.findings.truncated == ""


def _plain(row: dict[str, Any]) -> Any:
    return _normal(as_twin(row))


def _normal(value: Any) -> Any:
    """Equal JSON numbers become equal; the order of keys goes."""
    if isinstance(value, dict):
        return sorted((key, _normal(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return [_normal(item) for item in value]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return value
    return float(value)
