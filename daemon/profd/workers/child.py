"""One worker process, from the daemon's side of its socket."""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from profd import errors
from profd.errors import BadTrace, Exhausted, JobFailed, ProfdError
from profd.kernel.environment import bare_environment
from profd.kernel.identity import WorkerIdentity
from profd.kernel.rights import received_descriptors
from profd.kernel.sealed import sealed
from profd.limits import WORKER_STDERR_BYTES, MiB
from profd.workers import confine, frames
from profd.workers.gate import Gate
from profd.workers.unknown_calls import UnknownCalls

# glibc gives arrays of megabytes back to the kernel one by one, and each fault to get them again costs
# more than filling them: up to this much stays with a worker, Arrow's memory included.
_KEPT_BYTES: Final = 256 * MiB
ALLOCATOR: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(64 * MiB),
    "MALLOC_TRIM_THRESHOLD_": str(_KEPT_BYTES),
    "MALLOC_ARENA_MAX": "1",  # what one thread lets go another takes: 40 MB less at the peak of a million events
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
START_SECONDS: Final = 120.0  # a loaded machine imports slowly
EXIT_SECONDS: Final = 5.0  # between the end of the socket and the end of the process

log = logging.getLogger("profd.workers")


class WorkerGone(Exception):
    """The process ended or broke the protocol; str() continues "the worker …"."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of every worker of a pool."""

    identity: WorkerIdentity
    memory_bytes: int
    jobs: Mapping[str, str]  # name -> "module:function"
    gates: Path | None = None  # where workers get their gates; without one they reach no file of the store
    directories: tuple[str, ...] = ()  # arguments that name what they may read of it
    beside: Mapping[str, str] = field(default_factory=dict)  # the same of what may be there with one of these
    read: tuple[str, ...] = ()  # without gates: what they may read,
    change: tuple[str, ...] = ()  # and what they may change, of that
    scratch: Path | None = None  # for temporary files
    otherwise: str = "run profd --user as another user than root"  # where they cannot be confined

    @property
    def required(self) -> set[str]:
        """Words of the confinement that have to hold: nothing else keeps a worker of uid 0 from the host's files."""
        root = self.identity.uid is None and os.geteuid() == 0
        return {confine.SYSTEM_CALLS, confine.FILES} if root else set()

    def told(self, gate: Gate | None) -> str:
        """The settings as the worker is told them."""
        return json.dumps(
            {
                "parent": os.getpid(),
                "memory_bytes": self.memory_bytes,
                "uid": self.identity.uid,
                "gid": self.identity.gid,
                "jobs": dict(self.jobs),
                "gate": str(gate.path) if gate else None,
                "read": [str(gate.incoming)] if gate else self.read,
                "change": [str(gate.outgoing)] if gate else self.change,
            }
        )


