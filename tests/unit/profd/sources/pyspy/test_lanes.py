"""The cores that samplers may run on."""

from __future__ import annotations

import contextlib
import math

import pytest
from profd.sources.pyspy.lanes import ANY, SamplerLanes

ALICE, BOB, CAROL = 1001, 1002, 1003


def held(lanes: SamplerLanes, uid: int, count: int, stack: contextlib.ExitStack) -> list[frozenset[int]]:
    return [stack.enter_context(lanes.one_more(uid)) for _ in range(count)]


def test_few_run_anywhere_and_all_further_ones_share_a_lane() -> None:
    with contextlib.ExitStack() as stack:
        cores = held(SamplerLanes(range(16), math.inf), ALICE, 20, stack)
    assert cores[:4] == [ANY] * 4
    assert len(set(cores[4:])) == 1
    assert len(cores[4]) == 4


def test_one_core_of_two_stays_for_everybody_else() -> None:
    with contextlib.ExitStack() as stack:
        assert held(SamplerLanes([3, 7], math.inf), ALICE, 3, stack) == [ANY, frozenset({7}), frozenset({7})]


def test_users_have_lanes_apart_while_there_is_room() -> None:
    lanes = SamplerLanes(range(8), math.inf)
    with contextlib.ExitStack() as stack:
        found = [held(lanes, uid, 3, stack)[-1] for uid in (ALICE, BOB, CAROL)]
        assert len(frozenset().union(*found)) == 6
        assert {len(lane) for lane in found} == {2}


def test_a_lane_is_let_go_with_its_last_sampler_and_the_first_runs_anywhere_again() -> None:
    lanes = SamplerLanes(range(4), math.inf)
    for _ in range(2):
        with contextlib.ExitStack() as stack:
            assert held(lanes, ALICE, 2, stack) == [ANY, frozenset({3})]
            assert held(lanes, BOB, 2, stack) == [ANY, frozenset({2})]
    assert (lanes._free, lanes._bound, lanes._lanes) == ({}, {}, {})


@pytest.mark.parametrize(("allowed", "together", "each"), [(2.0, 1, 1), (0.5, 1, 1), (8.0, 4, 2)])
def test_within_a_quota_all_run_on_half_of_what_is_allowed(allowed: float, together: int, each: int) -> None:
    lanes = SamplerLanes(range(64), allowed)
    with contextlib.ExitStack() as stack:
        found = [held(lanes, uid, 20, stack) for uid in (ALICE, BOB, CAROL)]
        assert {len(lane) for user in found for lane in user} == {each}
        assert len(frozenset().union(*(lane for user in found for lane in user))) == together


def test_a_quota_that_allows_all_cores_is_none() -> None:
    with contextlib.ExitStack() as stack:
        assert held(SamplerLanes(range(2), 2.0), ALICE, 1, stack) == [ANY]
