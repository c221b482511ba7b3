"""docs/security.md, "Samplers": a program in py-spy's place tries what it may not."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from profd import _host
from profd.kernel import nobody
from profd.kernel.capabilities import GUARD
from profd.limits import SAMPLER_THREADS_MAX
from profd.model.capture import Options, Reason, Recording, State
from profd.sources.base import Offer, Session
from profd.sources.pyspy import filter as calls
from profd.sources.pyspy import source as source_module
from profd.sources.pyspy import tool
from profd.sources.pyspy.confinement import Confinement, confine
from profd.sources.pyspy.source import PySpySource
from profd.targets.process import Process

from tests.support import touching_program
from tests.support.bpf import ENOSYS, answer
from tests.support.python_jobs import SAMPLED_NS, SPIN, needs_ptrace, process_of, ready, running
from tests.support.waiting import until

NOBODY: Final = 65534
PROBE: Final = Path(__file__).parents[2] / "support" / "sampler_probe.py"
SHORT: Final = Options(duration_ns=SAMPLED_NS)
UNDUMPABLE: Final = "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"
ROOTS: Final = nobody.SAMPLERS

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
pytestmark = [needs_ptrace, as_root]


ANOTHER: Final[dict[str, Any]] = {"user": NOBODY, "group": NOBODY, "extra_groups": []}


def runs(*command: str) -> bool:
    """Does it for every user?"""
    try:
        return subprocess.run(command, stderr=subprocess.DEVNULL, check=False, **ANOTHER).returncode == 0
    except OSError:
        return False


@pytest.fixture(scope="module")
def python() -> str:
    """A Python that every user may run."""
    for path in (os.path.realpath(sys.executable), shutil.which("python3", path="/usr/bin")):
        if path and runs(path, "-I", "-c", ""):
            return os.path.realpath(path)
    pytest.skip("no Python here can be run by every user")


@contextlib.contextmanager
def job_of(user: int, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A user's program that has printed `ready`."""
    with ready(*command, cwd="/", **(ANOTHER if user else {})) as job:
        yield job


def not_left() -> list[int]:
    """Numbers of system calls that samplers do not have, without --native."""
    machine = platform.machine()
    built = calls.build(machine, 1, b"12345678", native=False, warden=False)
    assert built is not None
    # uretprobe and uprobe, which only a trampoline of the kernel's may call, are not filtered (Linux 6.14).
    apart = (335, 336) if machine == "x86_64" else ()
    return [number for number in range(600) if answer(built, machine, number) == ENOSYS and number not in apart]


async def probed(python: str, confinement: Confinement, *paths: str) -> dict[str, Any]:
    """What the probe found out in py-spy's place."""
    numbers = ",".join(map(str, not_left())) if not confinement.native else "1023"
    arguments = ["-I", "-S", "-c", PROBE.read_text(), str(confinement.target), str(os.getpid()), numbers, *paths]
    sampler = await tool.spawn(Path(python), arguments, confinement)
    said, complaint = await sampler.communicate()
    await tool.reap(sampler)
    assert sampler.returncode == 0, complaint.decode()
    found: dict[str, Any] = json.loads(said)
    return found


def confined(found: dict[str, Any], uid: int, capabilities: int, *, counted: bool = True) -> None:
    """It is what it should be, and could do nothing."""
    status = found.pop("status")
    assert {word for key in ("Uid", "Gid") for word in status[key]} == {str(uid)}
    assert status["Groups"] == []
    assert {int(status[key][0], 16) for key in ("CapPrm", "CapEff", "CapAmb")} == {capabilities}
    assert (status["NoNewPrivs"], status["Seccomp"]) == (["1"], ["2"])
    assert found.pop("environment") == []
    del found["sizes"]
    assert found.pop("target's memory") == "done"
    for path, came in found.pop("paths").items():
        assert came in ("EACCES", "ENOENT", "EPERM"), path
    assert found.pop("calls") == ["ENOSYS"]
    assert (found.pop("threads") == SAMPLER_THREADS_MAX) == counted
    assert set(found.values()) <= {"EPERM", "ENOSYS", "EACCES"}, found


PTRACE: Final = 1 << 19


async def test_another_user_s_process_with_a_capability_that_is_worth_nothing(python: str) -> None:
    with job_of(NOBODY, python, "-c", SPIN) as job:
        found = await probed(
            python, confine(process_of(job), native=False), "/etc/shadow", "/root/x", "/proc/1/environ"
        )
    confined(found, NOBODY, GUARD)


async def test_one_that_is_not_dumpable_with_that_capability_alone(python: str) -> None:
    with job_of(NOBODY, python, "-c", UNDUMPABLE + SPIN) as job:
        found = await probed(python, confine(process_of(job), native=False), "/etc/shadow", "/proc/1/environ")
    confined(found, NOBODY, PTRACE)


