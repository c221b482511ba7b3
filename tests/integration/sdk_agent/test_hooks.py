"""What recording needs Python for: hooks of options, on a thread of the agent's that waits for the GIL."""

from __future__ import annotations

import os

from tests.support.agent_daemon import ARMED, LIMIT, STATUS, STOPPED, packet_bytes
from tests.support.arena_reader import read_arena
from tests.support.waiting import until

# Says what is called; the option `modules` stands for any.
HOOKS = """
import os, sys, threading, profclient
from profclient.agent import finish, note, register_hook
def say(*what): os.write(1, (" ".join(map(str, what)) + "\\n").encode())  # one line in one piece
main = threading.get_ident()
def start(options):
    note("started_with", sorted(options))
    say("start", options["modules"], threading.get_ident() != main)
def stop(options): say("stop", os.getpid())
def released(): say("released")
"""

LOOP = """
print("ready", flush=True)
for line in sys.stdin: exec(line)
"""


def test_they_are_called_from_arm_to_release(agents):
    job = agents.job(HOOKS + "register_hook('modules', start, stop, released=released)" + LOOP)
    link = agents.daemon.accept()
    os.close(link.arm("ranges,modules:deep").fd)
    assert job.line() == "start deep True"
    status = link.next(STATUS)
    assert "'modules', 'ranges'" in status.fields["started_with"]
    link.stop()
    assert job.line() == f"stop {job.pid}"
    link.release()
    assert job.line() == "released"


def test_ranges_do_not_wait_for_them(agents):
    job = agents.job(HOOKS + "held = threading.Event()\nregister_hook('modules', lambda _: held.wait(), stop)" + LOOP)
    link = agents.daemon.accept()
    armed = link.arm("ranges,modules")  # is answered while the hook stands still
    job.say("with profclient.record_function('meanwhile'): pass")
    until(lambda: read_arena(armed.fd).names() == ["meanwhile"], "a range is recorded")
    job.say("held.set()")
    link.stop()
    assert job.line() == f"stop {job.pid}"
    os.close(armed.fd)


def test_one_that_raises_is_not_honoured(agents):
    agents.job(
        HOOKS + "def fail(_): raise RuntimeError('no modules\\nhere')\nregister_hook('modules', fail, stop)" + LOOP
    )
    link = agents.daemon.accept()
    os.close(link.arm("ranges,modules").fd)
    assert link.next(STATUS).fields["not_honoured"] == "modules: no modules here"
    assert link.stop().fields["not_honoured"] == "modules: no modules here"


def test_the_sentences_of_one_recording_are_not_those_of_the_next(agents):
    agents.job(HOOKS + "def fail(_): raise RuntimeError('never')\nregister_hook('modules', fail, stop)" + LOOP)
    link = agents.daemon.accept()
    os.close(link.arm("ranges,modules").fd)
    link.next(STATUS)
    link.stop()
    link.release()
    os.close(link.arm("ranges", epoch=2).fd)
    assert "not_honoured" not in link.next(STATUS).fields


def test_a_stop_that_still_records_is_waited_for(agents):
    code = """
def last(options):
    with profclient.record_function("at the stop"): pass
register_hook("modules", start, last, records_at_stop=True)
"""
    job = agents.job(HOOKS + code + LOOP)
    link = agents.daemon.accept()
    armed = link.arm("ranges,modules")
    assert job.line().startswith("start")
    link.next(STATUS)  # the agent knows by now that the stop is to be waited for
    link.stop()
    assert read_arena(armed.fd).names() == ["at the stop"]
    os.close(armed.fd)


def test_one_that_may_end_the_recording(agents):
    job = agents.job(HOOKS + "register_hook('modules', start, stop)" + LOOP)
    link = agents.daemon.accept()
    os.close(link.arm("ranges,modules").fd)
    assert job.line().startswith("start")
    job.say("finish('iterations')")
    assert link.next(STOPPED).fields["reason"] == "iterations"
    assert job.line().startswith("stop")


def test_what_is_dropped_is_stopped(agents):
    job = agents.job(HOOKS + "register_hook('modules', start, stop)" + LOOP)
    link = agents.daemon.accept()
    os.close(link.arm("ranges,modules").fd)
    assert job.line().startswith("start")
    link.send(packet_bytes(LIMIT, 1, drop="modules"))
    assert job.line() == f"stop {job.pid}"
    link.stop()
    link.release()
    os.close(link.arm("ranges,modules", epoch=2).fd)
    assert job.line().startswith("start")


def test_a_child_that_is_forked_meanwhile_stops_them_for_itself(agents):
    job = agents.job(HOOKS + "register_hook('modules', start, stop)" + LOOP)
    link = agents.daemon.accept()
    os.close(link.arm("ranges,modules").fd)
    assert job.line().startswith("start")
    job.say("child = os.fork(); child or os._exit(0); os.waitpid(child, 0)")
    assert job.line().split()[0] == "stop"
    link.stop()
    assert job.line() == f"stop {job.pid}"


def test_at_exit_they_are_stopped_first(agents):
    job = agents.job(HOOKS + "register_hook('modules', start, stop)" + LOOP)
    link = agents.daemon.accept()
    os.close(link.arm("ranges,modules").fd)
    assert job.line().startswith("start")
    assert job.process.stdin is not None
    job.process.stdin.close()
    assert job.line() == f"stop {job.pid}"
    assert link.next(STOPPED).fields["reason"] == "exit"
    assert job.process.wait() == 0


def test_many_recordings_in_a_row(agents):
    job = agents.job(HOOKS + "register_hook('modules', start, stop)" + LOOP)
    link = agents.daemon.accept()
    for epoch in range(1, 41):
        answer = link.arm("ranges,modules", epoch=epoch)
        assert answer.kind == ARMED
        os.close(answer.fd)
        link.stop(epoch)
        link.release(epoch)
    # Those that were over before the GIL came are not begun; the others are ended, in turn.
    job.say("say('end')")
    said = []
    while (line := job.line()) != "end":
        said.append(line.split()[0])
    assert said[::2] == ["start"] * len(said[::2])
    assert said[1::2] == ["stop"] * len(said[1::2])
