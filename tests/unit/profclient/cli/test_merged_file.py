"""What `profctl export CAPTURE` reads from the begin of its file, and says."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
from profclient.cli.merged_file import say_of_merged
from profclient.merged_head import HEAD_BYTES_MAX, Head


def row(rank: int, joined_by: str, moved_ns: int = 0, within_ns: int | None = None, host: str = "n1") -> dict[str, Any]:
    origin = {"rank": rank, "host": host, "trace": f"t{rank}"}
    return origin | {"joined_by": joined_by, "moved_ns": moved_ns, "within_ns": within_ns}


def about(*rows: dict[str, Any], message: str = "Clocks: so.") -> dict[str, Any]:
    nothing: dict[str, Any] = {
        "missing_ranks": [],
        "missing_hosts": [],
        "unread": [],
        "shared_ranks": [],
        "left_out": [],
    }
    nothing["remarks"] = ["Rank 7: too large."]
    clocks = {"within_ns": None, "message": message}
    return nothing | {"capture": "c0123456789ab", "traces": list(rows), "clocks": clocks}


def told(capsys: pytest.CaptureFixture[str], said: dict[str, Any]) -> list[str]:
    say_of_merged(said)
    found = capsys.readouterr()
    assert found.out == ""  # where the file may go
    return found.err.splitlines()


def test_each_rank_with_its_bound(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(
        capsys,
        about(
            row(0, "reference", within_ns=0),
            row(1, "collectives", -40_000_000, 201_000),
            row(2, "host", -40_000_000),
            row(3, "wall clock", host="n\x1b2"),
        ),
    )
    assert lines[1:] == [
        "Clocks: so.",
        "Rank 7: too large.",
        "rank 1 on n1: moved by -40.00 ms, wrong by 201.0 us at most (proved)",
        "rank 2 on n1: moved by -40.00 ms, as another trace of its host; nothing is proved",
        "rank 3 on n\N{REPLACEMENT CHARACTER}2: as its host's clock says; nothing is proved",
    ]


def test_ranks_of_which_nothing_is_proved_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys, about(*(row(rank, "wall clock") for rank in range(40))))
    assert lines[-1].startswith("All times are as the hosts' clocks say")
    assert len(lines) == 4


def test_many_ranks_are_told_in_part(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys, about(row(0, "reference"), *(row(rank, "collectives", 1, 5) for rank in range(1, 41))))
    assert lines[-1] == "… and 24 more: the file names them, and so does --json."


def pieces(data: bytes, length: int = 7) -> Iterator[bytes]:
    return (data[at : at + length] for at in range(0, len(data), length))


def test_the_begin_is_read_while_it_passes() -> None:
    data = b'{\n"profd": ' + json.dumps(about()).encode() + b',\n"traceEvents": [' + b" " * 5_000_000
    head = Head(pieces(data, 1000))
    assert b"".join(head) == data
    assert head.about("chrome", gzip=False) == about()
    compressed = gzip.compress(data)
    packed = Head(pieces(compressed))
    assert b"".join(packed) == compressed
    assert packed.about("chrome", gzip=True) == about()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"profd": ',
        b'{"profd": [[[',
        b'{"profd": 7}',
        b'"profd": ' + b"[" * 200_000,
        b"perfetto_manifest.json" + bytes(102) + b"x" * 400,
        b"perfetto_manifest.json" + bytes(102) + b"00000000002" + bytes(377) + b"{}",
        b" " * (HEAD_BYTES_MAX + 5) + b'"profd": {}',
    ],
)
@pytest.mark.parametrize("format_", ["chrome", "perfetto-archive"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_begins_otherwise(data: bytes, format_: str, packed: bool) -> None:
    head = Head([gzip.compress(data) if packed else data])
    assert list(head)
    assert head.about(format_, gzip=packed) is None
    assert Head([data]).about(format_, gzip=True) is None
