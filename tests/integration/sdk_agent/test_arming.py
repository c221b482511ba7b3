"""ARM, STOP and RELEASE, as real processes obey them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.agent_daemon import ARM, ARMED, FAILED, STATUS, STEPS, STOP, STOPPED, MiB, packet_bytes
from tests.support.arena_reader import read_arena
from tests.support.sdk_jobs import BUSY, WAIT
from tests.support.waiting import until

LONG_C_CALLS = """
print("ready", flush=True)
import profclient, random
numbers = [random.random() for _ in range(400_000)]
while True:
    with profclient.record_function("work"):
        sorted(numbers)  # holds the GIL all the while
"""


def work_events(fd):
    try:
        return read_arena(fd).named("work")
    except AssertionError:  # it is being written: the reader takes its parts one after the other
        return []


@pytest.mark.parametrize("program", [BUSY, LONG_C_CALLS], ids=["busy", "long-c-calls"])
def test_a_program_that_holds_the_gil_records(agents, program):
    agents.job(program)
    link = agents.daemon.accept()
    armed = link.arm()
    until(lambda: work_events(armed.fd), "a range is in the arena")
    stopped = link.stop()
    ended = [event for event in work_events(armed.fd) if event.end]
    assert stopped.fields["reason"] == "stop"
    assert int(armed.fields["first"]) < int(stopped.fields["last"])
    assert len(ended) <= int(stopped.fields["events"])
    assert float(stopped.fields["seconds"]) > 0
    os.close(armed.fd)


def test_nothing_is_recorded_after_stop(agents):
    job = agents.job(BUSY)
    link = agents.daemon.accept()
    armed = link.arm()
    until(lambda: work_events(armed.fd), "a range is in the arena")
    link.stop()
    before = len(work_events(armed.fd))
    link.release()
    again = link.arm(epoch=2)
    until(lambda: work_events(again.fd), "it records into the next arena")
    assert len(work_events(armed.fd)) == before
    assert job.process.poll() is None


def test_a_hundred_recordings_leave_nothing_behind(agents):
    job = agents.job(BUSY)
    link = agents.daemon.accept()
    for epoch in range(1, 101):
        armed = link.arm(epoch=epoch, arena=MiB, strings=64 * 1024)
        link.stop(epoch)
        link.release(epoch)
        os.close(armed.fd)
    until(lambda: not [name for name in job.descriptors() if "profd-arena" in name], "the last arena is let go of")
    assert "profd-arena" not in Path(f"/proc/{job.pid}/maps").read_text()
    assert job.threads() == 3  # main, the one that reads its input, ours


def test_status_comes_while_it_is_armed(agents):
    agents.job(BUSY)
    link = agents.daemon.accept()
    armed = link.arm()
    first, second = link.next(STATUS), link.next(STATUS)
    os.close(armed.fd)
    assert int(first.fields["events"]) <= int(second.fields["events"])
    assert {"events", "dropped", "seconds", "steps"} <= first.fields.keys()
    assert 0 < int(first.fields["lasted_ms"]) < int(second.fields["lasted_ms"])


def test_steps_are_told_before_and_during(agents):
    job = agents.job(
        """
import profclient, sys
for _ in range(5): profclient.step()
print("ready", flush=True)
sys.stdin.readline()
for _ in range(7): profclient.step()
print("stepped", flush=True)
sys.stdin.read()
"""
    )
    link = agents.daemon.accept()
    armed = link.arm()
    job.say("go")
    assert job.line() == "stepped"
    fields = link.stop().fields
    os.close(armed.fd)
    assert int(fields["steps"]) == 6  # the first had begun before
    assert int(fields["step_ns"]) > 0
    assert int(fields["step_ns_before"]) > 0


WATCHED = """
import sys
from profclient import _recorder
print("ready", flush=True)
for line in sys.stdin: exec(line); print("done", flush=True)
"""


def test_what_was_before_or_between_two_recordings_is_no_step_of_the_second(agents):
    """As with optimizers, which are watched while a recording wants it and not between two."""
    does = agents.job(WATCHED).does
    link = agents.daemon.accept()
    os.close(link.arm().fd)
    does("for _ in range(6): _recorder.note_step()")
    first = link.stop().fields
    does("_recorder.pause_steps()")
    link.release()
    os.close(link.arm(epoch=2).fd)
    does("_recorder.note_step()")  # ends nothing: nobody saw its begin
    second = link.stop(2).fields
    assert (first["steps"], int(first["step_ns"]) > 0) == ("5", True)
    assert second["steps"] == "0"
    assert not {"step_ns", "step_ns_before"} & second.keys()


def test_few_steps_before_are_no_measure(agents):
    job = agents.job(WATCHED)
    link = agents.daemon.accept()
    for epoch, calls, known in ((1, 3, False), (2, 1, True)):  # three calls end two steps, a fourth the third
        job.say(f"for _ in range({calls}): _recorder.note_step()")
        assert job.line() == "done"
        os.close(link.arm(epoch=epoch).fd)
        assert ("step_ns_before" in link.stop(epoch).fields) is known
        link.release(epoch)


def test_what_it_costs_is_told_by_source(agents):
    job = agents.job(
        """
