"""The ledger of the disk: nobody is promised what another has, nobody has it all, and it is never filled."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.disk.space import Claim, Space, Urgency
from profd.errors import DiskFull, Exhausted
from profd.limits import DISK_FREE_BYTES_MIN


class Disk:
    """A filesystem that is written to as its claims say."""

    def __init__(self, free: int, size: int = 0, free_share_min: float = 0.05) -> None:
        self.free, self.size = free, size
        self.space = Space(Path("/"), free_share_min, measure=lambda: (self.free, self.size))

    def write(self, claim: Claim, more: int) -> int:
        kept = claim.hold(claim.written, more, more)
        self.free -= more
        claim.wrote(claim.written + more)
        return kept


def test_what_one_is_promised_no_other_is() -> None:
    disk = Disk(1000)
    first, second, third = (disk.space.claim(uid, "it") for uid in (1, 2, 3))
    assert first.hold(0, 400, 500) == 500
    assert second.hold(0, 1, 1000) == 500
    with pytest.raises(DiskFull, match=r"it needs 1 byte more .* where 0 bytes may be written: free space"):
        third.hold(0, 1)
    first.close()
    assert third.hold(0, 1, 100) == 100


def test_a_claim_that_is_closed_holds_nothing_any_more() -> None:
    """A thread cannot be stopped: it may ask on when its caller has gone."""
    disk = Disk(1000)
    late = disk.space.claim(1, "it")
    late.close()
    late.hold(100, 100)
    assert disk.space.left() == 1000


def test_one_user_has_half_and_is_told(tmp_path: Path) -> None:
    disk = Disk(1000)
    first, second = disk.space.claim(1, "an import"), disk.space.claim(1, "another")
    disk.write(first, 300)
    assert second.hold(0, 100, 1000) == 200
    with pytest.raises(Exhausted, match=r"another needs 201 bytes more, .* hold 300 bytes of the 500 bytes that"):
        second.hold(0, 201)
    assert disk.space.claim(2, "it").hold(0, 500) == 500


def test_what_was_recorded_can_be_stored_beyond_the_share() -> None:
    disk = Disk(1000)
    disk.write(disk.space.claim(1, "an import"), 400)
    assert disk.space.claim(1, "its trace", Urgency.STORING).hold(0, 500) == 509
    with pytest.raises(DiskFull):
        disk.space.claim(1, "another", Urgency.STORING).hold(0, 200)


def test_the_floor_is_left_and_urgent_ones_may_use_most_of_it() -> None:
    size = 100 * DISK_FREE_BYTES_MIN
    disk = Disk(size // 20 + 10, size)
    with pytest.raises(DiskFull):
        disk.space.claim(1, "an import").hold(0, 11)
    urgent = disk.space.claim(1, "a capture", Urgency.RECORDING)
    assert urgent.hold(0, 11) > 11
    disk.free = DISK_FREE_BYTES_MIN
    with pytest.raises(DiskFull):
        urgent.hold(0, 1)
    assert disk.space.claim(1, "its trace", Urgency.STORING).hold(0, 1) >= 1
    disk.free = DISK_FREE_BYTES_MIN // 2
    with pytest.raises(DiskFull):
        disk.space.claim(1, "its trace", Urgency.STORING).hold(0, 1)


def test_on_a_small_disk_the_reserve_of_captures_is_small_too() -> None:
    disk = Disk(500, 1000)
    assert disk.space.left(Urgency.RECORDING) == disk.space.left() == 450


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 400)), max_size=40))
def test_property_it_is_never_filled_and_nobody_has_more_than_half(writes: list[tuple[int, int]]) -> None:
    disk = Disk(1000, 1000)
    claims = [disk.space.claim(number % 3, "it") for number in range(6)]
    for number, more in writes:
        try:
            disk.write(claims[number], more)
        except Exhausted:
            continue
    assert disk.free >= 50
    held = [sum(claim.written for claim in claims if claim.uid == uid) for uid in range(3)]
    assert disk.free + sum(held) == 1000
    assert max(held) <= 475
