"""Which trace a list that is full leaves out."""

from __future__ import annotations

import pytest
from profclient.cli.commands.traces import _spare


@pytest.mark.parametrize(
    ("uid", "owners", "left_out"), [(7, [8, 8, 7], 1), (7, [7, 7, 7], 2), (7, [8, 8], 1), (0, [8, 8, 0], 2)]
)
def test_ones_own_stay(monkeypatch: pytest.MonkeyPatch, uid: int, owners: list[int], left_out: int) -> None:
    monkeypatch.setattr("os.getuid", lambda: uid)
    found = [{"id": number, "owner_uid": owner} for number, owner in enumerate(owners)]
    assert _spare(found)["id"] == left_out
