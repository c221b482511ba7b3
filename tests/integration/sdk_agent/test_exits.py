"""Processes that end, in every order: exit codes stay what they were, and the daemon hears of it."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

from tests.support.agent_daemon import ARM, ARMED, DISARMED, HELLO, STATUS, STOPPED, WELCOME, Ended, MiB, packet_bytes
from tests.support.arena_reader import read_arena

ROUNDS = int(os.environ.get("PROFD_ROUNDS", "3"))  # of each race; 20 have been run

ENDINGS = {
    "runs out": ("", 0),
    "sys.exit": ("import sys; sys.exit(5)", 5),
    "os._exit": ("import os; os._exit(6)", 6),
    "an exception": ("raise SystemError('of the test')", 1),
    "SIGTERM": ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    "SIGKILL": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    "SIGINT": ("import os, signal; os.kill(os.getpid(), signal.SIGINT); signal.pause()", -signal.SIGINT),
    "abort": ("import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.abort()", -signal.SIGABRT),
    "daemon threads run": (
        "import threading\ndef spin():\n  while True:\n    with profclient.record_function('x'): pass\n"
        "for _ in range(3): threading.Thread(target=spin, daemon=True).start()\nsys.exit(7)",
        7,
    ),
    "a thread outlives main": (
        "import threading, time\ndef late():\n  threading.main_thread().join()\n"
        "  with profclient.record_function('late'): pass\nthreading.Thread(target=late).start()\nsys.exit(8)",
        8,
    ),
    "atexit raises": ("import atexit\natexit.register(lambda: 1 / 0)\nsys.exit(9)", 9),
    "atexit records": (
        "import atexit\ndef last():\n  with profclient.record_function('last'): pass\n"
        "atexit.register(last)\nsys.exit(3)",
        3,
    ),
    "detach first": ("agent.detach(); sys.exit(4)", 4),
}

PROGRAM = """
import sys, profclient
print("ready", flush=True)
sys.stdin.readline()
with profclient.record_function("work"): pass
"""


def the_end(link):
    """Everything that comes until the connection ends."""
    packets = []
    while True:
        try:
            packets.append(link.receive())
        except Ended:
            return packets


def clean(name):
    """The interpreter finalizes, so that the agent has a last word."""
    return name not in ("os._exit", "SIGTERM", "SIGKILL", "abort")


@pytest.mark.parametrize("name", ENDINGS)
def test_while_idle(agents, name):
    code, expected = ENDINGS[name]
    jobs = [agents.job(PROGRAM + code) for _ in range(4)]
    links = [agents.daemon.accept() for _ in jobs]
    for job in jobs:
        job.say("end")
    assert [job.end() for job in jobs] == [expected] * len(jobs)
    assert [the_end(link) for link in links] == [[]] * len(links)


@pytest.mark.parametrize("name", ENDINGS)
def test_while_it_records(agents, name):
    code, expected = ENDINGS[name]
    for _ in range(ROUNDS):
        job = agents.job(PROGRAM + code)
        link = agents.daemon.accept()
        armed = link.arm()
        job.say("end")
        assert job.end() == expected
        told = [packet for packet in the_end(link) if packet.kind != STATUS]
        assert [packet.kind for packet in told] == ([STOPPED, DISARMED] if clean(name) else [])
        assert all(packet.fields["reason"] == "exit" for packet in told if packet.kind == STOPPED)
        assert "work" in read_arena(armed.fd).names()  # whatever became of the process
        os.close(armed.fd)


@pytest.mark.parametrize("name", ["runs out", "sys.exit", "daemon threads run", "os._exit"])
def test_while_it_is_being_armed(agents, name):
    """ARM with options that enter Python races with the end of the interpreter; nobody says which comes first."""
    code, expected = ENDINGS[name]
    for _ in range(ROUNDS):
        job = agents.job(PROGRAM + code)
        link = agents.daemon.accept()
        link.send(packet_bytes(ARM, 1, arena=MiB, strings=4096, options="ranges,stacks,torch:auto"))
        job.say("end")
        assert job.end() == expected
        for packet in the_end(link):
            assert packet.kind in (ARMED, STATUS, STOPPED, DISARMED)
            if packet.fd >= 0:
                os.close(packet.fd)


@pytest.mark.parametrize("reached", ["nothing", "connected", "greeted"])
def test_while_it_connects(agents, reached):
    if reached == "nothing":
        agents.daemon.die()
    for _ in range(ROUNDS):
        job = agents.job("import sys\nprint('ready', flush=True)\nsys.stdin.readline()\nsys.exit(5)")
        if reached != "nothing":
            link = agents.daemon.accept(greet=False)
            link.next(HELLO)
            job.say("end")
            if reached == "greeted":
                with contextlib.suppress(BrokenPipeError):  # it was faster
                    link.send(packet_bytes(WELCOME, version=1))
        assert job.end() == 5


def test_detach_ends_the_recording_and_attach_begins_anew(agents):
    job = agents.job(
        """
import sys, profclient
print("ready", flush=True)
for line in sys.stdin:
    with profclient.record_function("work"): pass
    agent.detach()
    print(agent.attach.__name__, repr(agent._attachment), flush=True)
    agent._attach(None, True, {})
"""
    )
    first = agents.daemon.accept()
    armed = first.arm()
    job.say("go")
    stopped = first.next(STOPPED)
    assert stopped.fields["reason"] == "exit"
    assert read_arena(armed.fd).names() == ["work"]
    assert job.line() == "attach <profclient: off: detach() was called>"
    second = agents.daemon.accept()
    assert second.hello.fields["incarnation"] == first.hello.fields["incarnation"]
    assert second.arm(epoch=2).kind == ARMED
