"""Which trace a list that is full leaves out, and what it says of each."""

from __future__ import annotations

import pytest
from profclient.cli.commands.traces import _print_list, _spare


@pytest.mark.parametrize(
    ("uid", "owners", "left_out"), [(7, [8, 8, 7], 1), (7, [7, 7, 7], 2), (7, [8, 8], 1), (0, [8, 8, 0], 2)]
)
def test_ones_own_stay(monkeypatch: pytest.MonkeyPatch, uid: int, owners: list[int], left_out: int) -> None:
    monkeypatch.setattr("os.getuid", lambda: uid)
    found = [{"id": number, "owner_uid": owner} for number, owner in enumerate(owners)]
    assert _spare(found)["id"] == left_out


def test_a_trace_is_known_by_its_program_and_rank(capsys: pytest.CaptureFixture[str]) -> None:
    trace = {
        "id": "t1",
        "created_ns": 1,
        "owner": "ann",
        "source": "sdk",
        "events": 7,
        "start_ns": 1,
        "end_ns": 2,
        "bytes": 9,
        "rank": 3,
        "pinned": False,
        "title": "/home/ann/venv/bin/python3 -u train.py",
    }
    _print_list([trace], as_json=False)
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[-2:] == ["RANK", "TITLE"]
    assert row.split()[-4:] == ["3", "python3", "-u", "train.py"]
