"""Ends of processes, seen without ever meaning another process of the same pid."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

from profd.sources.kineto.lifetime import Lifetime, alive, groups
from profd.targets.process import ProcessId

from tests.support.python_jobs import seen


def test_end_of_a_process() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = seen(child.pid)
    lifetime = Lifetime(process.id)
    assert (lifetime.ended, alive(process.id)) == (False, True)
    other = Lifetime(replace(process.id, start_ticks=process.id.start_ticks + 1))
    assert other.ended
    other.close()
    child.communicate(b"\n")
    assert (lifetime.ended, alive(process.id)) == (True, False)
    lifetime.close()
    lifetime.close()
    assert Lifetime(process.id).ended


def test_groups() -> None:
    me = ProcessId(os.getpid(), 0)
    assert groups(me) == {os.getegid(), *os.getgroups()}
    assert groups(ProcessId(0, 0)) == set()
