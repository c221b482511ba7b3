"""Programs that would notice a careless agent: signals, subprocesses, exec, and what it costs to be idle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.agent_daemon import ARM, ARMED, FAILED, MiB, packet_bytes
from tests.support.arena_reader import read_arena
from tests.support.sdk_jobs import WAIT, attaching
from tests.support.waiting import until

# A program in one line: which of its descriptors could be the agent's.
OURS_AMONG_DESCRIPTORS = (
    "import os; paths = [f'/proc/self/fd/{name}' for name in os.listdir('/proc/self/fd')]; "
    "names = [os.readlink(path) for path in paths if os.path.exists(path)]; "
    "print([name for name in names if any(kind in name for kind in ('socket', 'memfd', 'eventfd'))], flush=True)"
)


def test_a_program_that_waits_for_signals(agents):
    job = agents.job(
        """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
print("ready", flush=True)
for _ in range(50): print(signal.sigwait({signal.SIGTERM, signal.SIGUSR1}).name, flush=True)
"""
    )
    link = agents.daemon.accept()
    armed = link.arm()
    for number in range(50):
        wanted = signal.SIGTERM if number % 2 else signal.SIGUSR1
        os.kill(job.pid, wanted)
        assert job.line() == wanted.name
    assert job.end() == 0
    os.close(armed.fd)


def test_its_thread_takes_no_signals(agents):
    job = agents.job(WAIT)
    agents.daemon.accept()
    tasks = Path(f"/proc/{job.pid}/task")
    (ours,) = [task for task in tasks.iterdir() if (task / "comm").read_text() == "profd-agent\n"]
    (blocked,) = [line.split()[1] for line in (ours / "status").read_text().splitlines() if line.startswith("SigBlk:")]
    able_to_block = (1 << 64) - 1 & ~(1 << signal.SIGKILL - 1) & ~(1 << signal.SIGSTOP - 1)
    mine = 0b11 << 31  # glibc keeps 32 and 33 for itself
    assert int(blocked, 16) | mine == able_to_block


def test_exec_ends_the_recording(agents):
    job = agents.job(
        f"""
import os, profclient, sys
print("ready", flush=True)
sys.stdin.readline()
with profclient.record_function("before exec"): pass
os.execv(sys.executable, [sys.executable, "-c", {OURS_AMONG_DESCRIPTORS!r} + "; input()"])
"""
    )
    link = agents.daemon.accept()
    armed = link.arm()
    job.say("exec")
    assert job.line() == "[]"
    until(lambda: link.socket.recv(20_000) == b"", "the connection ends")
    assert read_arena(armed.fd).names() == ["before exec"]
    os.close(armed.fd)


@pytest.mark.parametrize(
    "call",
    [
        "subprocess.run([sys.executable, '-c', code], check=True)",
        "subprocess.run([sys.executable, '-c', code], check=True, close_fds=False)",
        "subprocess.run([sys.executable, '-c', code], check=True, preexec_fn=lambda: None)",
        "os.waitpid(os.posix_spawn(sys.executable, [sys.executable, '-c', code], os.environ), 0)",
        "os.system(f'{sys.executable} -c {shlex.quote(code)}')",
    ],
    ids=["subprocess", "inheriting", "preexec_fn", "posix_spawn", "system"],
)
def test_what_it_starts_inherits_nothing(agents, call):
    job = agents.job(
        f"""
import os, shlex, subprocess, sys
code = {OURS_AMONG_DESCRIPTORS!r}
print("ready", flush=True)
sys.stdin.readline()
{call}
sys.stdin.read()
"""
    )
    link = agents.daemon.accept()
    armed = link.arm()
    job.say("go")
    assert job.line() == "[]"
    assert link.stop().fields["reason"] == "stop"
    assert job.end() == 0
    os.close(armed.fd)


@pytest.mark.parametrize("limit", [1024, 8], ids=["", "below ours"])
def test_the_lowest_descriptors_stay_the_programs(agents, limit):
    """Recorded or not. Where the program may not have as many, ours are as low as they must be."""
    low = "import os; print([n for n in range(3, 10) if os.path.exists(f'/proc/self/fd/{n}')], flush=True)\n"
    job = agents.job(
        f"""