async def test_root_s_process_as_nobody_else(python: str) -> None:
    with job_of(0, python, "-c", SPIN) as job:
        confinement = confine(process_of(job), native=False)
        assert confinement.uid in ROOTS
        paths = ("/etc/shadow", f"/proc/{os.getpid()}/mem", "/proc/1/environ")
        found = await probed(python, confinement, *paths)
        another = confine(process_of(job), native=False)
    confined(found, confinement.uid, PTRACE)
    assert another.uid != confinement.uid


MAPPING: Final = """
import mmap, sys, time
with open(sys.argv[1], "rb") as file:
    memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print("ready", flush=True)
time.sleep(600)
"""


# It mounts another file over the one that it has mapped, in a namespace of its own, as every user could.
COVERING: Final = MAPPING.replace(
    "print(",
    """
import ctypes
libc = ctypes.CDLL(None)
assert libc.unshare(0x00020000) == 0
assert libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None) == 0
assert libc.mount(sys.argv[2].encode(), sys.argv[1].encode(), None, 0x1000, None) == 0
print(""",
)


async def test_a_warden_gives_what_the_target_has_mapped_and_nothing_else(python: str, tmp_path: Path) -> None:
    mapped, other, swapped = (tmp_path / name for name in ("mapped", "other", "swapped"))
    for path in (mapped, other, swapped):
        path.write_bytes(b"secret" * 100)
        path.chmod(0o600)
    if subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("no mount namespaces here")
    # A name that looks like another mapping: of all line ends the kernel escapes \n alone.
    owned = other.stat()
    device = f"{os.major(owned.st_dev):x}:{os.minor(owned.st_dev):x}"
    lying = Path(f"{tmp_path}/x\r0-0 r--p 0 {device} {owned.st_ino} {other}")
    lying.parent.mkdir(parents=True)
    lying.write_bytes(b"mine")
    with (
        running(MAPPING, str(mapped)) as honest,
        running(COVERING, str(swapped), str(other)) as swapper,
        running(MAPPING, str(lying)) as liar,
    ):
        for job, allowed in ((honest, mapped), (swapper, None), (liar, None)):
            confinement = dataclasses.replace(confine(process_of(job), native=True), warden=True)
            inside = f"/proc/{job.pid}/root{mapped}"
            found = await probed(python, confinement, "/etc/shadow", inside, *map(str, (mapped, other, swapped)))
            wanted = {str(allowed), inside} if allowed else set()
            assert {path for path, said in found["paths"].items() if said == "done"} == wanted
            assert {path for path, size in found["sizes"].items() if size == 600} - {"/etc/shadow"} == wanted
            assert (found["ptrace of the target"], found["ptrace of another"]) == ("done", "EPERM")


async def test_native_frames_without_a_capability_are_the_kernel_s_to_refuse(python: str) -> None:
    with job_of(NOBODY, python, "-c", SPIN) as job:
        confinement = confine(process_of(job), native=True)
        assert confinement.warden
        found = await probed(python, confinement)
    assert (found["ptrace of the target"], found["ptrace of another"]) == ("done", "EPERM")
    assert found["threads"] == SAMPLER_THREADS_MAX  # by the warden's count
    assert int(found["status"]["CapEff"][0], 16) == GUARD


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("program", [SPIN, UNDUMPABLE + SPIN], ids=["dumpable", "not dumpable"])
async def test_a_sampler_is_at_no_moment_its_target_s_user_s_to_get_into(
    python: str, program: str, native: bool
) -> None:
    waits = "import sys; print('ready', flush=True); import time; time.sleep(600)"
    samplers: list[asyncio.subprocess.Process] = []
    with job_of(NOBODY, python, "-c", program) as job:
        confinement = await asyncio.to_thread(confine, process_of(job), native)
        try:
            with touching_program.running(python, NOBODY) as found:
                for _ in range(3):
                    sampler = await tool.spawn(Path(python), ["-I", "-S", "-c", waits], confinement)
                    samplers.append(sampler)
                    assert sampler.stdout is not None
                    assert await sampler.stdout.readline() == b"ready\n"
                    assert Path(f"/proc/{sampler.pid}/oom_score_adj").read_text() == "1000\n"
        finally:
            for sampler in samplers:
                await tool.reap(sampler)
    pids = {sampler.pid for sampler in samplers}
    assert {pid for pid, _, _ in found["seen"]} >= pids
    assert [one for one in found["through"] if one[0] in pids] == []


