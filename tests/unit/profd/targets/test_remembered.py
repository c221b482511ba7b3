"""What is remembered of processes: a share for each user."""

from __future__ import annotations

from dataclasses import dataclass

from profd.targets.process import ProcessId
from profd.targets.remembered import Remembered

MALLORY, BOB = 4242, 4243


@dataclass(frozen=True)
class Fact:
    payer: int
    size: int = 10


def process(number: int) -> ProcessId:
    return ProcessId(number, number)


def test_a_user_whose_share_is_used_up_is_remembered_no_further() -> None:
    remembered = Remembered[Fact](each=25)
    for number in range(5):
        remembered.keep(process(number), Fact(MALLORY))
    remembered.keep(process(9), Fact(BOB))
    assert remembered.processes() == {process(0), process(1), process(9)}
    # WHEN one of hers ends
    remembered.forget(process(0))
    remembered.forget(process(0))
    remembered.keep(process(4), Fact(MALLORY))
    assert remembered.get(process(4)) == Fact(MALLORY)


def test_what_grows_beyond_the_share_is_forgotten_as_it_was() -> None:
    remembered = Remembered[Fact](each=25)
    remembered.keep(process(1), Fact(MALLORY))
    remembered.keep(process(1), Fact(MALLORY, size=26))
    assert remembered.get(process(1)) is None
    remembered.keep(process(1), Fact(MALLORY, size=25))
    assert remembered.get(process(1)) is not None


def test_root_has_no_limit() -> None:
    remembered = Remembered[Fact](each=25)
    for number in range(5):
        remembered.keep(process(number), Fact(0))
    assert len(remembered.processes()) == 5


def test_too_many_for_the_host_cost_whoever_has_most() -> None:
    remembered = Remembered[Fact](each=1000, most=4)
    remembered.keep(process(9), Fact(BOB))
    for number in range(4):
        remembered.keep(process(number), Fact(MALLORY))
    assert remembered.processes() == {process(9), process(3)}
