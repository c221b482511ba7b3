"""Daemons that die, come late, refuse, or talk nonsense. The job goes on in each case."""

from __future__ import annotations

import os
import socket

import pytest

from tests.support.agent_daemon import (
    ARM,
    FAILED,
    HEADER,
    HELLO,
    MAGIC,
    PACKET_BYTES_MAX,
    REFUSED,
    STOP,
    STOPPED,
    WELCOME,
    Ended,
    MiB,
    packet_bytes,
)
from tests.support.arena_reader import read_arena
from tests.support.sdk_jobs import BUSY, WAIT
from tests.support.waiting import until


def test_a_daemon_that_comes_back_gets_the_descriptor_again(agents):
    agents.job(BUSY)
    armed = agents.daemon.accept().arm(epoch=77)
    agents.daemon.die()
    agents.daemon.listen()
    link = agents.daemon.accept()
    assert int(link.hello.fields["armed"], 16) == 77
    assert os.fstat(link.hello.fd).st_ino == os.fstat(armed.fd).st_ino
    met = _met(armed.fd)
    until(lambda: _met(link.hello.fd) > met, "it went on recording")
    assert link.stop(77).fields["reason"] == "stop"
    link.release(77)
    assert link.arm(epoch=78).kind != FAILED


def _met(fd):
    """Events that the recorder has met: nobody drains, so that the arena may be full already."""
    arena = read_arena(fd)
    return arena.header["recorded"] + sum(arena.lost.values())


def test_a_stop_that_nobody_heard_is_told_again(agents):
    agents.job(WAIT)
    link = agents.daemon.accept()
    link.arm(epoch=5)
    link.stop(5)
    agents.daemon.die()
    agents.daemon.listen()
    link = agents.daemon.accept()
    assert int(link.hello.fields["armed"], 16) == 5
    stopped = link.next(STOPPED)
    assert (stopped.epoch, stopped.fields["reason"]) == (5, "stop")


def test_without_a_daemon_recording_ends(agents):
    job = agents.job(BUSY, grace_ms=100)
    agents.daemon.accept().arm()
    agents.daemon.die()
    until(lambda: not [name for name in job.descriptors() if "profd-arena" in name], "the arena is let go of")
    agents.daemon.listen()
    link = agents.daemon.accept()
    assert "armed" not in link.hello.fields
    assert int(link.hello.fields["left"], 16) == 1
    assert link.arm(epoch=2).kind != FAILED


COUNTS = """
import sys, profclient
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(int(line)): profclient.counter("n", 1)
    print("done", flush=True)
"""


def test_the_next_daemon_hears_what_was_recorded_for_nobody(agents):
    job = agents.job(COUNTS, grace_ms=100)
    link = agents.daemon.accept()
    assert "left" not in link.hello.fields
    link.arm(epoch=0x2A)
    job.does("7")
    agents.daemon.die()
    until(lambda: not [name for name in job.descriptors() if "profd-arena" in name], "the arena is let go of")
    job.does("3")  # recorded by nobody
    for _ in range(2):  # until it is armed anew: a daemon may be killed before it has noted that
        agents.daemon.die()
        agents.daemon.listen()
        link = agents.daemon.accept()
        said = {key: value for key, value in link.hello.fields.items() if key.startswith("left")}
        assert said == {"left": f"{0x2A:016x}", "left_events": "7", "left_dropped": "0"}
    link.arm(epoch=3)
    link.stop(3)
    link.release(3)
    agents.daemon.die()
    agents.daemon.listen()
    assert "left" not in agents.daemon.accept().hello.fields


def test_a_daemon_that_comes_later(agents):
    agents.daemon.die()
    agents.daemon.path.unlink()
    agents.job(WAIT)
    agents.daemon.listen()
    assert agents.daemon.accept().hello.kind == HELLO


def test_the_socket_is_removed_under_it(agents):
    agents.job(WAIT)
    link = agents.daemon.accept()
    agents.daemon.path.unlink()
    assert link.arm().kind != FAILED  # the connection does not mind
    agents.daemon.die()
    agents.daemon.listen()
    assert "armed" in agents.daemon.accept().hello.fields


