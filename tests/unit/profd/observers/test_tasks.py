"""A build whose compilers are made to start processes without end: whatever they do, it ends, and so do they."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from profd.kernel import bpf
from profd.kernel.capabilities import GUARD
from profd.limits import OBSERVER_TASKS_MAX
from profd.observers import builder, tasks

from tests.support import arena_writer, readable
from tests.support.bpf import ENOSYS, answer
from tests.support.ingest import EPOCH, INCARNATION, arena_chunks, ingest_rig
from tests.support.waiting import eventually
from tests.unit.profd.observers.test_builder import wanted

NOBODY = 65534

# What a tracer of its user makes of a compiler. It says what came of it where it is told to, then goes on for ever.
BOMB = """
import ctypes, errno, json, os, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)

def call(*words):
    done = libc.syscall(*map(ctypes.c_long, words))
    return "done" if done >= 0 else errno.errorcode[ctypes.get_errno()]

def attempt(action):
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"

open(sys.argv[1], "w").close()
with open("/proc/self/status") as file:
    status = dict(line.split(":", 1) for line in file)
arm = os.uname().machine == "aarch64"
tried = {
    "setsid": attempt(os.setsid), "group": attempt(lambda: os.setpgid(0, os.getppid())),
    "clone3": call(435, 0, 0), "io_uring": call(425, 1, 0), "namespace": call(97 if arm else 272, 0x10000000),
    "chown": attempt(lambda: os.chown("/tmp", 1, 1)), "lchown": attempt(lambda: os.lchown("/tmp", 1, 1)),
    "fchown": attempt(lambda: os.fchown(0, 1, 1)), "own chown": attempt(lambda: os.chown(sys.argv[1], 1, 1)),
    "fchownat": call(54 if arm else 260, -100, 0, 1, 1, 0),
    "clone into one": call(220 if arm else 56, 0x10000011, 0, 0, 0, 0),
    "clone of its parent's": call(220 if arm else 56, 0x8011, 0, 0, 0, 0),
}
if not (child := os.fork()):
    tried["setsid of a child"] = attempt(os.setsid)
    with open(sys.argv[1], "w") as file:
        keys = ("Uid", "Groups", "CapEff", "CapPrm", "NoNewPrivs", "Seccomp")
        json.dump({"pid": os.getppid(), "status": {key: status[key].split() for key in keys}, "tried": tried}, file)
    os._exit(0)
os.waitpid(child, 0)
while True:
    try:
        if not os.fork():
            time.sleep(600)
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    except (OSError, RuntimeError):
        pass
"""


def bombing(said: Path) -> list[str]:
    """The command of a builder that does this."""
    return [sys.executable, "-c", BOMB, str(said)]


def ended(said: Path) -> bool:
    """The builder, and all that it has started."""
    group = json.loads(said.read_text())["pid"]
    return not any(runs_in(one, group) for one in psutil.process_iter())


def runs_in(process: psutil.Process, group: int) -> bool:
    """It is of this process group, and not only waited for by whom it was left to."""
    try:
        return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False


async def test_a_build_that_starts_processes_without_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "said"
    monkeypatch.setattr(builder, "command", lambda: bombing(said))
    built = await builder.build(wanted(tmp_path), change_identity=False)
    assert built.why == f"it started more than {OBSERVER_TASKS_MAX} processes and threads, and was ended"
    assert not built.again
    await eventually(lambda: ended(said))
    tried = json.loads(said.read_text())["tried"]
    assert set(tried.values()) <= {"EPERM", "ENOSYS"}, tried


async def test_others_are_recorded_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by a streamer that is started while builds start processes without end, one after the other."""
    said, over = tmp_path / "said", asyncio.Event()
    monkeypatch.setattr(builder, "command", lambda: bombing(said))
    builds = []

    async def build_on() -> None:
        while not over.is_set():
            builds.append(await builder.build(wanted(tmp_path), change_identity=False))

    building = asyncio.create_task(build_on())
    for _ in range(3):
        await eventually(lambda: said.exists() or building.done())
        begun = len(builds)
        with tempfile.TemporaryDirectory() as folder:
            async with ingest_rig(Path(folder)) as rig:
                fd = arena_writer.arena_fd(list(arena_chunks(streams=2, each=20)), recording=0, recorded=40 * 8)
                intake = await rig.ingest.expect(INCARNATION, EPOCH, os.getuid(), rig.folder)
                drain = rig.streamers.drain(os.getuid(), INCARNATION, EPOCH, fd)
                os.close(fd)
                await drain.finish(target_died=False)
                await intake.finished.wait()
                assert (drain.problem, intake.events) == ("", 40 * 8)
                drain.close()
                intake.close()
        await eventually(lambda before=begun: len(builds) > before)  # it went on to its end, too
    over.set()
    await building
    assert {built.why for built in builds} == {
        f"it started more than {OBSERVER_TASKS_MAX} processes and threads, and was ended"
    }
    await eventually(lambda: ended(said))


OF_ANOTHER = """
import asyncio, os, sys, tempfile
from pathlib import Path
from dataclasses import replace
from profd.observers import builder
from tests.unit.profd.observers.test_builder import wanted
from tests.support.waiting import until
from tests.unit.profd.observers.test_tasks import NOBODY, bombing, ended

with tempfile.TemporaryDirectory() as folder:
    os.chmod(folder, 0o777)
    said = Path(folder, "said")
    builder.command = lambda: bombing(said)
    whose = replace(wanted(Path(folder)), uid=NOBODY, gid=NOBODY)
    built = asyncio.run(builder.build(whose, change_identity=True))
    assert "it started more than" in built.why, built
    until(lambda: ended(said), "all of it has ended")
    print(said.read_text())
"""


