"""Work that is done less often where it takes long."""

from __future__ import annotations

from profd.fairness.sparing import Sparing


def test_it_is_due_when_its_share_allows() -> None:
    now, spent = [100.0], [7.0]
    sparing = Sparing(0.02, clock=lambda: now[0], spent=lambda: spent[0])

    def due_at(moment: float) -> bool:
        now[0] = moment
        return sparing.due

    assert due_at(100)
    with sparing.piece():
        now[0] = 110  # it waited for a core, for most of this
        spent[0] += 1
    assert [due_at(moment) for moment in (110, 159.9, 160.1)] == [False, False, True]
    with sparing.piece():
        pass  # one that costs nothing may follow at once
    assert due_at(160.1)
