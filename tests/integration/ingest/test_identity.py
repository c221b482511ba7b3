"""Whom a streamer runs as, and what happens when it cannot run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from profd.attached.ingest.streamer_calls import CALLS
from profd.attached.ingest.streamers import Streamers
from profd.kernel import nobody
from profd.workers import calls, landlock

from tests.support import arena_writer as writer
from tests.support import readable
from tests.support.bpf import ENOSYS, answer
from tests.support.ingest import EPOCH, INCARNATION, LONG, IngestRig, arena_chunks, ingest_rig
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
NOBODY = 65534
GROUP = 54321


@pytest.fixture
async def rig() -> AsyncIterator[IngestRig]:
    with tempfile.TemporaryDirectory() as folder:
        async with ingest_rig(Path(folder)) as rig:
            yield rig


@contextmanager
def arena() -> Iterator[int]:
    fd = writer.arena_fd(list(arena_chunks(streams=1, each=5)), recording=0, recorded=40)
    yield fd
    os.close(fd)


def effective(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


async def test_streamer_has_no_privileges_less_weight_and_nothing_of_ours(
    rig: IngestRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "of the daemon")
    with arena() as fd, (rig.folder / "open").open("wb"):
        intake = await rig.ingest.expect(INCARNATION, EPOCH, os.getuid(), rig.folder)
        drain = rig.streamers.drain(os.getuid(), INCARNATION, EPOCH, fd)
        await eventually(lambda: intake.chunks == 5)
        (pid,) = rig.streamers.pids
        status, process = effective(pid), psutil.Process(pid)
        assert (int(status["CapEff"], 16), int(status["CapPrm"], 16), status["NoNewPrivs"]) == (0, 0, "1")
        assert process.nice() >= min(os.nice(0) + 5, 19)  # these tests may have been made more urgent, or less
        assert "SECRET" not in process.environ()
        assert not [file for file in process.open_files() if str(rig.folder) in file.path]
        assert Path(f"/proc/{pid}/cgroup").read_text() == Path("/proc/self/cgroup").read_text()
        async with asyncio.timeout(LONG):
            await drain.finish(target_died=False)
        drain.close()


OF_ANOTHER = """
import asyncio, json, os, sys, tempfile
from pathlib import Path
from profd.attached.ingest.streamers import Streamers
from profd.kernel import nobody
from tests.integration.ingest.test_identity import arena, effective, tried_by
from tests.support.in_proc import descriptors
from tests.support.ingest import EPOCH, INCARNATION, ingest_rig
from tests.support.waiting import eventually

def held(pid):
    return sorted(name.partition(":[")[0] for name in descriptors(pid))

async def main(folder, owner, group):
    async with ingest_rig(folder) as rig:
        folder.chmod(0o755)
        for path in (rig.socket, folder / "control.sock"):
            os.chown(path, -1, group)
            path.chmod(0o660 if group else 0o666)
        streamers = Streamers(rig.socket, rig.ingest.find, change_identity=True)
        assert not streamers.why_not()
        with arena() as fd:
            intake = await rig.ingest.expect(INCARNATION, EPOCH, owner, folder)
            drain = streamers.drain(owner, INCARNATION, EPOCH, fd)
            await eventually(lambda: intake.chunks == 5 or drain.ended.is_set())
            if not drain.problem:
                pid = streamers.pids[0]
                told = {"status": effective(pid), "descriptors": held(pid)}
                told["tried"] = await asyncio.to_thread(tried_by, owner, pid) if owner else {}
                told["payers"] = [streamers.payer(nobody.STREAMER, pid), streamers.payer(1000, pid)]
                told["payers"].append(streamers.payer(nobody.STREAMER, 1))
                await drain.finish(target_died=False)
                print(json.dumps(told))
            print(json.dumps([drain.problem, intake.events]))
            drain.close()
            await streamers.close()

with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder), *map(int, sys.argv[1:])))
"""

BY_OWNER = """
import ctypes, errno, json, os, resource, sys
pid = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def attempt(action):
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
def traced():
    if libc.ptrace(0x4206, pid, None, None):
        raise OSError(ctypes.get_errno(), "")