import profclient, sys
print("ready", flush=True)
sys.stdin.readline()
for _ in range(4000):
    with profclient.record_function("work"):
        profclient.record_alloc(1, 64)
print("done", flush=True)
sys.stdin.read()
"""
    )
    link = agents.daemon.accept()
    armed = link.arm("ranges,memory", arena=16 * MiB)
    job.say("go")
    assert job.line() == "done"
    fields = link.stop().fields
    os.close(armed.fd)
    told = {key.removeprefix("seconds."): float(text) for key, text in fields.items() if key.startswith("seconds.")}
    assert told.keys() == {"ranges", "memory"}
    assert sum(told.values()) == pytest.approx(float(fields["seconds"]), rel=1e-3)
    assert 0.3 < told["memory"] / sum(told.values()) < 0.7  # as many of one as of the other, at about one price


def test_who_is_guarded_tells_more_often(agents):
    agents.job(BUSY)
    link = agents.daemon.accept()
    armed = link.arm(max_overhead="0.02")
    first, second = link.next(STATUS), link.next(STATUS)
    os.close(armed.fd)
    assert float(second.fields["seconds"]) >= float(first.fields["seconds"]) > 0


STEPPING = """
import profclient, sys, threading, time
threading.Thread(target=sys.stdin.read, daemon=True).start()
for _ in range(5): profclient.step()
print("ready", flush=True)
while True:
    profclient.step()
    time.sleep(0.001)
"""


def test_steps_after_the_stop_are_told_at_once_and_when_their_time_is_over(agents):
    agents.job(STEPPING, after_ms=1000)
    link = agents.daemon.accept()
    armed = link.arm()
    link.stop()
    at_once = link.next(STATUS)
    os.close(armed.fd)
    link.release()
    last = link.next(STATUS)  # also when the arena has been let go of
    assert at_once.fields.keys() == {"step_ns_after"}
    assert last.fields.keys() == {"step_ns_after", "after"}
    assert last.fields["after"] == "over"
    assert min(int(packet.fields["step_ns_after"]) for packet in (at_once, last)) > 0
    assert link.arm(epoch=2).kind != FAILED


def test_what_is_recorded_anew_is_no_step_after(agents):
    agents.job(STEPPING, after_ms=600_000)
    link = agents.daemon.accept()
    os.close(link.arm().fd)
    link.stop()
    link.release()
    os.close(link.arm(epoch=2).fd)
    told = [packet.fields.get("after") for packet in link.statuses if packet.epoch == 1]
    assert told[-1] == "over"


def test_one_epoch_at_a_time(agents):
    agents.job(WAIT)
    link = agents.daemon.accept()
    armed = link.arm(epoch=1)
    link.send(packet_bytes(ARM, 2, arena=MiB, strings=4096, options="ranges"))
    failed = link.next(FAILED)
    assert (failed.epoch, failed.fields["why"]) == (2, "it is armed already, by another capture")
    link.send(packet_bytes(STOP, 2))  # of another epoch: nothing happens
    assert link.stop(1).fields["reason"] == "stop"
    os.close(armed.fd)


def test_who_arms_after_a_stop_releases(agents):
    agents.job(WAIT)
    link = agents.daemon.accept()
    first = link.arm(epoch=1)
    link.stop(1)
    second = link.arm(epoch=2)
    assert second.kind == ARMED
    assert os.fstat(first.fd).st_ino != os.fstat(second.fd).st_ino
    os.close(first.fd)
    os.close(second.fd)


def test_a_release_stops(agents):
    agents.job(WAIT)
    link = agents.daemon.accept()
    armed = link.arm()
    link.release()
    assert link.next(STOPPED).fields["reason"] == "stop"
    assert link.arm(epoch=2).kind == ARMED
    os.close(armed.fd)


@pytest.mark.parametrize(
    "wrong", [{"arena": 0}, {"arena": 4096}, {"arena": 1 << 50}, {"strings": 3 * MiB}, {"window": 1 << 60}]
)
def test_an_arena_beyond_the_limits_is_refused(agents, wrong):
    agents.job(WAIT)
    link = agents.daemon.accept()
    failed = link.arm(**wrong)
    assert failed.kind == FAILED
    assert "beyond" in failed.fields["why"]
    assert link.arm(epoch=2).kind == ARMED  # it goes on


def test_the_window_ends_without_a_word_from_the_daemon(agents):
    agents.job(WAIT, grace_ms=50)
    link = agents.daemon.accept()
    armed = link.arm(window=1_000_000)
    assert link.next(STOPPED).fields["reason"] == "window"
    os.close(armed.fd)


def test_options_that_nobody_knows_are_named(agents):
    agents.job(WAIT)
    link = agents.daemon.accept()
    armed = link.arm("ranges,shapes,telepathy")
    assert armed.fields["not_honoured"] == "telepathy: this process cannot record it"
    os.close(armed.fd)


def test_what_is_dropped_is_recorded_no_more(agents):
    job = agents.job(
        """
