"""What the scanner has learned from the records before never changes what it makes of the next one."""

from __future__ import annotations

import json
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st
from profd.decode.chrome import _scanner
from profd.errors import BadTrace

from tests.support.chrome import arguments, as_twin, rows

_BLANKS = st.sampled_from(["", "", " ", "\n    ", " " * 70])
_NUMBER = st.sampled_from(["1", "12.5", "-0", "0.0005", "1e3", "123456789012345.678", "12345678901234567890.5"])
_KEY = st.sampled_from(["a", "b", "args", "External id", "Input Dims", "Input type", "@a", "k" * 70, r"\u0061"])
_FLAT = _NUMBER | st.sampled_from(['"x"', r'"a\"b"', "null", "true", "NaN", '"[1]"'])
_ARRAY = st.sampled_from(["[]", "[[1, 2], [3]]", "[[1, 2], [4]]", '["]", "x"]', "[1,2]", "{}", '{"a": [1]}', "[NaN]"])
_DIGITS = st.text("0123456789", min_size=1, max_size=12)


@st.composite
def _object(draw: st.DrawFn, members: list[str]) -> str:
    """Members with blanks around them, some more than once."""
    blank = [draw(_BLANKS) for _ in range(3)]
    inner = f"{blank[0]},{blank[1]}".join(members)
    return f"{{{blank[1]}{inner}{blank[2]}}}"


@st.composite
def _args(draw: st.DrawFn) -> str:
    blank = draw(_BLANKS)
    keys = draw(st.lists(_KEY, max_size=4))
    return draw(_object([f'"{key}"{blank}:{blank}{draw(_FLAT | _ARRAY)}' for key in keys]))


@st.composite
def _record(draw: st.DrawFn) -> str:
    """A complete event; `args` may come twice, under an escaped name, or be no object."""
    members = ['"ph":"X"', f'"ts": {draw(_NUMBER)}', '"pid":1', '"tid" : 2']
    for _ in range(draw(st.integers(0, 4))):
        key = draw(st.sampled_from(["args", "args", r"\u0061rgs", "name", "dur", "s"]))
        members.append(f'"{key}":{draw(_BLANKS)}{draw(_args() | _FLAT | _ARRAY)}')
    return draw(_object(draw(st.permutations(members))))


def _read(records: list[str], slice_bytes: int = 1 << 20) -> list[str]:
    found, decoder = rows(f"[{','.join(records)}]", slice_bytes)
    assert len(found) + sum(decoder.findings.lost.values()) == len(records)
    return [json.dumps(as_twin(row), sort_keys=True, default=str) for row in found]


@given(st.lists(_record(), min_size=1, max_size=3), st.lists(st.integers(0, 2), max_size=8), st.integers(1, 300))
def test_many_records_are_read_like_each_alone(pool: list[str], order: list[int], slice_bytes: int) -> None:
    alone = [_read([record]) for record in pool]
    chosen = [number % len(pool) for number in order]
    together = _read([pool[number] for number in chosen], slice_bytes)
    assert together == [row for number in chosen for row in alone[number]]


def _fault(text: str) -> tuple[str, int]:
    scanner = _scanner()
    scanner.feed(text.encode(), True)
    return scanner.fault, scanner.offset


@given(_record(), st.data())
def test_damage_is_found_where_it_is_in_a_record_like_many(record: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(record) - 1))
    damaged = record[:at] + data.draw(st.sampled_from(["", "}", ",", '"', "\x00", "7", ":"])) + record[at + 1 :]
    before = f"[{record}, {record},"
    fault, offset = _fault(f"[{damaged}]")
    assert _fault(f"{before}{damaged}]") == (fault, offset + len(before) - 1)


@given(st.sampled_from(["", "-"]), _DIGITS, _DIGITS)
def test_decimals_are_the_nearest_double_and_times_exact(sign: str, whole: str, fraction: str) -> None:
    text = f"{sign}{int(whole)}.{fraction}"
    event = f'{{"ph":"X","ts":{text},"name":"f","pid":1,"tid":1,"args":{{"v":{text}}}}}'
    try:
        [row] = rows(f"[{event}]")[0]
    except BadTrace:
        raise AssertionError(text) from None
    assert repr(arguments(row)["v"]) == repr(float(text))
    assert row["start"] == int((Decimal(text) * 1000).to_integral_value("ROUND_HALF_EVEN"))