# A daemon that never gives its sampler leave to exec.
SILENT: Final = """
import asyncio, os
from pathlib import Path
from profd.sources.pyspy import tool
from profd.sources.pyspy.confinement import SAME, Confinement

async def main():
    introduced = []
    tool.Threads = introduced.append
    target = Confinement(os.getppid(), SAME, SAME, native=False, warden=False)
    await tool.spawn(Path("/bin/true"), [], target)
    (conversation,) = introduced
    print((await asyncio.to_thread(conversation.recv, 64)).split()[0].decode(), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_a_sampler_that_waits_for_leave_to_exec_ends_with_its_daemon() -> None:
    with subprocess.Popen([sys.executable, "-c", SILENT], stdout=subprocess.PIPE, text=True) as daemon:
        try:
            assert daemon.stdout is not None
            sampler = int(daemon.stdout.readline())
            ended = select.poll()
            ended.register(pidfd := os.pidfd_open(sampler), select.POLLIN)
            status = Path(f"/proc/{sampler}/status").read_text()
        finally:
            daemon.kill()
    try:
        # A handler of Python's would only note a signal that comes just before the wait begins.
        (caught,) = (int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt:"))
        assert not caught >> (signal.SIGINT - 1) & 1
        until(lambda: ended.poll(0), "the sampler has ended")
    finally:
        os.close(pidfd)


WIDEN: Final = """
import os, sys
for pid in map(int, sys.argv[1:]):
    try:
        os.sched_setaffinity(pid, range(os.cpu_count()))
    except OSError as error:
        print(error.errno)
    else:
        print("done")
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="takes two cores")
@pytest.mark.parametrize("native", [True, False])
async def test_a_sampler_and_its_warden_stay_on_their_cores_whatever_their_user_does(python: str, native: bool) -> None:
    waits = "import sys; print('ready', flush=True); import time; time.sleep(600)"
    with job_of(NOBODY, python, "-c", SPIN) as job:
        confinement = await asyncio.to_thread(confine, process_of(job), native)
        cores = frozenset({max(os.sched_getaffinity(0))})
        confinement = dataclasses.replace(confinement, cores=cores)
        sampler = await tool.spawn(Path(python), ["-I", "-S", "-c", waits], confinement)
        try:
            assert sampler.stdout is not None
            assert await sampler.stdout.readline() == b"ready\n"
            both = [sampler.pid, *(warden.pid for warden in tool._wardens.values())]
            assert len(both) == 1 + native
            assert [frozenset(os.sched_getaffinity(pid)) for pid in both] == [cores] * len(both)
            tried = subprocess.run(
                [python, "-c", WIDEN, str(sampler.pid)], stdout=subprocess.PIPE, check=True, **ANOTHER
            )
            assert tried.stdout == b"1\n"
            assert os.sched_getaffinity(sampler.pid) == cores
        finally:
            await tool.reap(sampler)


@pytest.mark.parametrize("native", [True, False])
async def test_cores_that_are_gone_keep_no_sampler_from_its_work(python: str, native: bool) -> None:
    with job_of(NOBODY, python, "-c", SPIN) as job:
        confinement = await asyncio.to_thread(confine, process_of(job), native)
        found = await probed(python, dataclasses.replace(confinement, cores=frozenset({8191})))
    assert found["target's memory"] == "done"


async def sampled(process: Process, folder: Path, options: Options = SHORT) -> Recording:
    source = PySpySource()
    await source.open()
    session = Session("capture", folder, asyncio.Event(), lambda state, doing: None)
    return await source.record(process, options, session)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("program", [SPIN, UNDUMPABLE + SPIN], ids=["dumpable", "not dumpable"])
async def test_another_user_s_process_is_sampled(
    python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, native: bool
) -> None:
    for look in ("permission", "permission_now"):
        monkeypatch.setattr(source_module, look, lambda *_: Offer(True))
    with job_of(NOBODY, python, "-c", program) as job:
        recording = await sampled(process_of(job), tmp_path, dataclasses.replace(SHORT, native=native))
    assert (recording.state, recording.reason, recording.message) == (State.DRAINING, Reason.NONE, "")
    (file,) = recording.files
    assert os.stat(file.path).st_uid == 0


async def test_a_process_in_a_user_namespace_is_sampled(python: str, tmp_path: Path) -> None:
    if not runs("unshare", "--user", "--map-root-user", "true"):
        pytest.skip("no user namespaces here")
    with job_of(NOBODY, "unshare", "--user", "--map-root-user", python, "-c", SPIN) as job:
        recording = await sampled(process_of(job), tmp_path)
    assert (recording.state, recording.reason, recording.message) == (State.DRAINING, Reason.NONE, "")


LESS: Final = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
held = int(sys.argv[3])
for capability in range(41):
    assert held >> capability & 1 or libc.prctl(24, capability, 0, 0, 0) == 0
with open("/proc/self/status") as file:
    held &= next(int(line.split()[1], 16) for line in file if line.startswith("CapPrm:"))
