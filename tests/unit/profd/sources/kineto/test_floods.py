"""Who says too much in a second."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from profd import limits
from profd._host import Shares

SECOND_NS = 1_000_000_000
OF_PROCESS = limits.KINETO_DATAGRAMS_PER_SECOND_MAX
OF_USER = limits.KINETO_DATAGRAMS_PER_UID_PER_SECOND_MAX


def shares(of_process: int = OF_PROCESS, of_user: int = OF_USER, processes: int = 10_000, users: int = 100) -> Shares:
    return Shares(of_process=of_process, of_user=of_user, processes=processes, users=users)


def test_a_process_floods_for_itself_and_until_the_second_is_over() -> None:
    floods = shares()
    beyond = [floods.beyond(1, 1000, SECOND_NS) for _ in range(10 * OF_USER)]
    assert beyond.count(False) == OF_PROCESS
    assert not floods.beyond(2, 1000, SECOND_NS)
    assert not floods.beyond(1, 1000, 2 * SECOND_NS)


def test_a_user_floods_with_many_processes() -> None:
    floods = shares()
    beyond = [floods.beyond(pid, 1000, SECOND_NS) for pid in range(3 * OF_USER)]
    assert beyond.count(False) == OF_USER
    assert not floods.beyond(9, 1001, SECOND_NS)


def test_processes_that_are_not_told_apart_count_for_their_user() -> None:
    floods = shares(of_process=1, of_user=50, processes=10)
    beyond = [floods.beyond(pid, 1000, SECOND_NS) for pid in range(1000)]
    assert beyond.count(False) == 50
    assert floods.beyond(0, 1001, SECOND_NS)  # who has a place is still known
    assert not floods.beyond(5000, 1001, SECOND_NS)


def test_users_that_are_not_told_apart_share_one_part() -> None:
    floods = shares(of_user=3, users=2)
    passed = [uid for uid in range(10) for _ in range(4) if not floods.beyond(100 + uid, uid, SECOND_NS)]
    assert passed == [0, 0, 0, 1, 1, 1, 2, 2, 2]


class Twin:
    """The same, slow and obvious."""

    def __init__(self) -> None:
        self.began_ns = 0
        self.pids: Counter[int] = Counter()
        self.uids: Counter[int] = Counter()

    def beyond(self, pid: int, uid: int, now_ns: int) -> bool:
        if now_ns - self.began_ns >= SECOND_NS:
            self.began_ns, self.pids, self.uids = now_ns, Counter(), Counter()
        if self.uids[uid] >= 5 or self.pids[pid] >= 3:
            return True
        self.pids[pid] += 1
        self.uids[uid] += 1
        return False


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2), st.integers(0, SECOND_NS // 4))))
def test_property_as_the_twin(datagrams: list[tuple[int, int, int]]) -> None:
    floods, twin, now_ns = shares(of_process=3, of_user=5), Twin(), SECOND_NS
    for pid, uid, later_ns in datagrams:
        now_ns += later_ns
        assert floods.beyond(pid, uid, now_ns) == twin.beyond(pid, uid, now_ns)
