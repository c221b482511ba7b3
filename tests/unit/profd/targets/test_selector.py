"""Selectors over made-up process lists."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.errors import BadInput, Denied, NotFound
from profd.limits import CAPTURE_TARGETS_MAX
from profd.targets.selector import Families, Selector, check_untrusted_selector, select, serves_profd

from tests.support.captures import process

ALL = [
    process(10, command="bash", python=False, framework=""),
    process(11, ppid=10, rank=0, gpus=(0,), job="77"),
    process(12, ppid=10, rank=1, gpus=(1,), job="77"),
    process(13, ppid=12, python=False, framework=""),
    process(14, ppid=12, job="78"),
    process(20, uid=51001, user="bob", rank=0, gpus=(0,), job="77"),
    process(30, zombie=True),
]


def pids(own: tuple[int, ...] = (), uid: int = 51000, admin: bool = False, **criteria: Any) -> list[int]:
    found = select(Selector(**criteria), ALL, uid=uid, admin=admin, own=own)
    return [p.id.pid for p in found.allowed]


@pytest.mark.parametrize(
    ("criteria", "wanted"),
    [
        ({"pids": (11, 12)}, [11, 12]),
        ({"pids": (10,)}, [10]),
        ({"pids": (10,), "children": True}, [10, 11, 12, 14]),
        ({"users": ("alice",)}, [11, 12, 14]),
        ({"users": ("51000",)}, [11, 12, 14]),
        ({"jobs": ("77",)}, [11, 12]),
        ({"jobs": ("77", "78")}, [11, 12, 14]),
        ({"jobs": ("77",), "ranks": (1,)}, [12]),
        ({"gpus": (0, 1)}, [11, 12]),
        ({"pids": (11, 12), "gpus": (1,)}, [12]),
        ({"ranks": (0,)}, [11]),
    ],
)
def test_criteria(criteria: dict[str, Any], wanted: list[int]) -> None:
    assert pids(**criteria) == wanted


def test_admins_may_all() -> None:
    assert pids(uid=0, admin=True, gpus=(0,)) == [11, 20]


@pytest.mark.parametrize(
    ("selector", "told"),
    [
        (Selector(pids=(11, 20)), [20]),
        (Selector(users=("alice", "bob"), jobs=("77",)), [20]),
        (Selector(jobs=("77",)), []),  # what a process says of itself
        (Selector(ranks=(0,)), []),
        (Selector(gpus=(0,)), []),
    ],
)
def test_others_are_named_apart_where_they_were_named(selector: Selector, told: list[int]) -> None:
    found = select(selector, ALL, uid=51000, admin=False)
    assert [p.id.pid for p in found.forbidden] == told


def test_of_others_only_as_many_are_told_as_a_capture_may_have() -> None:
    many = [process(11), *(process(100 + each, uid=51001, user="bob") for each in range(CAPTURE_TARGETS_MAX + 1))]
    found = select(Selector(users=("alice", "bob")), many, uid=51000, admin=False)
    assert ([p.id.pid for p in found.allowed], len(found.forbidden)) == ([11], CAPTURE_TARGETS_MAX)


def test_of_a_job_only_others() -> None:
    with pytest.raises(Denied, match="bob"):
        pids(jobs=("77",), uid=1002)


@pytest.mark.parametrize(
    "criteria", [{"pids": (99,)}, {"pids": (30,)}, {"users": ("carol",)}, {"jobs": ("",)}, {"gpus": (7,)}]
)
def test_nothing_matches(criteria: dict[str, Any]) -> None:
    with pytest.raises(NotFound, match=r"--|pid"):
        pids(**criteria)


def test_a_missing_pid_among_others() -> None:
    found = select(Selector(pids=(11, 99)), ALL, uid=51000, admin=False)
    assert ([p.id.pid for p in found.allowed], found.missing) == ([11], (99,))


def test_only_others() -> None:
    with pytest.raises(Denied, match="bob"):
        pids(pids=(20,))


def test_the_daemon_is_never_a_target() -> None:
    assert pids(own=(12,), users=("alice",)) == [11, 14]
    with pytest.raises(NotFound):
        pids(own=(12,), pids=(12,))


@pytest.mark.parametrize(
    "selector",
    [
        Selector(),
        Selector(children=True),
        Selector(pids=tuple(range(1, 400))),
        Selector(ranks=tuple(range(1025))),
    ],
)
def test_refused_selectors(selector: Selector) -> None:
    with pytest.raises(BadInput):
        check_untrusted_selector(selector)


def test_the_ranks_of_a_whole_job_may_be_named() -> None:
    check_untrusted_selector(Selector(ranks=tuple(range(1024))))


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), max_size=12, unique_by=lambda pair: pair[0]))
def test_descendants_end_even_in_loops(pairs: list[tuple[int, int]]) -> None:
    """GIVEN any parents, loops too, THEN below() is the transitive closure without its roots."""
    processes = [process(pid, ppid=ppid) for pid, ppid in pairs]
    below = {p.id.pid for p in Families(processes).below([1])}
    slow: set[int] = set()
    while more := {pid for pid, ppid in pairs if ppid in slow | {1}} - slow - {1}:
        slow |= more
    assert below == slow


@pytest.mark.parametrize(
    ("command", "serves"),
    [
        ('/v/bin/python -m profd.workers.process 18 {"parent": 7}', True),
        ("/v/bin/python3.12 -P -m profd.targets.errands.server 16", True),
        ("python -P -m profd.attached.ingest.streamer --link 5 --socket /run/profd/profd.sock", True),
        ("python -P -s -m profclient.torch.builder", True),
        ("python -P -m profclient.relay", True),
        ("/opt/profd/bin/python /opt/profd/bin/profctl start --pid 7", True),
        ("/usr/bin/python3 -I -s /usr/bin/profd --config /etc/profd/config.toml", True),
        ("python train.py /opt/profd/bin/profctl", False),
        ("/usr/bin/python3 /home/alice/profctl.py", False),
        ("/home/alice/profd/train --steps 3", False),
        ("python -m profd.workers.process_of_mine", False),
        ("python -m profd.main --state-dir /tmp/x", False),
        ("python train.py --module=profd.workers.process", False),
    ],
)
def test_helpers_of_daemons_are_nobodys_program(command: str, serves: bool) -> None:
    helper = process(40, command=command)
    assert serves_profd(helper) is serves
    found = select(Selector(users=("alice",)), [*ALL, helper], uid=51000, admin=False).allowed
    assert (40 in [p.id.pid for p in found]) is not serves
    # Who names it means it
    assert select(Selector(pids=(40,)), [*ALL, helper], uid=51000, admin=False).allowed == [helper]