@pytest.mark.skipif(bool(readable.why_not()), reason=readable.why_not())
def test_it_is_bounded_before_it_is_its_user_s() -> None:
    command = readable.command(sys.executable, "-c", OF_ANOTHER)
    said = json.loads(subprocess.check_output(command, text=True))
    status = said["status"]
    assert status.pop("Uid") == [str(NOBODY)] * 4
    # What the daemon had has gone with the identity, but for the one that keeps that user out and opens nothing.
    guard = [f"{GUARD:016x}"]
    assert status == {"Groups": [], "CapEff": guard, "CapPrm": guard, "NoNewPrivs": ["1"], "Seccomp": ["2"]}
    assert set(said["tried"].values()) <= {"EPERM", "ENOSYS"}, said["tried"]


# A daemon that is killed while a compiler of a build reads what does not end; it has said its group by then.
KILLED = """
import asyncio, json, os, signal, tempfile
from pathlib import Path
from dataclasses import replace
from profd.observers import builder
from tests.support.waiting import until
from tests.unit.profd.observers.test_builder import wanted
from tests.unit.profd.observers.test_tasks import NOBODY, compiling_for_ever, ended

with tempfile.TemporaryDirectory() as folder:
    os.chmod(folder, 0o777)
    said = Path(folder, "said")
    if not (daemon := os.fork()):
        builder.command = lambda: compiling_for_ever(said)
        whose = replace(wanted(Path(folder)), uid=NOBODY, gid=NOBODY)
        asyncio.run(builder.build(whose, change_identity=True))
        os._exit(1)
    until(lambda: said.exists() and said.stat().st_size, "a compiler runs")
    assert not ended(said)
    os.kill(daemon, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(daemon, 0)[1])
    try:
        until(lambda: ended(said), "all of it has ended")
    finally:
        if not ended(said):
            os.killpg(json.loads(said.read_text())["pid"], signal.SIGKILL)
"""
COMPILER = 'printf \'{"pid": %d}\' "$(ps -o pgid= -p $$)" > "$0"; sleep 600 & wait'


def compiling_for_ever(said: Path) -> list[str]:
    """The command of a builder whose compiler has a process of its own, as g++ has, and neither ends."""
    program = "import subprocess; from profclient.torch import builder; builder.confine(); subprocess.run("
    return [sys.executable, "-c", f"{program}{['/bin/sh', '-c', COMPILER, str(said)]!r})"]


@pytest.mark.skipif(bool(readable.why_not()), reason=readable.why_not())
def test_compilers_do_not_outlive_a_daemon_that_was_killed() -> None:
    subprocess.check_call(readable.command(sys.executable, "-c", KILLED))


# Compiles as a build does, with what the builder leaves itself, but not as the last in line for CPU.
COMPILING = """
import subprocess
from profclient.torch import builder
builder._NICE = 0
builder.confine()
for _ in range(3):
    text = "#include <map>\\n#include <string>\\n#include <regex>\\nint main() { std::map<int, int> m; }"
    subprocess.run(["g++", "-O2", "-x", "c++", "-", "-o", "/dev/null"], input=text, text=True, check=True)
"""

TOUCHED = """
import asyncio, os, subprocess, sys, tempfile
from pathlib import Path
from dataclasses import replace
from profd.observers import builder
from tests.unit.profd.observers.test_builder import wanted
from tests.unit.profd.observers.test_tasks import COMPILING, NOBODY
from tests.support import touching_program

with tempfile.TemporaryDirectory() as folder:
    os.chmod(folder, 0o777)
    builder.command = lambda: [sys.executable, "-c", COMPILING]
    whose = replace(wanted(Path(folder)), uid=NOBODY, gid=NOBODY)
    with touching_program.running(sys.executable, NOBODY) as found:
        built = asyncio.run(builder.build(whose, change_identity=True))
    assert built.why == "the builder ended with exit code 0", built
    print(found.said)
"""


@pytest.mark.skipif(bool(readable.why_not()), reason=readable.why_not())
@pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler")
def test_it_and_its_compilers_are_at_no_moment_its_user_s_to_get_into() -> None:
    command = readable.command(sys.executable, "-c", TOUCHED)
    said = json.loads(subprocess.check_output(command, text=True))
    assert {name for _, name, _ in said["seen"]} >= {"cc1plus", "g++"}
    assert said["through"] == []


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_way_to_a_task_asks_or_is_not_there(machine: str) -> None:
    built = tasks.program(machine)
    assert built is not None
    ways = {"x86_64": (56, 57, 58), "aarch64": (220,)}[machine]
    for number in ways:
        assert answer(built, machine, number) == bpf.ASK
        if machine == "x86_64":
            assert answer(built, machine, number | 1 << 30) == ENOSYS
    for number in (435, 425, 426, 427):  # clone3, io_uring
        assert answer(built, machine, number) == ENOSYS
    assert answer(built, machine, ways[0], 0x10000000) == bpf.EPERM
    assert answer(built, "x86_64" if machine == "aarch64" else "aarch64", ways[0]) == ENOSYS


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_what_the_capability_that_is_kept_is_good_for_is_refused(machine: str) -> None:
    built = tasks.program(machine)
    assert built is not None
    for number in {"x86_64": (92, 93, 94, 260), "aarch64": (54, 55)}[machine]:
        assert answer(built, machine, number) == bpf.EPERM
        if machine == "x86_64":
            assert answer(built, machine, number | 1 << 30) == ENOSYS


def test_a_machine_whose_calls_are_not_known_has_no_filter() -> None:
    assert tasks.program("riscv64") is None
    assert (tasks.program() is None) == (platform.machine() not in ("x86_64", "aarch64"))
