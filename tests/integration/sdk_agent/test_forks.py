"""Children: what is the parent's stays the parent's, and each is a process of its own."""

from __future__ import annotations

import mmap
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.agent_daemon import FAILED, STATUS
from tests.support.arena_reader import read_arena
from tests.support.sdk_jobs import attaching
from tests.support.waiting import until

FORK = """
import os, sys, profclient
print("ready", flush=True)
sys.stdin.readline()
child = os.fork()
if child == 0:
    import signal
    print("child", os.getpid(), flush=True)
    with profclient.record_function("of the child"): pass
    signal.pause()
with profclient.record_function("of the parent"): pass
print("parent", child, flush=True)
sys.stdin.readline()
os.kill(child, 9)
os.waitpid(child, 0)
"""


def test_a_child_registers_as_itself(agents):
    job = agents.job(FORK)
    parent = agents.daemon.accept()
    job.say("fork")
    child = agents.daemon.accept()
    assert child.pid != parent.pid
    assert child.hello.fields["incarnation"] != parent.hello.fields["incarnation"]
    assert child.hello.fields["pid"] == str(child.pid)
    assert child.arm(epoch=3).kind != FAILED
    assert parent.arm(epoch=4).kind != FAILED  # both at once
    job.say("end")
    assert job.end() == 0


def test_a_fork_while_it_records(agents):
    job = agents.job(FORK)
    parent = agents.daemon.accept()
    armed = parent.arm()
    job.say("fork")
    job.line()
    job.line()
    child = agents.daemon.accept()
    assert "armed" not in child.hello.fields
    parent.next(STATUS)
    assert parent.stop().fields["reason"] == "stop"
    assert read_arena(armed.fd).names() == ["of the parent"]
    job.say("end")
    assert job.end() == 0


def test_a_fork_inside_a_range(agents):
    job = agents.job(
        """
import os, sys, profclient
print("ready", flush=True)
sys.stdin.readline()
with profclient.record_function("outer"):
    child = os.fork()
    with profclient.record_function("inner"): pass
if child == 0: os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
sys.stdin.read()
"""
    )
    parent = agents.daemon.accept()
    armed = parent.arm()
    job.say("fork")
    assert job.line() == "3"
    parent.stop()
    events = read_arena(armed.fd).events
    assert [(event.name, bool(event.end)) for event in events] == [("outer", True), ("inner", True)]


def test_the_death_of_the_parent_is_seen_while_a_child_lives(agents):
    job = agents.job(FORK)
    parent = agents.daemon.accept()
    job.say("fork")
    job.line()
    job.line()
    child = agents.daemon.accept()
    os.kill(parent.pid, 9)
    until(lambda: not parent.socket.recv(1), "the connection ends")
    assert child.arm().kind != FAILED
    os.kill(child.pid, 9)


MANY = """
import multiprocessing, sys, profclient

def work(number):
    with profclient.record_function("of a worker"): pass
    return number * 2

if __name__ == "__main__":
    print("ready", flush=True)
    sys.stdin.readline()
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(3) as pool:
        print(sum(pool.map(work, range(100))), flush=True)
    with profclient.record_function("after"): pass
    print("done", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("way", ["fork", "forkserver", "spawn"])
def test_multiprocessing_while_it_records(agents, way, tmp_path):
    # spawn and forkserver import the main module again: it must be a file.
    program = tmp_path / "program.py"
    program.write_text("if __name__ == '__main__':\n    from profclient import agent\n    agent.attach()\n" + MANY)
    job = agents.job(f"import runpy, sys; sys.argv = {[str(program), way]!r}; runpy.run_path({str(program)!r}, "
                     "run_name='__main__')", attach=False)  # fmt: skip
    parent = agents.daemon.accept()
    armed = parent.arm()
    job.say("go")
    assert job.line() == str(sum(range(0, 200, 2)))
    assert job.line() == "done"
    assert parent.stop().fields["reason"] == "stop"
    assert read_arena(armed.fd).names() == ["after"]
    assert job.end() == 0


def test_a_data_loader_with_workers(agents):
    pytest.importorskip("torch")
    job = agents.job(
        """
import sys, warnings
warnings.simplefilter("ignore")  # torch's own
import torch
class Numbers(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, index): return torch.tensor([float(index)])
if __name__ == "__main__":
    print("ready", flush=True)
    sys.stdin.readline()
    total = 0.0
    for _ in range(2):
        for batch in torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2):
            total += float(batch.sum())
    print(total, flush=True)
    sys.stdin.read()
"""
    )
    parent = agents.daemon.accept()
    armed = parent.arm()
    job.say("go")
    assert job.line() == str(2.0 * sum(range(64)))
    assert parent.stop().fields["reason"] == "stop"
    assert job.end() == 0
    os.close(armed.fd)


def test_nobody_is_there_during_a_fork(agents):
    """CPython >= 3.12 warns of forks in processes with several threads; ours is not to be the only reason."""
    job = agents.job(
        """
