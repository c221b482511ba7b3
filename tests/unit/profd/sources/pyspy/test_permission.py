"""Who may read whose memory, and what the refusals say."""

from __future__ import annotations

import dataclasses
import os

import pytest
from profd.model.capture import Reason
from profd.sources.pyspy.permission import Rights, dumpable, permission
from profd.targets.process import Process, ProcessId

from tests.support.python_jobs import SPIN, process_of, running

PROCESS = Process(ProcessId(12, 5), 1, 1000, 1000, "alice", "python train.py", python=True)


@pytest.mark.parametrize(
    ("rights", "can_be_dumped", "can", "said"),
    [
        (Rights(0, True, 0), True, True, ""),
        (Rights(0, True, 2), False, True, ""),
        (Rights(0, True, 3), True, False, "forbids it to everybody"),
        (Rights(1000, False, 0), True, True, ""),
        (Rights(1000, False, 1), True, False, "sysctl kernel.yama.ptrace_scope=0"),
        (Rights(1000, False, 2), True, False, "ptrace_scope is 2"),
        (Rights(1000, False, 0), False, False, "not dumpable"),
        (Rights(1001, False, 0), True, False, "belongs to alice"),
        (Rights(0, False, 0), True, False, "CAP_SYS_PTRACE"),
        (Rights(0, True, 0, ("CAP_SETUID",)), True, False, "root without CAP_SETUID"),
    ],
)
def test_rule(rights: Rights, can_be_dumped: bool, can: bool, said: str) -> None:
    offer = permission(PROCESS, rights, can_be_dumped)
    assert offer.can is can
    assert said in f"{offer.reason} {offer.fix}"
    if not can:
        assert offer.why_code is Reason.NOT_PERMITTED
        assert "12" in offer.reason
        assert offer.fix


def test_root_s_processes_need_the_capability_since_samplers_are_not_root() -> None:
    offer = permission(dataclasses.replace(PROCESS, uid=0, gid=0, user="root"), Rights(0, False, 0))
    assert not offer.can
    assert "its samplers are not root" in offer.reason


def test_rights_of_this_process() -> None:
    rights = Rights.mine()
    assert rights.uid == os.geteuid()
    assert 0 <= rights.scope <= 3


def test_dumpable() -> None:
    with running(SPIN) as job:
        process = process_of(job)
        assert dumpable(process)
        assert dumpable(dataclasses.replace(process, uid=os.getuid() + 1)) is False
    assert dumpable(dataclasses.replace(process, id=ProcessId(2**22 + 1, 0)))  # there is none