@pytest.mark.parametrize("armed", [False, True])
def test_connections_that_are_closed_without_a_word_are_made_again(agents, armed):
    job = agents.job(WAIT)
    link = agents.daemon.accept()
    if armed:
        link.arm(epoch=7)
    link.close()
    for _ in range(5):
        agents.daemon.accept(greet=False).close()
    link = agents.daemon.accept()
    assert ("armed" in link.hello.fields) == armed
    assert job.end() == 0


def test_who_is_refused_stays_away(agents):
    job = agents.job(
        """
print("ready", flush=True)
import sys
for line in sys.stdin: print(agent.attach().state, "|", agent.attach().why, flush=True)
"""
    )
    link = agents.daemon.accept(greet=False)
    link.next(HELLO)
    link.send(packet_bytes(REFUSED, why="only root may be profiled here"))
    with pytest.raises(Ended):
        link.receive()
    job.say("?")
    assert job.line() == "refused | profd refuses this process: only root may be profiled here"


def greeted(kind: int, **fields: object) -> list[bytes]:
    return [packet_bytes(WELCOME, version=1), packet_bytes(kind, 1, **fields)]


HOSTILE = {
    "short": [b"PAG1"],
    "not ours": [b"\0" * 64],
    "reserved": [HEADER.pack(MAGIC, WELCOME, 7, 0) + b"version=1\n"],
    "no version": [packet_bytes(WELCOME)],
    "a later version": [packet_bytes(WELCOME, version=2)],
    "arm before welcome": [packet_bytes(ARM, 1, arena=MiB, strings=4096, options="ranges")],
    "no line end": [packet_bytes(WELCOME, version=1)[:-1]],
    "a key twice": [packet_bytes(WELCOME, version=1) + b"version=1\n"],
    "a control character": [packet_bytes(WELCOME, version="1\x07")],
    "no equals": [packet_bytes(WELCOME) + b"version\n"],
    "an unknown type": [packet_bytes(99)],
    "an agent's type": greeted(HELLO),
    "welcome twice": greeted(WELCOME, version=1),
    "arm without an epoch": [packet_bytes(WELCOME, version=1), packet_bytes(ARM, 0, arena=MiB, strings=4096)],
    "a number that is none": greeted(ARM, arena="1e9", strings=4096),
    "a negative number": greeted(ARM, arena=MiB, strings=-4096),
    "a number beyond 64 bits": greeted(ARM, arena=1 << 70, strings=4096),
    "too many keys": [packet_bytes(WELCOME, version=1, **{f"k{i}": i for i in range(500)})],
    "too long": [packet_bytes(WELCOME, version=1, long="x" * PACKET_BYTES_MAX)],
}


@pytest.mark.parametrize("packets", HOSTILE.values(), ids=HOSTILE)
def test_nonsense_closes_the_connection_and_nothing_else(agents, packets):
    job = agents.job(WAIT)
    link = agents.daemon.accept(greet=False)
    link.next(HELLO)
    for packet in packets:
        link.send(packet)
    with pytest.raises(Ended):
        link.receive()
    again = agents.daemon.accept()  # later; here after 100 ms
    assert again.arm(epoch=2).kind != FAILED
    assert job.end() == 0


def test_descriptors_of_the_daemon_are_not_taken(agents):
    job = agents.job(WAIT)
    link = agents.daemon.accept()
    before = len(job.descriptors())
    with open(os.devnull) as null:
        socket.send_fds(link.socket, [packet_bytes(STOP, 9)], [null.fileno()])
    assert link.arm().kind != FAILED
    link.stop()
    link.release()
    until(lambda: len(job.descriptors()) == before, "no descriptor has stayed")


def test_one_line_is_written_ever(agents):
    agents.daemon.die()
    agents.daemon.path.unlink()
    job = agents.job(
        """
from profclient import agent
agent._attach(None, False, {"retry_first_ms": 1, "retry_most_ms": 2, "grace_ms": 1000})
import os, sys
print("ready", flush=True)
sys.stdin.readline()
if not os.fork():
    sys.stdin.readline()
    os._exit(0)
os.wait()
""",
        attach=False,
    )
    assert job.process.stderr is not None
    assert job.process.stderr.readline().startswith(f"profclient: no profd answers at {agents.daemon.path} ")
    for _ in range(2):
        agents.daemon.listen()
        agents.daemon.accept()
        agents.daemon.die()
    job.say("fork")
    agents.daemon.listen()
    assert agents.daemon.accept().pid != agents.daemon.accept().pid
    assert job.end() == 0
    assert job.process.stderr.read() == ""