import os, sys
from profclient import _recorder
threads = []
if sys.version_info >= (3, 12):
    # Hooks run in reverse order: this one after the agent's.
    os.register_at_fork(before=lambda: threads.append(len(os.listdir("/proc/self/task"))))
"""
        + attaching(1000)
        + """
if sys.version_info < (3, 12):  # there the agent does not do it
    os.register_at_fork(after_in_parent=_recorder.agent_resume)
    os.register_at_fork(before=lambda: (_recorder.agent_pause(), threads.append(len(os.listdir("/proc/self/task")))))
print("ready", flush=True)
sys.stdin.readline()
for _ in range(20):
    if os.fork() == 0: os._exit(0)
    os.wait()
print(threads, flush=True)
sys.stdin.read()
""",
        attach=False,
    )
    link = agents.daemon.accept()
    armed = link.arm()
    job.say("go")
    assert job.line() == str([1] * 20)
    assert link.stop().fields["reason"] == "stop"  # the same connection, the same recording
    os.close(armed.fd)
    assert job.end() == 0
    assert job.process.stderr is not None
    assert job.process.stderr.read() == ""


WITH_A_HOOK = (
    """
import mmap, os, sys, threading, time
from profclient import _recorder
threads = []
at_fork = lambda: threads.append(len(os.listdir("/proc/self/task")))
if sys.version_info >= (3, 12):
    os.register_at_fork(before=at_fork)  # hooks run in reverse order: this one after the agent's
"""
    + attaching(1000)
    + """
if sys.version_info < (3, 12):  # there the agent does not do it
    os.register_at_fork(after_in_parent=_recorder.agent_resume)
    os.register_at_fork(before=lambda: (_recorder.agent_pause(), at_fork()))
def say(*what): os.write(1, (" ".join(map(str, what)) + "\\n").encode())
def fork():
    child = os.fork()
    if child == 0: os._exit(0)
    os.waitpid(child, 0)
parent = os.getpid()  # a child stops what its parent had begun, too
agent.register_hook("modules", lambda _: START, lambda _: os.getpid() == parent and say("stop"))
shared = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 2)
print("ready", flush=True)
sys.stdin.readline()
"""
)


def test_nobody_is_there_during_a_fork_while_a_hook_waits_for_the_gil(agents, tmp_path):
    path = tmp_path / "shared"
    path.write_bytes(bytes(2))
    job = agents.job(
        WITH_A_HOOK.replace("START", 'say("start")')
        + """
sys.setswitchinterval(1000)
any(shared.__setitem__(1, 1) for _ in iter(lambda: shared[0], 1))  # keeps the GIL
for _ in range(5): fork()
say(threads)
sys.stdin.read()
""",
        str(path),
        attach=False,
    )
    link = agents.daemon.accept()
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 2) as shared:
        job.say("go")
        until(lambda: shared[1] == 1, "the job keeps the GIL")
        os.close(link.arm("ranges,modules").fd)
        until(lambda: job.threads() == 3, "a hook waits for it")
        shared[0] = 1
    lines = {job.line(), job.line()}
    assert lines == {"start", str([1] * 5)}  # it has begun all the same, before, between or after them
    assert link.stop().fields["reason"] == "stop"
    assert job.line() == "stop"
    assert job.end() == 0
    assert job.process.stderr is not None
    assert job.process.stderr.read() == ""


def test_a_child_forked_while_a_hook_starts_stops_it(agents):
    """How far it came nobody knows: what it had put in would stay in the child for ever."""
    job = agents.job(
        """
import os, sys, threading, time
from profclient import _recorder, agent
begun, go_on, stopped = threading.Event(), threading.Event(), []
def start(options):
    begun.set()
    go_on.wait()
agent.register_hook("modules", start, lambda _: stopped.append(os.getpid()))
print("ready", flush=True)
sys.stdin.readline()
begun.wait()
child = os.fork()
if child == 0:
    print(stopped == [os.getpid()], flush=True)
    os._exit(0)
os.waitpid(child, 0)
go_on.set()
sys.stdin.readline()
while not stopped:  # the daemon may hear of the end before hooks have ended
    time.sleep(0.01)