print(json.dumps({
    "trace": attempt(traced), "signal": attempt(lambda: os.kill(pid, 0)), "stop": attempt(lambda: os.kill(pid, 19)),
    "limit": attempt(lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0))),
    "slow": attempt(lambda: os.setpriority(os.PRIO_PROCESS, pid, 19)),
    **{name: attempt(lambda: open(f"/proc/{pid}/{name}", "rb").read()) for name in ("mem", "environ", "maps")},
    "descriptors": attempt(lambda: os.listdir(f"/proc/{pid}/fd")),
}))
"""


def tried_by(uid: int, pid: int) -> dict[str, str]:
    """What came of it when a user did to a process what they may do to their own."""
    command = [sys.executable, "-I", "-S", "-c", BY_OWNER, str(pid)]
    said: dict[str, str] = json.loads(subprocess.check_output(command, user=uid, group=uid, extra_groups=[]))
    return said


@pytest.mark.skipif(bool(readable.why_not()), reason=readable.why_not())
@pytest.mark.parametrize(("owner", "group"), [(0, 0), (NOBODY, 0), (NOBODY, GROUP)])
def test_streamers_are_nobody_s_and_send_all_the_same(owner: int, group: int) -> None:
    """A user could make theirs fork in the daemon's cgroup; root's would own /etc/shadow, and be an admin."""
    command = readable.command(sys.executable, "-c", OF_ANOTHER, str(owner), str(group))
    said = subprocess.check_output(command, text=True).splitlines()
    assert json.loads(said[-1]) == ["", 40]
    told = json.loads(said[0])
    status, descriptors = told["status"], told["descriptors"]
    assert {*status["Uid"].split(), *status["Gid"].split()} == {str(nobody.STREAMER)}
    assert (status["Groups"], int(status["CapEff"], 16)) == (
        str(group or ""),
        0,
    )  # of the socket that is not everybody's
    assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
    assert set(told["tried"].values()) <= {"EPERM", "EACCES"}, told["tried"]
    # THEN its user pays for what it asks for, and nobody else is taken for it.
    assert told["payers"] == [owner or nobody.STREAMER, 1000, nobody.STREAMER]
    # Its input and output, its words, the arena, the link; gRPC's and the loop's own.
    known = ("/dev/null", "/memfd:profd-told (deleted)", "/memfd:arena (deleted)", "socket", "anon_inode", "pipe")
    assert {name for name in descriptors if not name.startswith(known)} == set()
    assert (descriptors.count("/dev/null"), descriptors.count("/memfd:profd-told (deleted)")) == (2, 1)


PROBE = Path(__file__).parents[2] / "support" / "streamer_probe.py"


def not_left() -> list[int]:
    """Numbers of system calls that streamers do not have."""
    machine = platform.machine()
    built = calls.program(1, ask=False, other=CALLS)
    # uretprobe and uprobe, which only a trampoline of the kernel's may call, are not filtered (Linux 6.14).
    apart = (335, 336) if machine == "x86_64" else ()
    return [number for number in range(600) if answer(built, machine, number) == ENOSYS and number not in apart]


@pytest.mark.skipif(bool(readable.why_not()), reason=readable.why_not())
def test_a_streamer_that_was_taken_over_gets_nowhere() -> None:
    """docs/security.md, "Streamers": a program in its place tries what it may not."""
    who: dict[str, Any] = {"user": nobody.STREAMER, "group": nobody.STREAMER, "extra_groups": []}
    with subprocess.Popen(["sleep", "600"], **who) as other, contextlib.ExitStack() as ending:
        ending.callback(other.kill)
        numbers = ",".join(map(str, not_left()))
        paths = ("/etc/passwd", "/etc/shadow", f"/proc/{other.pid}/mem", f"/proc/{other.pid}/environ", "/proc/self/mem")
        become = f"import os, sys; os.setgroups([]); os.setresgid(*3 * [{nobody.STREAMER}]); "
        become += f"os.setresuid(*3 * [{nobody.STREAMER}]); exec(compile(sys.stdin.read(), 'probe', 'exec'))"
        command = readable.command(sys.executable, "-P", "-c", become, str(other.pid), numbers, *paths)
        found = json.loads(subprocess.check_output(command, text=True, input=PROBE.read_text()))
    assert found.pop("may") == ["done", "done"]
    assert found.pop("calls") == ["ENOSYS"]
    read = found.pop("paths")
    assert set(read.values()) <= {"EACCES"} or not landlock.abi(), read
    assert read["/etc/shadow"] == "EACCES"
    assert set(found.values()) <= {"EPERM", "ENOSYS", "EACCES"}, found


async def test_python_that_cannot_be_run_ends_the_drain_with_its_reason(
    rig: IngestRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setattr("profd.attached.ingest.streamers.RESTART_SECONDS", 0.0)
    with arena() as fd:
        intake = await rig.ingest.expect(INCARNATION, EPOCH, os.getuid(), rig.folder)
        drain = rig.streamers.drain(os.getuid(), INCARNATION, EPOCH, fd)
        async with asyncio.timeout(LONG):
            await drain.ended.wait()
        assert "/nowhere/python" in drain.problem
        # THEN what was recorded is known to be missing.
        assert [(loss.reason, loss.count) for loss in intake.losses] == [("missing", 40)]
        drain.close()
        intake.close()


async def test_a_python_that_streamers_cannot_run_is_known_before(
    rig: IngestRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    streamers = Streamers(rig.socket, rig.ingest.find, change_identity=True)
    unreadable = "profd.attached.ingest.streamers.unreadable"
    monkeypatch.setattr(unreadable, lambda uid, gid: "/root" if uid == gid == nobody.STREAMER else "")
    assert f"uid {nobody.STREAMER} cannot read /root" in streamers.why_not()
    assert rig.streamers.why_not() == ""  # it changes no identity
    await streamers.close()


async def test_drop_lets_go_of_the_arena_and_the_streamer_stays_for_the_next(rig: IngestRig) -> None:
    with arena() as fd:
        intake = await rig.ingest.expect(INCARNATION, EPOCH, os.getuid(), rig.folder)
        drain = rig.streamers.drain(os.getuid(), INCARNATION, EPOCH, fd)
        await eventually(lambda: intake.chunks == 5)
        pids = rig.streamers.pids
        drain.close()
        intake.close()
        (rig.folder / "again").mkdir()
        intake = await rig.ingest.expect(INCARNATION, EPOCH + 1, os.getuid(), rig.folder / "again")
        other = writer.arena_fd(list(arena_chunks(1, 3)), epoch=EPOCH + 1, recording=0)
        drain = rig.streamers.drain(os.getuid(), INCARNATION, EPOCH + 1, other)
        os.close(other)
        await eventually(lambda: intake.chunks == 3)
        assert rig.streamers.pids == pids
        drain.close()


async def test_closing_all_ends_the_processes(rig: IngestRig) -> None:
    with arena() as fd:
        await rig.ingest.expect(INCARNATION, EPOCH, os.getuid(), rig.folder)
        drain = rig.streamers.drain(os.getuid(), INCARNATION, EPOCH, fd)
        await eventually(lambda: rig.streamers.pids)
        (pid,) = rig.streamers.pids
        await rig.streamers.close()
        assert not psutil.pid_exists(pid)
        assert drain.ended.is_set()
        assert "shutting down" in drain.problem
        drain.close()
