"""Requests of programs between an agent and its daemon: told once, again after a reconnect, or not at all."""

from __future__ import annotations

import pytest

from tests.support.agent_daemon import PACKET_BYTES_MAX, REQUEST, Ended, packet_bytes
from tests.support.sdk_jobs import READY

TAKES = "request"

# Asks for a capture at each line of its input, and says what came of the last.
ASKS = (
    READY
    + """
import sys, time, profclient
for line in sys.stdin:
    asked = profclient.request_capture(**eval(line))
    while asked.state == "asked":
        time.sleep(0.005)
    print(asked.state, asked.capture, asked.why, flush=True)
"""
)


def accept(agents, **welcome):
    link = agents.daemon.accept(greet=False)
    link.greet(**welcome)
    return link


def test_a_request_and_its_answer(agents):
    job = agents.job(ASKS)
    link = accept(agents, can=TAKES)
    job.say("dict(iterations=5, reason='slow\\niterations=9')")
    request = link.next(REQUEST)
    assert (request.fields["iterations"], request.fields["reason"]) == ("5", "slow iterations=9")
    assert request.fields["incarnation"] == link.hello.fields["incarnation"]
    link.send(packet_bytes(REQUEST, request.epoch + 1, capture="of another"))
    link.send(packet_bytes(REQUEST, request.epoch, capture="c1"))
    assert job.line() == "granted c1 "


@pytest.mark.parametrize("welcome", [{}, {"can": "requests,others"}], ids=["nothing", "others"])
def test_a_daemon_of_an_earlier_build_is_asked_for_nothing(agents, welcome):
    job = agents.job(ASKS)
    link = accept(agents, **welcome)
    job.say("dict(iterations=5)")
    assert job.line().startswith("refused  the profd of this host is of an earlier build")
    link.arm()  # a REQUEST before its answer would break it
    link.stop()


def test_it_is_told_again_to_a_daemon_that_comes_back(agents):
    job = agents.job(ASKS)
    link = accept(agents, can=TAKES)
    job.say("dict(duration=1.0, key='k')")
    first = link.next(REQUEST)
    agents.daemon.die()
    agents.daemon.listen()
    link = accept(agents, can=TAKES)
    again = link.next(REQUEST)
    assert (again.epoch, again.fields) == (first.epoch, first.fields)
    link.send(packet_bytes(REQUEST, again.epoch, why="maintenance"))
    assert job.line() == "refused  maintenance"
    # AND what has been answered is not told to the next one
    agents.daemon.die()
    agents.daemon.listen()
    link = accept(agents, can=TAKES)
    link.arm()
    link.stop()


def test_it_is_not_told_to_an_earlier_daemon_that_comes_back(agents):
    job = agents.job(ASKS)
    link = accept(agents, can=TAKES)
    job.say("dict(duration=1.0)")
    link.next(REQUEST)
    agents.daemon.die()
    agents.daemon.listen()
    link = accept(agents)
    assert "of an earlier build" in job.line()
    link.arm()
    link.stop()


def test_a_program_after_exec_asks_for_nothing_of_before(agents):
    executes = ASKS.replace("for line", "import os\nfor line", 1).replace(
        'while asked.state == "asked":', "while True:\n        os.execv(sys.executable, [sys.executable, *again])"
    )
    attaches = "import profclient, sys; profclient.attach(quiet=True); print('again', flush=True); sys.stdin.read()"
    job = agents.job(executes.replace("import os", f"import os\nagain = ['-c', {attaches!r}]"))
    link = accept(agents, can=TAKES)
    job.say("dict(duration=1.0)")
    while True:  # the request may have been told before
        try:
            assert link.receive().kind == REQUEST
        except Ended:
            break
    assert job.line() == "again"
    link = accept(agents, can=TAKES)
    assert "armed" not in link.hello.fields
    link.arm()
    link.stop()


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"why": "x" * (PACKET_BYTES_MAX - 30)}, id="long"),
        pytest.param({"capture": "", "why": "\u202e%s%n" * 100}, id="format"),
    ],
)
def test_a_daemon_that_answers_nonsense_refuses(agents, answer):
    job = agents.job(ASKS)
    link = accept(agents, can=TAKES)
    job.say("dict(duration=1.0)")
    link.send(packet_bytes(REQUEST, link.next(REQUEST).epoch, **answer))
    assert job.line().startswith("refused ")