print(stopped, flush=True)
sys.stdin.read()
"""
    )
    link = agents.daemon.accept()
    os.close(link.arm("ranges,modules").fd)
    job.say("fork")
    assert job.line() == "True"
    assert link.stop().fields["reason"] == "stop"
    job.say("and here")
    assert job.line() == f"[{link.pid}]"  # once, and by its own recording's end
    assert job.end() == 0


def held_thread(folder):
    """What a job is started with whose threads do not run at once, while the file exists."""
    held, library = folder / "held", folder / "held_thread.so"
    source = Path(__file__).parents[2] / "support" / "held_thread.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return held, {"LD_PRELOAD": str(library), "PROFD_TEST_HELD": str(held)}


def test_a_fork_right_after_another_finds_an_agent_that_has_not_run_yet(agents, tmp_path):
    """It is not yet known by its number, and is no thread of the job all the same."""
    held, environ = held_thread(tmp_path)
    shared = tmp_path / "shared"
    shared.write_bytes(bytes(2))
    forks = f"open({str(held)!r}, 'w').close()\nfork()\nos.unlink({str(held)!r})\nfork()\nfork()\n"
    program = WITH_A_HOOK.replace("START", "None") + forks + "say(threads)\nsys.stdin.read()\n"
    job = agents.job(program, str(shared), attach=False, environ=environ)
    link = agents.daemon.accept()
    os.close(link.arm().fd)
    job.say("fork")
    assert job.line() == str([1] * 3)
    assert link.stop().fields["reason"] == "stop"
    assert job.end() == 0


def test_a_fork_finds_a_thread_for_hooks_that_has_not_run_yet(agents, tmp_path):
    """It is not yet known by its number; that of the one before it is nobody's, or a thread's of the job by now."""
    held, environ = held_thread(tmp_path)
    shared = tmp_path / "shared"
    shared.write_bytes(bytes(2))
    program = WITH_A_HOOK.replace("at_fork = lambda: ", f"at_fork = lambda: os.unlink({str(held)!r}) or ")
    job = agents.job(
        program.replace("START", 'say("start")').replace(
            'say("stop"))', 'say("stop"), released=lambda: say("released"))'
        )
        + "fork()\nsay(threads)\nsys.stdin.read()\n",
        str(shared),
        attach=False,
        environ=environ,
    )
    link = agents.daemon.accept()
    os.close(link.arm("ranges,modules").fd)
    assert job.line() == "start"
    link.stop()
    link.release()
    assert [job.line(), job.line()] == ["stop", "released"]
    until(lambda: job.threads() == 2, "the thread for hooks has ended")
    held.touch()
    os.close(link.arm("ranges,modules", epoch=2).fd)
    until(lambda: job.threads() == 3, "there is another")
    job.say("fork")
    assert {job.line(), job.line()} == {"start", "[1]"}
    assert link.stop(2).fields["reason"] == "stop"
    assert job.line() == "stop"
    assert job.end() == 0


def test_a_fork_waits_for_the_hook_that_runs(agents, tmp_path):
    path = tmp_path / "shared"
    path.write_bytes(bytes(2))
    job = agents.job(
        WITH_A_HOOK.replace("START", '(shared.__setitem__(1, 1), time.sleep(0.05), say("start"))')
        + """
while not shared[1]: time.sleep(0.001)
fork()
say(threads)
sys.stdin.read()
""",
        str(path),
        attach=False,
    )
    link = agents.daemon.accept()
    os.close(link.arm("ranges,modules").fd)
    job.say("go")
    assert job.line() == "start"
    assert job.line() == "[1]"
    assert link.stop().fields["reason"] == "stop"
    assert job.line() == "stop"
    assert job.end() == 0


def test_a_fork_does_not_wait_for_ever(agents, tmp_path):
    path = tmp_path / "shared"
    path.write_bytes(bytes(2))
    held = (
        "(shared.__setitem__(1, 1), all(time.sleep(0.001) is None for _ in iter(lambda: shared[0], 1)), say('start'))"
    )
    job = agents.job(
        WITH_A_HOOK.replace("START", held)
        + """
while not shared[1]: time.sleep(0.001)
fork()
say(threads)
shared[0] = 1
sys.stdin.read()
""",
        str(path),
        attach=False,
        environ={"PYTHONWARNINGS": "ignore"},  # CPython may say what is so
    )
    link = agents.daemon.accept()
    os.close(link.arm("ranges,modules").fd)
    job.say("go")
    assert job.line() == "[3]"
    assert job.line() == "start"
    assert link.stop().fields["reason"] == "stop"
    assert job.line() == "stop"
    assert job.end() == 0


def test_forks_while_it_is_busy(agents):
    """The thread is copied in the middle of whatever it does; the children register all the same."""
    job = agents.job(
        """
import os, sys
print("ready", flush=True)
sys.stdin.readline()
children = []
for _ in range(30):
    child = os.fork()
    if child == 0:
        sys.stdin.close()
        import signal; signal.pause()
    children.append(child)
print(*children, flush=True)
sys.stdin.readline()
for child in children: os.kill(child, 9)
for child in children: os.waitpid(child, 0)
"""
    )
    parent = agents.daemon.accept()
    job.say("go")
    for epoch in range(1, 21):
        os.close(parent.arm("ranges,stacks", epoch=epoch).fd)
        parent.stop(epoch)
        parent.release(epoch)
    children = {int(pid) for pid in job.line().split()}
    assert len(children) == 30
    assert {agents.daemon.accept().pid for _ in children} == children
    job.say("end")
    assert job.end() == 0
