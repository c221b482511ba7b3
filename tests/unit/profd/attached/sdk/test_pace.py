"""What samplers that nobody asked for take together: a hundredth of the host's cores."""

from __future__ import annotations

import contextlib

import pytest
from profd.attached.sdk.pace import CORES_SHARE, START_SECONDS, Paces
from profd.targets.process import ProcessId

ONE = ProcessId(7, 1)
ALICE, BOB, CAROL = 1000, 1001, 1002


def taken(paces: Paces, cores: int, threads: int, together: int, sample_seconds: float) -> float:
    """The share of the host's cores that all of them take, if a sample takes so long."""
    for pid in range(together):
        paces.learn(ProcessId(pid, 1), sample_seconds)
    rates = [paces.hz(ALICE, ProcessId(pid, 1), threads, together) for pid in range(together)]
    return sum(rates) * sample_seconds / cores


@pytest.mark.parametrize("cores", [2, 64])
@pytest.mark.parametrize("together", [1, 8])
@pytest.mark.parametrize("sample_seconds", [0.0002, 0.0012])
def test_all_of_a_capture_take_a_hundredth(cores: int, together: int, sample_seconds: float) -> None:
    assert taken(Paces(cores), cores, 64, together, sample_seconds) <= CORES_SHARE


def test_more_threads_are_sampled_less_often_and_never_less_than_once_a_second() -> None:
    rates = [Paces(2).hz(ALICE, ONE, threads) for threads in (1, 64, 1_000, 100_000)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > rates[1]
    assert rates[-1] == 1


def test_where_our_own_reader_takes_them_there_are_more() -> None:
    paces = Paces(2)
    older = ProcessId(8, 1)
    paces.note_python(older, "3.10.13")
    assert paces.hz(ALICE, older, 64, together=8) == paces.hz(ALICE, ONE, 64, together=8) == 1
    paces.note_python(ONE, "3.13.0")
    assert paces.hz(ALICE, ONE, 64, together=8) == 2
    paces.learn(ONE, 0.0002)
    assert paces.hz(ALICE, ONE, 64, together=8) == 6
    paces.learn(ONE, 0.0025)
    assert paces.hz(ALICE, ONE, 64, together=8) == 1


def test_what_others_of_its_user_take_is_not_there() -> None:
    paces = Paces(2)
    alone = paces.hz(ALICE, ONE, 1)
    with paces.holding(ALICE, ONE, 1, alone / 2):
        assert paces.hz(ALICE, ONE, 1) <= alone / 2 + 1
    with contextlib.suppress(KeyError), paces.holding(ALICE, ONE, 1, alone):
        raise KeyError
    assert paces.hz(ALICE, ONE, 1) == alone


def test_what_others_of_its_capture_take_is_their_part_of_the_same_room() -> None:
    paces = Paces(2)
    room, rate = paces.cores(ALICE, 8, "c1"), paces.hz(ALICE, ONE, 64, 8, "c1")
    with paces.holding(ALICE, ProcessId(8, 1), 64, rate, "c1"):
        assert (paces.cores(ALICE, 8, "c1"), paces.hz(ALICE, ONE, 64, 8, "c1")) == (room, rate)
        assert paces.cores(ALICE, 8, "c2") < room
        assert paces.cores(ALICE, 8) < room


def test_what_one_user_takes_is_not_taken_from_another() -> None:
    paces = Paces(2)
    alone, room = paces.hz(ALICE, ONE, 1), paces.cores(ALICE)
    with contextlib.ExitStack() as held:
        # GIVEN a user who has all of the share and more
        for pid in range(16):
            held.enter_context(paces.holding(ALICE, ProcessId(pid, 1), 1, alone))
        assert (paces.hz(ALICE, ONE, 1), paces.beside(ALICE, ONE, 1), paces.cores(ALICE)) == (1, None, 0.0)
        # THEN the next one has a half, and who comes after these a third
        assert paces.cores(BOB) == pytest.approx(room / 2)
        assert paces.hz(BOB, ONE, 1) == pytest.approx(alone / 2, abs=1)
        assert paces.beside(BOB, ONE, 1) is not None
        with paces.holding(BOB, ONE, 1, 1):
            assert paces.cores(CAROL) == pytest.approx(room / 3)
    assert paces.cores(CAROL) == room


def test_samples_that_took_no_time_that_could_be_measured_are_none_to_divide_by() -> None:
    paces = Paces(4)
    before = paces.hz(ALICE, ONE, 1)
    paces.learn(ONE, 0.0)
    assert paces.hz(ALICE, ONE, 1) == before


def test_what_a_sample_took_is_known_for_the_next_time() -> None:
    paces = Paces(2)
    paces.learn(ONE, 0.0002)
    assert paces.hz(ALICE, ONE, 1) == 100
    paces.learn(ONE, 0.002)
    assert paces.hz(ALICE, ONE, 1) == 10


@pytest.mark.parametrize("cores", [2, 64])
@pytest.mark.parametrize("together", [1, 8])
def test_samples_that_are_not_needed_have_their_start_in_the_share(cores: int, together: int) -> None:
    found = Paces(cores).beside(ALICE, ONE, 1, together)
    assert found is not None
    total = together * (START_SECONDS + found.hz * 0.00103 * found.window_seconds)
    assert total <= CORES_SHARE * cores * found.window_seconds * 1.0001


def test_our_own_reader_begins_in_shorter_windows_until_it_is_seen_not_to_know_the_process() -> None:
    paces = Paces(2)
    paces.note_python(ONE, "3.13.0")
    found = paces.beside(ALICE, ONE, 1)
    assert found is not None
    assert found.window_seconds == pytest.approx(1.0)
    # GIVEN a build of 3.13 that py-spy had to read
    paces.note_reader(ONE, "py-spy")
    paces.note_python(ONE, "3.13.0")
    assert paces.beside(ALICE, ONE, 1) == Paces(2).beside(ALICE, ONE, 1)


def test_where_there_is_no_room_there_are_none() -> None:
    assert Paces(2).beside(ALICE, ONE, 100_000) is None
