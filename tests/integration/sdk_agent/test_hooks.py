"""What recording needs Python for: hooks of options, on a thread of the agent's that waits for the GIL."""

from __future__ import annotations

import mmap
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.agent_daemon import ARMED, DISARMED, LIMIT, STATUS, STOPPED, packet_bytes
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
    holds = "held = threading.Event()\nregister_hook('modules', lambda _: (say('held'), held.wait()), stop)"
    job = agents.job(HOOKS + holds + LOOP)
    link = agents.daemon.accept()
    armed = link.arm("ranges,modules")  # is answered while the hook stands still
    assert job.line() == "held"  # a stop before its thread has the GIL would take it back, and call neither
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
    # It says so within its hook, which a fork then would find half begun.
    job.say("import time")
    job.say("while not agent.hooks_begun(): time.sleep(0.001)")
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


def test_it_ends_with_the_last_of_the_steps_that_were_asked_for(agents):
    job = agents.job(HOOKS + LOOP)
    link = agents.daemon.accept()
    os.close(link.arm("ranges", iterations=3).fd)
    job.say("while agent.hooks_begun() == 0: pass")
    job.say("for _ in range(4): profclient.step()")  # the first begins a step, each other ends one
    stopped = link.next(STOPPED)
    assert (stopped.fields["reason"], stopped.fields["steps"]) == ("iterations", "3")


UNBEGUN = "it had not begun when the recording ended, because that was too soon"
GIL = f"{UNBEGUN} or the program kept the GIL: record for longer"
QUEUE = (
    f"{UNBEGUN}, the program kept the GIL, or CUPTI and the program's CUDA calls waited for work queued on the GPU: "
    "record for longer"
)


@pytest.mark.parametrize(("name", "why"), [("modules", GIL), ("cuda", QUEUE)])
def test_one_that_ends_before_python_could_be_entered_says_so_and_is_over(name, why, agents, tmp_path):
    path = tmp_path / "shared"
    path.write_bytes(bytes(2))
    job = agents.job(HOOKS + f"import mmap\nregister_hook({name!r}, start, stop)" + LOOP)
    link = agents.daemon.accept()
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 2) as shared:
        job.say(f"shared = mmap.mmap(os.open({str(path)!r}, os.O_RDWR), 2); sys.setswitchinterval(1000)")
        job.say("any(shared.__setitem__(1, 1) for _ in iter(lambda: shared[0], 1))")  # keeps the GIL
        until(lambda: shared[1] == 1, "the job keeps the GIL")
        os.close(link.arm(f"ranges,{name}").fd)
        assert link.stop().fields["not_honoured"] == f"{name}: {why}"
        link.next(DISARMED)
        shared[0] = 1
        job.say("say('end')")
        assert job.line() == "end"  # it was neither begun nor stopped


@pytest.fixture
def no_threads(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """While this file exists a job with this environment starts no thread."""
    made, file = tmp_path / "no_threads.so", tmp_path / "no threads"
    source = Path(__file__).parents[2] / "support" / "no_threads.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, source], check=True)
    return file, {"LD_PRELOAD": str(made), "PROFD_TEST_NO_THREADS": str(file)}


def test_where_no_thread_can_be_started_nothing_begins_and_it_is_over(agents, no_threads):
    file, environ = no_threads
    job = agents.job(HOOKS + "register_hook('modules', start, stop)" + LOOP, environ=environ)
    link = agents.daemon.accept()
    file.touch()
    os.close(link.arm("ranges,modules").fd)
    assert link.stop().fields["not_honoured"] == f"modules: {GIL}"
    link.next(DISARMED)
    link.release()
    file.unlink()
    os.close(link.arm("ranges,modules", epoch=2).fd)
    assert job.line().startswith("start")


def test_what_has_begun_is_stopped_when_a_thread_can_be_started_again(agents, no_threads):
    file, environ = no_threads
    job = agents.job(HOOKS + "register_hook('modules', start, stop)" + LOOP, environ=environ)
    link = agents.daemon.accept()
    os.close(link.arm("ranges,modules").fd)
    assert job.line().startswith("start")
    until(lambda: job.threads() == 2, "the hook's thread has ended")
    file.touch()
    link.stop()
    link.release()
    assert not link.disarmed
    file.unlink()
    assert job.line() == f"stop {job.pid}"
    link.next(DISARMED)


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


def test_one_that_is_over_before_it_began_is_told_of_behind_those_before(agents):
    job = agents.job(HOOKS + "held = threading.Event()\nregister_hook('modules', lambda _: held.wait(), stop)" + LOOP)
    link = agents.daemon.accept()
    for epoch in (1, 2):  # the hooks of the first stand still, those of the second have to wait for them
        os.close(link.arm("ranges,modules", epoch=epoch).fd)
        if epoch == 1:
            job.say("while not agent._lock.locked(): pass")
            job.say("say('begun')")
            assert job.line() == "begun"
        link.stop(epoch)
        link.release(epoch)
    os.close(link.arm("ranges", epoch=3).fd)  # what it says of the second one comes before the answer
    assert link.disarmed == []
    job.say("held.set()")
    assert job.line() == f"stop {job.pid}"
    assert [link.next(DISARMED).epoch for _ in range(2)] == [1, 2]
