"""py-spy, the program: where it is, how it is run, what its errors mean."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import shutil
import signal
import socket
import sys
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profclient.priority import weigh_as_a_thread

from profd import _host
from profd.errors import Unavailable
from profd.kernel import passed, pidfd
from profd.limits import (
    SAMPLER_MEMORY_BYTES,
    SAMPLER_MEMORY_NATIVE_BYTES,
    SAMPLER_WORDS_BYTES_MAX,
    SAMPLERS_LEFT_MAX,
)
from profd.model.capture import Reason
from profd.sources.pyspy import filter as calls
from profd.sources.pyspy.confinement import Confinement
from profd.sources.pyspy.threads import Threads, can_be_counted
from profd.targets import procfs
from profd.targets.procfs import STATUS_BYTES, printable

VERSION_MIN: Final = (0, 4, 0)  # the first that reads Python 3.13
VERSION_SECONDS: Final = 30.0
REAP_SECONDS: Final = 10.0  # after a SIGKILL; more only in an uninterruptible sleep
CATCH_SECONDS: Final = 10.0  # after its word that it samples; microseconds, unless it is starved
_CATCH_LOOK_SECONDS: Final = 0.005
_GONE_LOOK_SECONDS: Final = 0.01  # from its end until asyncio has seen it
_LEFT_LOOK_SECONDS: Final = 1.0
FULL_SHARE: Final = 0.5
READER: Final = "stacks"  # of the programs in profd-sampler: reads stacks itself (native/sampler/stacks.h)
NAMES: Final = "names"  # names of threads (native/sampler/called.h)
UNKNOWN_STATUS: Final = 3  # of its end, where it does not know the target's interpreter
HELD_SECONDS: Final = 2.0  # after its end, for what it printed to be read
LINES_KEPT: Final = 40
LINE_BYTES_MAX: Final = 4096
_SAMPLER: Final = Path(str(_host.__file__)).with_name("profd-sampler")  # native/sampler
_VERSION: Final = re.compile(r"py-spy (\d+)\.(\d+)\.(\d+)")
_COLOUR: Final = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")

# What py-spy says (its sources, and the operating system's texts in them) -> reason, what to do.
_ERRORS: Final[tuple[tuple[str, Reason, str], ...]] = (
    (
        "the sampler could not",
        Reason.NOT_PERMITTED,
        "Samplers run without root (docs/security.md, Samplers): as root profd needs CAP_SETUID, CAP_SETGID and "
        "CAP_KILL for that, and a kernel with seccomp.",
    ),
    (
        "permission denied",
        Reason.NOT_PERMITTED,
        "The kernel forbids it: run profd as root or with CAP_SYS_PTRACE (in a container: --cap-add SYS_PTRACE).",
    ),
    (
        "operation not permitted",
        Reason.NOT_PERMITTED,
        "The kernel forbids it: run profd as root or with CAP_SYS_PTRACE "
        "(in a container: --cap-add SYS_PTRACE), and detach a debugger if there is one.",
    ),
    (
        "function not implemented",
        Reason.SOURCE_FAILED,
        "This py-spy needs a system call that samplers do not have (docs/security.md, Samplers): take another version.",
    ),
    ("no such process", Reason.TARGET_ENDED, ""),
    ("failed to get process executable name", Reason.TARGET_ENDED, ""),
    (
        "unsupported version of python",
        Reason.NO_SOURCE,
        "This py-spy does not know this version of Python: install a newer one (pip install -U py-spy).",
    ),
    (
        "failed to find",
        Reason.NO_SOURCE,
        "It has no interpreter that this py-spy knows: one that is just starting, that was built "
        "in another way (musl, stripped, 32-bit), or that is newer than this py-spy. Or its calls are more than 4,096 "
        "deep: py-spy reads no such stack (profctl start --source pyspy has its inner end, on CPython 3.11 to 3.13).",
    ),
)


def find() -> Path | None:
    """The py-spy of this environment, else of PATH; None if there is none."""
    beside = Path(sys.executable).with_name("py-spy")
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which("py-spy")
    return Path(found).absolute() if found else None


async def version(program: Path) -> str:
    """Its version, `0.4.3`. Unavailable if it does not run or is too old."""
    process = await asyncio.create_subprocess_exec(
        str(program),
        "--version",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(VERSION_SECONDS):
            said, _ = await process.communicate()
    except TimeoutError as error:
        raise Unavailable(f"{program} does not say its version within {VERSION_SECONDS:.0f} s.") from error
    finally:
        await reap(process)
    found = _VERSION.search(said[:LINE_BYTES_MAX].decode("utf-8", "replace"))
    if found is None:
        raise Unavailable(f"{program} is not a py-spy that runs; reinstall it (pip install -U py-spy).")
    numbers = tuple(int(part) for part in found.groups())
    if numbers < VERSION_MIN:
        wanted = ".".join(str(part) for part in VERSION_MIN)
        raise Unavailable(
            f"{program} is version {'.'.join(found.groups())} and profd needs {wanted}: pip install -U py-spy."
        )
    return ".".join(found.groups())


def explain(said: Iterable[str], who: str = "py-spy") -> tuple[Reason, str]:
    """The meaning of a sampler's last words: a reason, and a sentence with the words and the next action."""
    lines = [line for line in said if line]
    # `Error: …`, then `Caused by:` with the innermost cause last.
    start = next((place for place, line in enumerate(lines) if line.startswith("Error:")), max(0, len(lines) - 1))
    told = [line for line in lines[start:] if line != "Caused by:"]
    words = told[0].removeprefix("Error:").strip() if told else "it said nothing"
    if len(told) > 1:
        words += f" ({told[-1].lstrip('0123456789: ')})"
    lower = " ".join(told).lower()
    for text, reason, advice in _ERRORS:
        if text in lower:
            return reason, f"{who}: {words.rstrip('.')}. {advice}".rstrip()
    return Reason.SOURCE_FAILED, f"{who}: {words.rstrip('.')}."


