"""Every transition of a capture of many hosts; nothing here does anything."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profclient.fleet.machine import (
    ENDED,
    RESUMES_MAX,
    Began,
    Begin,
    Broke,
    Changed,
    End,
    Find,
    Fleet,
    Found,
    Nothing,
    Out,
    Prepare,
    Prepared,
    Resume,
    Stand,
    Stop,
    Watch,
)

A, B = "a", "b"
LIVE, DONE = object(), object()


def fleet_at(stand: Stand, hosts: tuple[str, ...] = (A,)) -> Fleet:
    """All of these hosts there."""
    fleet = Fleet(hosts)
    steps: list[tuple[Stand, Callable]] = [
        (Stand.FINDING, lambda host: None),
        (Stand.PREPARING, lambda host: fleet.handle(Found(host))),
        (Stand.BEGINNING, lambda host: fleet.handle(Prepared(host, 1))),
        (Stand.RECORDING, lambda host: fleet.handle(Began(host, LIVE, True))),
    ]
    for reached, step in steps:
        for host in hosts:
            step(host)
        if reached is stand:
            break
    return fleet


def stands(fleet: Fleet) -> list[Stand]:
    return [state.stand for state in fleet.hosts.values()]


def test_the_straight_way():
    fleet = Fleet((A, B))
    assert fleet.begin() == [Find(A), Find(B)]
    assert fleet.handle(Found(A)) == [Prepare(A)]
    assert fleet.handle(Prepared(A, 4)) == []  # nothing begins before all have answered
    assert fleet.handle(Found(B)) == [Prepare(B)]
    assert fleet.handle(Prepared(B, 4, ["pid 7: a launcher"])) == [Begin((A, B))]
    assert fleet.handle(Began(A, LIVE, True)) == [Watch(A)]
    assert fleet.handle(Began(B, DONE, False)) == []
    assert fleet.handle(Changed(A, LIVE, True)) == []
    assert stands(fleet) == [Stand.RECORDING, Stand.OVER]
    assert fleet.handle(Changed(A, DONE, False)) == []
    assert fleet.over
    assert stands(fleet) == [Stand.OVER, Stand.OVER]
    assert fleet.hosts[B].unable == ["pid 7: a launcher"]


@pytest.mark.parametrize(
    "event",
    [Out(B, "no", "denied"), Broke(B, "gone"), Nothing(B, "none"), Prepared(B, 0, ["pid 7: busy"])],
)
def test_who_cannot_is_known_before_anything_begins_and_the_others_begin(event):
    fleet = fleet_at(Stand.PREPARING, (A, B))
    assert fleet.handle(Prepared(A, 1)) == []
    assert fleet.handle(event) == [Begin((A,))]
    assert fleet.hosts[B].stand in ENDED
    assert fleet.hosts[B].why


def test_where_nobody_can_nothing_begins():
    fleet = fleet_at(Stand.FINDING, (A, B))
    assert fleet.handle(Broke(A, "gone")) == []
    assert fleet.handle(Out(B, "no", "denied")) == []
    assert fleet.over
    assert [(state.stand, state.kind) for state in fleet.hosts.values()] == [
        (Stand.OUT, "unreachable"),
        (Stand.OUT, "denied"),
    ]


def test_a_daemon_that_refuses_at_the_last_moment_is_out():
    fleet = fleet_at(Stand.BEGINNING)
    assert fleet.handle(Out(A, "the start time has passed", "usage")) == []
    assert fleet.hosts[A].why == "the start time has passed"
    assert fleet.over


@pytest.mark.parametrize(("stand", "began"), [(Stand.BEGINNING, False), (Stand.RECORDING, True)])
def test_a_broken_connection_is_made_again_a_few_times(stand, began):
    fleet = fleet_at(stand)
    for _ in range(RESUMES_MAX):
        assert fleet.handle(Broke(A, "gone")) == [Resume(A, began)]
    assert fleet.handle(Broke(A, "gone")) == []
    assert (fleet.hosts[A].stand, fleet.hosts[A].why) == (Stand.LOST, "gone")


def test_one_that_is_back_is_followed_again():
    fleet = fleet_at(Stand.RECORDING)
    fleet.handle(Broke(A, "gone"))
    assert fleet.handle(Began(A, LIVE, True)) == [Watch(A)]
    fleet.handle(Broke(A, "gone"))
    assert fleet.handle(Began(A, DONE, False)) == []
    assert fleet.over


def test_a_stop_before_the_beginning_begins_nothing():
    fleet = fleet_at(Stand.PREPARING, (A, B))
    fleet.handle(Prepared(A, 1))
    assert fleet.handle(Stop()) == []
    assert fleet.over
    assert {state.kind for state in fleet.hosts.values()} == {"interrupted"}
    assert fleet.handle(Prepared(B, 1)) == []


def test_a_stop_ends_what_records_and_what_is_just_beginning():
    fleet = fleet_at(Stand.BEGINNING, (A, B))
    fleet.handle(Began(A, LIVE, True))
    assert fleet.handle(Stop()) == [End(A)]
    assert fleet.handle(Began(B, LIVE, True)) == [End(B), Watch(B)]
    for host in (A, B):
        fleet.handle(Changed(host, DONE, False))
    assert stands(fleet) == [Stand.OVER, Stand.OVER]


def test_one_that_was_broken_when_the_stop_came_is_ended_when_it_is_back():
    fleet = fleet_at(Stand.RECORDING)
    fleet.handle(Broke(A, "gone"))
    fleet.handle(Stop())
    assert fleet.handle(Began(A, LIVE, True)) == [End(A), Watch(A)]


def test_one_that_began_earlier_is_taken_up():
    fleet = Fleet.resumed((A, B))
    assert stands(fleet) == [Stand.ASKED, Stand.ASKED]  # nobody knows whether it records or is over
    assert fleet.begin() == [Resume(A, True), Resume(B, True)]
    assert fleet.handle(Broke(B, "gone")) == [Resume(B, True)]
    assert fleet.handle(Began(A, LIVE, True)) == [Watch(A)]
    fleet.handle(Out(B, "you have no capture", "not_found"))
    fleet.handle(Changed(A, DONE, False))
    assert stands(fleet) == [Stand.OVER, Stand.OUT]


@pytest.mark.parametrize(
    "late", [Found(A), Prepared(A, 1), Nothing(A, "x"), Began(A, LIVE, True), Changed(A, LIVE, True), Broke(A, "x")]
)
def test_what_comes_after_the_end_means_nothing(late):
    fleet = fleet_at(Stand.RECORDING)
    fleet.handle(Changed(A, DONE, False))
    assert fleet.handle(late) == []
    assert fleet.hosts[A].stand is Stand.OVER


EVENTS = [
    event
    for host in (A, B)
    for event in (
        Found(host),
        Prepared(host, 1),
        Prepared(host, 0),
        Nothing(host, "none"),
        Began(host, LIVE, True),
        Changed(host, LIVE, True),
        Changed(host, DONE, False),
        Out(host, "no", "failure"),
        Broke(host, "gone"),
    )
] + [Stop()]


@given(st.lists(st.sampled_from(EVENTS), max_size=40))
def test_property_it_begins_once_and_never_before_all_have_answered(events):
    fleet = Fleet((A, B))
    begins = 0
    for event in events:
        for instruction in fleet.handle(event):
            if isinstance(instruction, Begin):
                begins += 1
                assert not set(stands(fleet)) & {Stand.FINDING, Stand.PREPARING}
            if isinstance(instruction, End):
                assert fleet.stopping
    assert begins <= 1