class Child:
    """A running worker. One job at a time; `kill()` ends it whatever it does."""

    def __init__(self, process: subprocess.Popen[bytes], sock: socket.socket, stderr: int, gate: Gate | None) -> None:
        self._process = process
        self._sock = sock
        self._stderr: int | None = stderr
        self._unknown_calls: UnknownCalls | None = None
        self.gate = gate
        self.pid = process.pid
        self.idle = True  # no job is half-done: the socket is at a frame boundary
        self.jobs = 0
        self.rss_bytes = 0
        self.cpu_seconds = 0.0
        self.exhausted = False  # it ran out of memory once; its heap is not to be trusted
        self.confinement: list[str] = []

    @classmethod
    async def start(cls, settings: WorkerSettings) -> Child:
        """Start a process and wait until it has confined itself. Raises JobFailed."""
        child = cls._spawn(settings)
        try:
            async with asyncio.timeout(START_SECONDS):
                child.confinement = await child._ready()
        except (WorkerGone, TimeoutError, frames.FrameError, KeyError, TypeError) as error:
            why = f"it {error or 'did not answer'}"
            if said := child.said().strip():
                why += f" ({said.splitlines()[-1]})"
            await child.kill()
            raise JobFailed(f"a worker process did not start: {why}") from error
        except BaseException:
            await child.kill()
            raise
        if missing := settings.required.difference(child.confinement):
            await child.kill()
            raise JobFailed(
                f"workers with uid 0 need a kernel that gives them {' and '.join(sorted(missing))}: "
                f"{settings.otherwise}"
            )
        return child

    @classmethod
    def _spawn(cls, settings: WorkerSettings) -> Child:
        """In the thread of the event loop: the kernel ends a worker with the thread that started it."""
        with contextlib.ExitStack() as undo:
            gate = _gate(settings)
            if gate:
                undo.callback(gate.remove)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            undo.callback(ours.close)
            ours.setblocking(False)
            # Not the daemon's own, which is its log. Nobody has to read a pipe that drops what does not fit.
            said, stderr = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            undo.callback(os.close, said)
            # No argument holds the paths of thousands of traces.
            told = sealed(settings.told(gate).encode(), fcntl.F_SEAL_WRITE)
            try:
                # Popen without preexec_fn uses vfork and runs no atfork handler of gRPC's.
                process = subprocess.Popen(
                    [sys.executable, "-m", "profd.workers.process", str(theirs.fileno()), str(told.fileno())],
                    pass_fds=[theirs.fileno(), told.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    cwd="/",
                    env=_environment(gate.scratch if gate else settings.scratch),
                )
            except OSError as error:
                raise JobFailed(f"a worker process could not be started: {error}") from error
            finally:
                told.close()
                theirs.close()
                os.close(stderr)
            undo.pop_all()
        return cls(process, ours, said, gate)

    @property
    def alive(self) -> bool:
        """The process runs."""
        return self._process.poll() is None

    async def run(
        self,
        job: str,
        args: dict[str, Any],
        fds: Sequence[int],
        on_progress: Callable[[str, float], None] | None,
        *,
        lasts: bool = False,
    ) -> dict[str, Any]:
        """One job; one that `lasts` gives way to others. Raises what the job raised, JobFailed, or WorkerGone."""
        try:
            frame = frames.encode({"job": job, "args": args, "lasts": lasts}, len(fds))
        except frames.FrameError as error:
            raise JobFailed(f"the arguments of {job!r} cannot be sent: {error}") from error
        if len(fds) > frames.FDS_MAX:
            raise JobFailed(f"{len(fds)} descriptors for {job!r}, the limit is {frames.FDS_MAX}")
        self.idle = False
        self.jobs += 1
        await self._send(frame, fds)
        while True:
            answer = await self._receive()
            if "progress" in answer:
                _pass_on(answer["progress"], on_progress)
                continue
            self.idle = True
            return self._outcome(job, answer)

    def watch(self, ended: Callable[[], None]) -> None:
        """Call `ended` where the process ends, or says something, between jobs; again and again, until `unwatch`."""
        asyncio.get_running_loop().add_reader(self._sock, ended)

    def unwatch(self) -> None:
        """From now on its socket is a job's. Safe to repeat."""
        if self._sock.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._sock)

    def end(self) -> None:
        """SIGKILL. A `run()` in progress sees its socket end; `kill()` is still to be called."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def kill(self) -> None:
        """SIGKILL, reaped, socket closed. No `run()` may be in progress. Safe to repeat."""
        self.end()
        self.unwatch()
        self._sock.close()
        if self._unknown_calls is not None:
            self._unknown_calls.close()
        await self._exited()
        if self._stderr is not None:
            os.close(self._stderr)
            self._stderr = None
        if self.gate is not None:
            await asyncio.to_thread(self.gate.remove)

    def said(self) -> str:
        """The worker's stderr since the last call, as far as the pipe holds it."""
        try:
            data = os.read(self._stderr, WORKER_STDERR_BYTES) if self._stderr is not None else b""
        except OSError:  # nothing
            data = b""
        return "".join(
            letter if letter.isprintable() or letter == "\n" else "?" for letter in data.decode(errors="replace")
        )

    async def _ready(self) -> list[str]:
        """The words that hold for a worker that has confined itself; from now on it may ask for unknown calls."""
        await _readable(self._sock)
        space = socket.CMSG_SPACE(array.array("i").itemsize)
        head, ancillary, _, _ = self._sock.recvmsg(frames.HEADER.size, space, socket.MSG_CMSG_CLOEXEC)
        fds = received_descriptors(ancillary)
        if fds:
            self._unknown_calls = UnknownCalls(fds[0])
        if not head:
            raise WorkerGone(await self._how_it_ended())
        length, _ = frames.decode_header(head + await self._exactly(frames.HEADER.size - len(head)))
        return [str(word) for word in frames.decode_body(await self._exactly(length))["ready"]]

    async def _send(self, frame: bytes, fds: Sequence[int]) -> None:
        try:
            # The socket is empty between jobs: the header always fits.
            head = frame[: frames.HEADER.size]
            sent = self._sock.sendmsg([head], frames.rights(fds), socket.MSG_NOSIGNAL)
            await asyncio.get_running_loop().sock_sendall(self._sock, frame[sent:])
        except OSError as error:
            raise WorkerGone(await self._how_it_ended()) from error

    async def _receive(self) -> dict[str, Any]:
        try:
            head = await self._exactly(frames.HEADER.size)
            length, fds = frames.decode_header(head, frames.RESULT_BYTES_MAX)
            if fds:
                raise frames.FrameError("descriptors from a worker")
            return frames.decode_body(await self._exactly(length))
        except frames.FrameError as error:
            raise WorkerGone(f"broke the protocol ({error})") from error

    async def _exactly(self, count: int) -> bytes:
        loop = asyncio.get_running_loop()
        data = bytearray()
        while len(data) < count:
            try:
                piece = await loop.sock_recv(self._sock, min(count - len(data), 1 << 20))
            except OSError:
                piece = b""
            if not piece:
                raise WorkerGone(await self._how_it_ended())
            data += piece
        return bytes(data)

    async def _how_it_ended(self) -> str:
        code = await self._exited()
        if code is None:
            return "closed its socket and stays"
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
            hint = " (out of memory?)" if -code == signal.SIGKILL else ""
            return f"was ended by signal {name}{hint}"
        return f"ended with exit code {code}"

    async def _exited(self) -> int | None:
        """The exit code once the process has ended; None if it has not within EXIT_SECONDS."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._process.poll() is None:
                await asyncio.to_thread(self._process.wait, EXIT_SECONDS)
        return self._process.poll()

    def _outcome(self, job: str, answer: dict[str, Any]) -> dict[str, Any]:
        rss = answer.get("rss_bytes")
        self.rss_bytes = rss if isinstance(rss, int) else 0
        cpu = answer.get("cpu_seconds")
        self.cpu_seconds = cpu if isinstance(cpu, float) else 0.0
        self.exhausted = bool(answer.get("exhausted"))
        if "traceback" in answer:
            log.error("job failed", extra={"job": job, "traceback": str(answer["traceback"])})
        if "error" in answer:
            raise _raised(job, answer["error"])
        result = answer.get("result")
        if not isinstance(result, dict):
            raise JobFailed(f"the job {job!r} gave no result")
        return result


def _pass_on(progress: Any, on_progress: Callable[[str, float], None] | None) -> None:
    if on_progress is None:
        return
    try:
        what, share = progress
        on_progress(str(what)[:200], min(1.0, float(share)))
    except (TypeError, ValueError) as error:
        raise WorkerGone(f"broke the protocol (progress {progress!r:.80})") from error


def _raised(job: str, described: Any) -> ProfdError:
    """The error a job raised, as the same type; JobFailed for a type we do not know."""
    if not isinstance(described, dict):
        return JobFailed(f"the job {job!r} failed and did not say how")
    message = str(described.get("message", ""))
    name = str(described.get("type", ""))
    kind = getattr(errors, name, None)
    if kind is JobFailed or not (isinstance(kind, type) and issubclass(kind, ProfdError)):
        return JobFailed(f"the job {job!r} failed: {message}")
    if issubclass(kind, BadTrace):
        offset = described.get("offset")
        return kind(message, offset if isinstance(offset, int) else -1)
    return kind(message)


def _gate(settings: WorkerSettings) -> Gate | None:
    try:
        return (
            Gate(settings.gates, settings.identity, settings.directories, settings.beside) if settings.gates else None
        )
    except Exhausted as error:
        raise JobFailed(f"a worker process could not be started: {error}") from error


async def _readable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sock, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sock)


def _environment(scratch: Path | None) -> dict[str, str]:
    """Nothing of ours but what Python needs to find itself; one thread per native pool."""
    code = {"PYTHONDONTWRITEBYTECODE": "1"}  # no place to
    # Each worker is one job on one core: native pools would only add arenas and threads.
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "ARROW_IO_THREADS": "1"}
    temporary = {"TMPDIR": str(scratch)} if scratch else {}
    return {**bare_environment(), **threads, **code, **ALLOCATOR, **temporary}
