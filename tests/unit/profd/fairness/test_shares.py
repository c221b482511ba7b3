"""Shares and rates: what one user may have, what the others keep."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import pytest
from profd.fairness.rates import Rate, Rates
from profd.fairness.shares import Holder, Refused, Share, Shares
from profd.limits import SHARES_CROWD_FACTOR

SHARE = Share("things", "things", each=4, host=8, reserved=2, retry_seconds=3)
ROOT = Holder(0, reserved=True)


def user(uid: int) -> Holder:
    return Holder(uid, reserved=False)


def taken(shares: Shares, holder: Holder, held: ExitStack, tries: int) -> int:
    """How many of them are given."""
    given = 0
    for _ in range(tries):
        try:
            held.enter_context(shares.take(holder))
        except Refused:
            continue
        given += 1
    return given


def test_one_user_has_so_many_and_gets_them_back() -> None:
    shares = Shares(SHARE)
    with ExitStack() as held:
        assert taken(shares, user(1), held, tries=9) == SHARE.each
        with pytest.raises(Refused, match="4 of 4 things at once") as caught, shares.take(user(1)):
            pass
        error = caught.value
        assert (error.kind, error.limit, error.use, error.retry_seconds) == ("things", 4, 4, 3)
    with ExitStack() as held:
        assert taken(shares, user(1), held, tries=9) == SHARE.each


def test_a_full_host_refuses_those_who_have_most() -> None:
    shares = Shares(SHARE)
    with ExitStack() as held:
        assert [taken(shares, user(uid), held, tries=9) for uid in (1, 2)] == [4, 4]
        # They have all of it, and still nobody is without.
        assert [taken(shares, user(uid), held, tries=9) for uid in (3, 4, 5)] == [2, 2, 1]
        assert [taken(shares, user(uid), held, tries=9) for uid in (1, 3)] == [0, 0]


def test_users_without_number_do_not_have_a_part_each_without_end() -> None:
    # Each comes with its part, as an owner of many uids would have it.
    share = replace(SHARE, host=100, each=100)
    shares = Shares(share)
    with ExitStack() as held:
        given = sum(taken(shares, user(uid), held, tries=100) for uid in range(1, 100))
        assert given == SHARES_CROWD_FACTOR * share.host


def test_root_has_what_others_cannot_use_up() -> None:
    shares = Shares(SHARE)
    with ExitStack() as held:
        for uid in range(1, 20):
            taken(shares, user(uid), held, tries=9)
        assert taken(shares, ROOT, held, tries=9) == SHARE.reserved


def test_a_rate_fills_as_time_passes() -> None:
    now = 0.0
    rates = Rates(Rate("asks", "asks", per_second=2, burst=3), clock=lambda: now)

    def given(holder: Holder) -> int:
        count = 0
        for _ in range(20):
            try:
                rates.take(holder)
            except Refused as error:
                waits.add(error.retry_seconds)
                continue
            count += 1
        return count

    waits: set[float] = set()
    assert [given(user(1)), given(user(1)), given(user(2)), given(ROOT)] == [3, 0, 3, 20]
    assert waits == {0.5}
    now = 1.0
    assert given(user(1)) == 2
    now = 100.0
    assert given(user(1)) == 3


def test_users_of_long_ago_are_forgotten() -> None:
    rates = Rates(Rate("asks", "asks", per_second=1, burst=1))
    for uid in range(10_000):
        rates.take(user(uid))
    assert len(rates._buckets) <= 4096


def test_a_container_with_less_than_its_part_is_let_in_by_a_full_share() -> None:
    shares = Shares(replace(SHARE, host=100))
    first, second, third = (Holder(1, reserved=False, container=inode) for inode in (0, 11, 12))
    with ExitStack() as held:
        assert taken(shares, first, held, tries=9) == SHARE.each
        assert [taken(shares, one, held, tries=9) for one in (second, third, first)] == [2, 1, 0]
    with ExitStack() as held:  # and all is given back
        assert taken(shares, second, held, tries=9) == SHARE.each


def test_containers_without_number_do_not_have_a_part_each_without_end() -> None:
    shares = Shares(replace(SHARE, each=20, host=1000))
    with ExitStack() as held:
        made = (Holder(1, reserved=False, container=inode) for inode in range(200))
        assert sum(taken(shares, one, held, tries=20) for one in made) <= SHARES_CROWD_FACTOR * 20


def test_what_is_kept_for_root_is_not_one_containers_either() -> None:
    shares = Shares(SHARE)
    with ExitStack() as held:
        assert taken(shares, replace(ROOT, container=11), held, tries=9) == SHARE.reserved
        assert [taken(shares, one, held, tries=9) for one in (ROOT, replace(ROOT, container=11))] == [1, 0]