async def spawn(
    program: Path | None, arguments: list[str], confinement: Confinement, what: str = "launch"
) -> asyncio.subprocess.Process:
    """Start a sampler confined, with bounded memory, interrupted when the daemon dies. Both outputs are pipes.

    With no program: `what` of the others, which confines itself as `launch` does. Raises OSError, also when too
    many of its user's have not gone.
    """
    if _left[confinement.uid] >= SAMPLERS_LEFT_MAX:
        left = f"{SAMPLERS_LEFT_MAX} earlier ones of this user were killed and have not gone (a disk that is dead?)"
        raise OSError(errno.EBUSY, f"{left}; try again when they have")
    secret = os.urandom(calls.SECRET_BYTES)
    reads = what in (READER, NAMES)
    told = _filters(os.uname().machine, confinement, None if reads else secret)
    with contextlib.ExitStack() as opened:
        # What executes nothing has no use for the number that would let it.
        said = _pipe_with((secret if program else bytes(calls.SECRET_BYTES)) + told)
        opened.callback(os.close, said)
        beside = _Beside() if reads else await _beside(confinement, opened)  # it opens and starts nothing
        who = (confinement.target, confinement.uid, confinement.gid, beside.socket)
        where = (_numbers(confinement.cores), confinement.group)
        try:
            pyspy = await asyncio.create_subprocess_exec(
                *_alone(what),
                *(str(value) for value in (os.getpid(), memory_bytes(confinement.native), *who, *where)),
                *([] if program is None else [str(program)]),
                *arguments,
                stdin=said,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=[fd for fd in (confinement.output, beside.socket) if fd is not None and fd >= 0],
                # A Ctrl-C at the terminal of a foreground daemon is not meant for it.
                start_new_session=True,
            )
        except BaseException:
            await beside.end()
            raise
        for stream in (pyspy.stdout, pyspy.stderr):
            _take_no_descriptors(stream)
        _users[pyspy] = confinement.uid
        if not confinement.native:  # while that one is out of turn, the process stands still
            weigh_as_a_thread(pyspy.pid)
        beside.belongs_to(pyspy)
        return pyspy


@dataclass(frozen=True, slots=True)
class _Beside:
    """What watches over a sampler: its warden, or the count of its threads, or neither.

    The sampler introduces itself through `socket`, -1: to nobody.
    """

    socket: int = -1
    warden: asyncio.subprocess.Process | None = None
    threads: Threads | None = None

    async def end(self) -> None:
        """There is no sampler."""
        if self.threads is not None:
            self.threads.close()
        if self.warden is not None:
            await reap(self.warden)

    def belongs_to(self, pyspy: asyncio.subprocess.Process) -> None:
        if self.warden is not None:
            _wardens[pyspy] = self.warden
        if self.threads is not None:
            _threads[pyspy] = self.threads


async def _beside(confinement: Confinement, opened: contextlib.ExitStack) -> _Beside:
    """Start it; `opened` closes the socket. Raises OSError."""
    if confinement.warden:
        mine, theirs = socket.socketpair()
        opened.enter_context(mine)
        opened.enter_context(theirs)
        warden = await _start_warden(confinement, theirs.fileno())
        _users[warden] = confinement.uid
        return _Beside(mine.fileno(), warden=warden)
    if can_be_counted():
        ours, theirs = socket.socketpair()
        opened.enter_context(theirs)
        return _Beside(theirs.fileno(), threads=Threads(ours))
    return _Beside()