import resource, sys
from profclient import agent
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, most))
agent._attach(None, True, {{}})
print("ready", flush=True)
for line in sys.stdin: {low}""",
        attach=False,
    )
    link = agents.daemon.accept()
    job.say("connected")
    connected = job.line()
    os.close(link.arm().fd)
    job.say("armed")
    assert (connected, job.line()) == (("[]", "[]") if limit == 1024 else ("[3, 4, 5]", "[3, 4, 5, 6]"))
    assert job.end() == 0


def voluntary_switches(pid: int) -> dict[str, str]:
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                found[task.name] = line.split()[1]
    return found


def test_idle_it_never_wakes_up(agents):
    """Until its daemon speaks: two jobs stand still while a third is armed and stopped thirty times."""
    sleepers = [agents.job(WAIT) for _ in range(2)]
    links = [agents.daemon.accept() for _ in sleepers]
    agents.job(WAIT)
    active = agents.daemon.accept()
    for job in sleepers:
        until(lambda job=job: job.threads() == 2, "its thread sleeps")
    for epoch in range(1, 4):  # whatever follows WELCOME is over then
        os.close(active.arm(epoch=epoch).fd)
        active.stop(epoch)
    before = [voluntary_switches(job.pid) for job in sleepers]
    for epoch in range(4, 34):
        os.close(active.arm(epoch=epoch).fd)
        active.stop(epoch)
    assert [voluntary_switches(job.pid) for job in sleepers] == before
    assert [link.arm().kind for link in links] != [FAILED, FAILED]


def resident_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Dirty:", "Private_Clean:")))


def test_idle_it_takes_little_memory(agents, tmp_path):
    """Private memory of a process that attached, over that of one which only imported the agent.

    The modules of hooks are among it: they are imported by attach(), so that no capture has to (docs/agent.md).
    """
    # As installed programs find us: what a compiler leaves behind would be reused, and hide what we take.
    environ = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    import_all = "import atexit, os, pathlib, profclient.address, profclient.agent, profclient._recorder, _thread\n"
    plain = [agents.job(import_all + WAIT, attach=False, environ=environ) for _ in range(4)]
    # After the same imports: what those leave behind is reused by whatever comes next.
    attach = import_all + attaching(60_000)
    attached = [agents.job(attach + WAIT, attach=False, environ=environ) for _ in range(4)]
    for _ in attached:
        agents.daemon.accept()
    least_plain = min(resident_kb(job.pid) for job in plain)
    # CPython 3.11: 92 to 124, as its pools (16 KB each) happen to be full; one more module is 20 and more.
    assert min(resident_kb(job.pid) for job in attached) - least_plain <= 144


def test_a_stopped_process_is_armed_when_it_goes_on(agents):
    job = agents.job(WAIT)
    link = agents.daemon.accept()
    os.kill(job.pid, signal.SIGSTOP)
    link.send(packet_bytes(ARM, 1, arena=MiB, strings=4096, options="ranges"))
    os.kill(job.pid, signal.SIGCONT)
    assert link.next(ARMED).fd >= 0


def test_an_argument_of_any_kind_does_not_raise():
    for argument in ("''", "'x' * 200", "'\\0'", "'unix:'", "3", "b'x'", "'/nowhere/profd.sock'"):
        code = f"import profclient\nprint(repr(profclient.attach({argument}, quiet=True)))\nprofclient.detach()"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), (argument, done)


CLOSES_ALL = """
import os, sys, profclient
print("ready", flush=True)
for line in sys.stdin:
    os.closerange(3, 4096)
    # The same numbers, other files: what the agent sends or closes now would be the job's.
    files = [open("/dev/zero", "rb+", buffering=0) for _ in range(16)]
    print("closed", flush=True)
    sys.stdin.readline()
    print(all(os.readlink(f"/proc/self/fd/{file.fileno()}") == "/dev/zero" for file in files), flush=True)
    break
sys.exit(5)
"""


@pytest.mark.parametrize("armed", [False, True])
def test_a_program_that_closes_every_descriptor(agents, armed):
    job = agents.job(CLOSES_ALL)
    link = agents.daemon.accept()
    if armed:
        os.close(link.arm().fd)
    job.say("close")
    assert job.line() == "closed"
    again = agents.daemon.accept()
    assert "armed" not in again.hello.fields  # its arena's descriptor is gone, too
    if not armed:
        assert again.arm(epoch=2).kind == ARMED
        again.stop(2)
        again.release(2)
    job.say("look")
    assert job.line() == "True"
    assert job.end() == 5
