"""Who says too much in a second."""

from __future__ import annotations

from profd import limits
from profd.sources.kineto.floods import Floods

SECOND_NS = 1_000_000_000
OF_PROCESS = limits.KINETO_DATAGRAMS_PER_SECOND_MAX
OF_USER = limits.KINETO_DATAGRAMS_PER_UID_PER_SECOND_MAX


def test_a_process_floods_for_itself_and_until_the_second_is_over() -> None:
    floods = Floods()
    beyond = [floods.beyond(1, 1000, SECOND_NS) for _ in range(10 * OF_USER)]
    assert beyond.count(False) == OF_PROCESS
    assert not floods.beyond(2, 1000, SECOND_NS)
    assert not floods.beyond(1, 1000, 2 * SECOND_NS)


def test_a_user_floods_with_many_processes() -> None:
    floods = Floods()
    beyond = [floods.beyond(pid, 1000, SECOND_NS) for pid in range(3 * OF_USER)]
    assert beyond.count(False) == OF_USER
    assert not floods.beyond(9, 1001, SECOND_NS)