def memory_bytes(native: bool) -> int:
    """Of a sampler's own, without the files that it maps."""
    return SAMPLER_MEMORY_NATIVE_BYTES if native else SAMPLER_MEMORY_BYTES


def full(pid: int, native: bool) -> bool:
    """Does it hold so much that it should write it down now? It may double what it has at once."""
    try:
        status = procfs.read_record(f"/proc/{pid}/status", STATUS_BYTES) or b""
        limits = procfs.read_record(f"/proc/{pid}/limits", STATUS_BYTES) or b""
        (held,) = (line.split()[1] for line in status.splitlines() if line.startswith(b"VmData:"))
        (most,) = (line.split()[3] for line in limits.splitlines() if line.startswith(b"Max data size"))
        return int(most) - (int(held) << 10) < memory_bytes(native) * (1 - FULL_SHARE)
    except (ValueError, IndexError):  # it is gone, or has not limited itself yet
        return False


def _filters(machine: str, confinement: Confinement, secret: bytes | None) -> bytes:
    """One that asks, and one that does not where nobody has to answer, each after its length. Raises OSError.

    Without a secret they are those of profd's own reader, which has nothing to ask.
    """
    if secret is None:
        built = [calls.build_reader(machine, confinement.target)] * 2
    else:
        built = [
            calls.build(
                *(machine, confinement.target, secret),
                native=confinement.native,
                warden=confinement.warden,
                counted=counted,
            )
            for counted in ((True,) if confinement.warden else (True, False))
        ]
    if None in built:
        raise OSError(errno.ENOSYS, f"it cannot be confined, since profd does not know the system calls of {machine}")
    told = [steps or b"" for steps in (*built, b"")][:2]
    return b"".join(len(steps).to_bytes(4, "little") + steps for steps in told)


def _numbers(cores: frozenset[int]) -> str:
    return ",".join(map(str, sorted(cores)))


async def _start_warden(confinement: Confinement, conversation: int) -> asyncio.subprocess.Process:
    """It ends with the sampler that introduces itself, or when nobody can any more."""
    return await asyncio.create_subprocess_exec(
        *_alone("warden"),
        *(str(value) for value in (os.getpid(), confinement.target, conversation, _numbers(confinement.cores))),
        confinement.group,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,  # the daemon's own is its log
        pass_fds=[conversation],
        start_new_session=True,
    )


# Of samplers that are not reaped yet.
_wardens: weakref.WeakKeyDictionary[asyncio.subprocess.Process, asyncio.subprocess.Process] = (
    weakref.WeakKeyDictionary()
)


_users: weakref.WeakKeyDictionary[asyncio.subprocess.Process, int] = weakref.WeakKeyDictionary()
_left: Final = Counter[int]()  # by user: killed, and not gone
_waiting: Final = set[asyncio.Task[None]]()  # for these
_threads: weakref.WeakKeyDictionary[asyncio.subprocess.Process, Threads] = weakref.WeakKeyDictionary()


def _take_no_descriptors(stream: asyncio.StreamReader | None) -> None:
    """Pipes of uvloop are sockets: the process that drops the last descriptor of one that lingers waits for it."""
    transport = getattr(stream, "_transport", None)
    there = None if transport is None else transport.get_extra_info("socket")
    if there is not None:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(there.fileno())) as mine:
            passed.take_none(mine)


def _alone(what: str) -> tuple[str, ...]:
    """The program: it is, or becomes, a sampler (`stacks`, `launch`), is a `warden`, or looks at `names` or `locks`."""
    return str(_SAMPLER), what


def _pipe_with(said: bytes) -> int:
    """The end from which this is read; it fits in a pipe."""
    reading, writing = os.pipe()
    os.write(writing, said)
    os.close(writing)
    return reading


async def last_lines(
    stream: asyncio.StreamReader,
    seen: Callable[[str], None] = lambda line: None,
    too_much: Callable[[], object] = lambda: None,
) -> deque[str]:
    """Read to the end; `seen` is called with every line, the last ones are returned.

    Beyond SAMPLER_WORDS_BYTES_MAX nothing is read any more, and `too_much` is called.
    """
    kept: deque[str] = deque(maxlen=LINES_KEPT)
    rest = b""
    left = SAMPLER_WORDS_BYTES_MAX
    while chunk := await stream.read(LINE_BYTES_MAX):
        left -= len(chunk)
        if left < 0:
            too_much()
            break
        await asyncio.sleep(0)  # where there is more already, reading it does not let others in
        *lines, rest = (rest + chunk).split(b"\n")
        rest = rest[-LINE_BYTES_MAX:]
        for raw in lines:
            _keep(raw, kept, seen)
    _keep(rest, kept, seen)
    return kept