import profclient, sys
print("ready", flush=True)
for line in sys.stdin:
    with profclient.record_function(line.strip()): pass
    print("done", flush=True)
"""
    )
    link = agents.daemon.accept()
    armed = link.arm()
    job.say("before")
    assert job.line() == "done"
    link.send(packet_bytes(12, 1, drop="ranges"))
    until(lambda: link.next(STATUS).fields["limits"] == "1", "it says that it has obeyed")
    job.say("after")
    assert job.line() == "done"
    link.stop()
    assert [event.name for event in read_arena(armed.fd).events] == ["before"]
    os.close(armed.fd)


NUMBERED = """
import sys
import profclient
from profclient import _recorder
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        number = profclient.step()
    print(number, flush=True)
"""
SHORT_STEPS = """
import time
import profclient
print("ready", flush=True)
while True:
    profclient.step()
    time.sleep(0.001)
"""


def test_a_recording_begins_at_a_step_and_ends_after_so_many(agents):
    """One step more on each side: of those that were asked for the first and the last are whole whatever happens."""
    job = agents.job(NUMBERED)
    link = agents.daemon.accept()

    def step(times):
        job.say(str(times))
        return int(job.line())

    def asked():
        link.send(packet_bytes(STEPS, 3))
        return link.next(STEPS).fields

    assert asked()["begun"] == "0"
    assert step(5) == 4
    assert asked()["begun"] == "5"
    armed = link.arm(begin_step=10, iterations=3)
    assert step(4) == 8
    waiting = link.next(STATUS).fields
    assert (waiting["awaits_step"], waiting["at_step"]) == ("1", "9")
    assert not read_arena(armed.fd).events
    assert step(5) == 13  # of 9 to 13 the last still runs
    assert "awaits_step" not in link.next(STATUS).fields
    assert step(1) == 14
    stopped = link.next(STOPPED).fields
    assert (stopped["reason"], stopped["step_from"], stopped["step_to"]) == ("iterations", "9", "14")
    assert int(armed.fields["first"]) < int(stopped["first"]) < int(stopped["last"])
    ended = [event.name for event in read_arena(armed.fd).events if event.end]
    assert ended == [f"ProfilerStep#{number}" for number in range(9, 14)]
    os.close(armed.fd)


def test_a_step_that_runs_already_is_missed_and_nothing_stays_armed(agents):
    job = agents.job(NUMBERED)
    link = agents.daemon.accept()
    job.say("5")
    job.line()
    link.send(packet_bytes(ARM, 1, arena=MiB, strings=65536, options="ranges", window=0, begin_step=4, iterations=3))
    assert link.next(FAILED).fields["why"] == "missed: step 4 was asked for, and step 4 runs already"
    # WHEN the next one is asked for THEN it is in time, and its recording has that step.
    armed = link.arm(epoch=2, begin_step=5, iterations=3)
    job.say("1")
    job.line()
    stopped = link.stop(2).fields
    assert (stopped["step_from"], stopped["step_to"]) == ("5", "5")
    os.close(armed.fd)


def test_short_steps_do_not_end_a_window_before_its_least_length(agents):
    agents.job(SHORT_STEPS)
    link = agents.daemon.accept()
    os.close(link.arm(iterations=2, at_least=300_000_000).fd)
    stopped = link.next(STOPPED).fields
    assert stopped["reason"] == "iterations"
    assert int(stopped["last"]) - int(stopped["first"]) >= 300_000_000
