"""RECALL, as real processes answer it."""

from __future__ import annotations

import fcntl
import json
import os

import pytest

from tests.support.agent_daemon import RECALL, RECALLED, SEALS, packet_bytes
from tests.support.sdk_jobs import WAIT

# A C function that keeps the GIL for ever: nothing of Python runs any more.
HOLDS_THE_GIL = """
import ctypes, torch, torch.distributed as dist, profclient
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(3))
print("ready", flush=True)
ctypes.PyDLL(None).pause()
"""


def test_a_process_without_torch_says_so(agents):
    agents.job(WAIT)
    link = agents.daemon.accept()
    link.send(packet_bytes(RECALL, 5, entries=1))
    answer = link.next(RECALLED)
    assert (answer.epoch, answer.fields, answer.fd) == (5, {"why": "torch is not loaded"}, -1)


@pytest.mark.parametrize("entries", [0, 1])
def test_a_process_whose_gil_is_never_given_up_answers(agents, entries):
    agents.job(HOLDS_THE_GIL)
    link = agents.daemon.accept()
    link.send(packet_bytes(RECALL, 6, entries=entries))
    answer = link.next(RECALLED)
    assert fcntl.fcntl(answer.fd, fcntl.F_GET_SEALS) & SEALS == SEALS
    said = json.loads(os.pread(answer.fd, os.fstat(answer.fd).st_size, 0))
    os.close(answer.fd)
    assert said["pg_status"]["0"]["last_completed_collective"] == "1"
    assert [entry["profiling_name"] for entry in said.get("entries", [])] == ["gloo:all_reduce"] * entries