def _keep(raw: bytes, kept: deque[str], seen: Callable[[str], None]) -> None:
    line = printable(_COLOUR.sub(b"", raw).strip(), LINE_BYTES_MAX).removeprefix("py-spy> ")
    if line:
        kept.append(line)
        seen(line)


async def reap(process: asyncio.subprocess.Process) -> None:
    """Kill it if it still runs, and wait for its end. Nobody else may be reading its outputs."""
    with contextlib.suppress(ProcessLookupError):
        if process.returncode is None:
            process.kill()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REAP_SECONDS):
            await gone(process)
    uid = _users.pop(process, None)
    if process.returncode is None and uid is not None:
        waits = asyncio.get_running_loop().create_task(_gone_at_last(process, uid))
        _waiting.add(waits)
        waits.add_done_callback(_waiting.discard)
    _transport(process).close()  # its pipes, too, whoever else holds them
    await asyncio.sleep(0)  # which asyncio closes in its next round
    threads = _threads.pop(process, None)
    if threads is not None:
        threads.close()
    warden = _wardens.pop(process, None)
    if warden is not None:  # it ends by itself, but need not be waited for
        await reap(warden)


async def _gone_at_last(process: asyncio.subprocess.Process, uid: int) -> None:
    """Reap it, which nobody else does once its transport is closed."""
    try:
        holder = os.pidfd_open(process.pid)
    except OSError:
        return
    _left[uid] += 1
    try:
        while os.waitid(os.P_PIDFD, holder, os.WEXITED | os.WNOHANG) is None:
            await asyncio.sleep(_LEFT_LOOK_SECONDS)
    except ChildProcessError:  # somebody did
        pass
    finally:
        _left[uid] -= 1
        os.close(holder)


async def interrupt(process: asyncio.subprocess.Process, sampling: bool) -> None:
    """Make it end by itself: one that is `sampling` writes what it has, any other ends at once.

    py-spy says that it samples before it catches SIGINT, which would kill it in between: that is waited for.
    """
    look_until = time.monotonic() + CATCH_SECONDS
    while sampling and process.returncode is None and not catches(process.pid) and time.monotonic() < look_until:
        await ended(process, _CATCH_LOOK_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        if process.returncode is None:
            process.send_signal(signal.SIGINT)


def catches(pid: int) -> bool:
    """Has the process a handler of SIGINT? True where /proc does not say."""
    status = procfs.read_record(f"/proc/{pid}/status", STATUS_BYTES) or b""
    try:
        (caught,) = (line.split()[1] for line in status.splitlines() if line.startswith(b"SigCgt:"))
        return bool(int(caught, 16) >> (signal.SIGINT - 1) & 1)
    except (ValueError, IndexError):
        return True


async def ended(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Wait for its end; False if it goes on after `seconds`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await gone(process)
    return process.returncode is not None


async def gone(process: asyncio.subprocess.Process) -> None:
    """Wait for its end, and for nothing else.

    `Process.wait` waits for that of its pipes as well in some versions of Python, and their other ends can be held by
    whoever has the sampler's uid.
    """
    with contextlib.suppress(OSError):  # reaped already, or there is no descriptor for it
        if process.returncode is None:
            await pidfd.end_of(os.pidfd_open(process.pid))
    while process.returncode is None:
        await asyncio.sleep(_GONE_LOOK_SECONDS)


def _transport(process: asyncio.subprocess.Process) -> asyncio.SubprocessTransport:
    found: asyncio.SubprocessTransport = vars(process)["_transport"]
    return found


def sampler_cpu_seconds(process: asyncio.subprocess.Process) -> float | None:
    """CPU time that it has used so far, its warden's with it; None where /proc does not say."""
    warden = _wardens.get(process)
    spent = [cpu_seconds(one.pid) for one in (process, warden) if one is not None]
    return None if None in spent else sum(seconds or 0.0 for seconds in spent)


def cpu_seconds(pid: int) -> float | None:
    """CPU time that a child of ours and its living threads have used so far; None where /proc does not say."""
    # Exact to a nanosecond, where stat counts ticks of 10 ms.
    counts = [procfs.schedstat_of(pid, task) for task in procfs.tasks_of(pid)]
    return sum(ran_ns for ran_ns, _ in filter(None, counts)) / 1e9 if counts and None not in counts else None