low, high = held & 0xFFFFFFFF, held >> 32
assert libc.capset(struct.pack("=Ii", 0x20080522, 0), struct.pack("=6I", low, low, 0, high, high, 0)) == 0

import asyncio
from pathlib import Path
from profd.sources.pyspy import source as source_module
from profd.sources.pyspy.permission import Rights
from tests.integration.pyspy.test_confinement import sampled
from profd.model.capture import Options
from profd.targets.table import ProcessTable

async def main():
    process = ProcessTable().get(int(sys.argv[1]))
    recording = await sampled(process, Path(sys.argv[2]))
    print(recording.state.name, recording.reason.name, recording.message)
    if recording.state.name == "REFUSED":  # and where that had not been foretold:
        source_module.permission = source_module.permission_now = lambda *_: source_module.Offer(True)
        recording = await sampled(process, Path(sys.argv[2]))
        print(recording.state.name, recording.reason.name, recording.message)

asyncio.run(main())
"""


CAPABILITIES: Final = ("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
UNIT: Final = sum(1 << CAPABILITIES.index(name) for name in CAPABILITIES if name != "FSETID") | PTRACE
EVERYTHING: Final = (1 << 41) - 1


def with_less(folder: Path, held: int, *inside: str) -> list[str]:
    """What becomes of a capture of root's process by a daemon with these capabilities."""
    with running(SPIN) as job:
        command = [*inside, sys.executable, "-c", LESS, str(job.pid), str(folder), str(held)]
        return subprocess.check_output(command, text=True).splitlines()


def test_the_capabilities_of_the_unit_are_enough(tmp_path: Path) -> None:
    assert with_less(tmp_path, UNIT) == ["DRAINING NONE "]


@pytest.mark.parametrize(
    ("held", "foretold", "said"),
    [
        (EVERYTHING & ~PTRACE, "without CAP_SYS_PTRACE", "not read process"),
        (UNIT & ~(7 << 5), "without CAP_KILL, CAP_SETGID, CAP_SETUID", "the sampler could not become uid"),
    ],
)
def test_a_daemon_in_a_container_without_them_refuses(tmp_path: Path, held: int, foretold: str, said: str) -> None:
    first, second = with_less(tmp_path, held)
    assert first.startswith("REFUSED NOT_PERMITTED")
    assert foretold in first
    assert second.startswith("REFUSED NOT_PERMITTED")
    assert said in second


AS_USER: Final = """
import asyncio, json, sys
from pathlib import Path
import profd
profd.__path__.append(sys.argv.pop(1))
from profd.sources.pyspy.confinement import confine
from profd.targets.table import ProcessTable
from tests.integration.pyspy.test_confinement import probed, sampled

async def main():
    pid, other, folder = sys.argv[1:]
    process = ProcessTable().get(int(pid))
    found = await probed(sys.executable, confine(process, native=False), "/etc/shadow")
    recordings = [await sampled(ProcessTable().get(int(one)), Path(folder)) for one in (pid, other)]
    print(json.dumps([found, *((one.state.name, one.message) for one in recordings)]))

asyncio.run(main())
"""


def test_the_daemon_of_one_user(python: str) -> None:
    if not runs(python, "-c", f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"):
        pytest.skip("the Python that every user may run is of another version")
    paths = [path or os.getcwd() for path in sys.path if not path.startswith(sys.base_prefix)]
    found = tool.find()
    assert found is not None
    with (
        tempfile.TemporaryDirectory() as folder,
        job_of(NOBODY, python, "-c", SPIN) as job,
        job_of(0, python, "-c", SPIN) as other,
    ):
        os.chmod(folder, 0o777)
        native = str(Path(_host.__file__).parent)  # an installation in place has it apart
        command = [python, "-c", AS_USER, native, str(job.pid), str(other.pid), folder]
        environment = {"PYTHONPATH": ":".join(paths), "PATH": f"{found.parent}:{os.environ['PATH']}"}
        said = subprocess.check_output(command, env=environment, **ANOTHER)
    tried, own, another = json.loads(said)
    confined(tried, NOBODY, 0, counted=False)
    assert own == ["DRAINING", ""]
    assert another[0] == "REFUSED"
    assert "without CAP_SYS_PTRACE" in another[1]


def test_a_daemon_in_a_user_namespace_with_one_user_refuses(tmp_path: Path) -> None:
    if not runs("unshare", "--user", "--map-root-user", "true"):
        pytest.skip("no user namespaces here")
    (said, *_) = with_less(tmp_path, EVERYTHING, "unshare", "--user", "--map-root-user")
    assert said.startswith("REFUSED NOT_PERMITTED")
    assert "may not be read" in said
    assert "give it CAP_SYS_PTRACE" in said
