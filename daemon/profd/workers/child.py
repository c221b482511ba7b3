"""One worker process, from the daemon's side of its socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from profd import errors
from profd.errors import BadTrace, JobFailed, ProfdError
from profd.limits import MiB
from profd.workers import frames
from profd.workers.identity import WorkerIdentity

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
class Settings:
    """What every worker of a pool is started with."""

    identity: WorkerIdentity
    memory_bytes: int
    jobs: Mapping[str, str]  # name -> "module:function"

    def argument(self) -> str:
        """What the worker reads on its command line."""
        return json.dumps(
            {
                "parent": os.getpid(),
                "memory_bytes": self.memory_bytes,
                "uid": self.identity.uid,
                "gid": self.identity.gid,
                "jobs": dict(self.jobs),
            }
        )


class Child:
    """A running worker. One job at a time; `kill()` ends it whatever it does."""

    def __init__(self, process: subprocess.Popen[bytes], sock: socket.socket) -> None:
        self._process = process
        self._sock = sock
        self.pid = process.pid
        self.idle = True  # no job is half-done: the socket is at a frame boundary
        self.jobs = 0
        self.rss_bytes = 0
        self.exhausted = False  # it ran out of memory once; its heap is not to be trusted
        self.confinement: list[str] = []

    @classmethod
    async def start(cls, settings: Settings) -> Child:
        """Start a process and wait until it has confined itself. Raises JobFailed."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        try:
            with theirs:
                # Popen without preexec_fn uses vfork and runs no atfork handler of gRPC's.
                process = subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "profd.workers.process",
                        str(theirs.fileno()),
                        settings.argument(),
                    ],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    cwd="/",
                    env=_environment(),
                )
        except OSError as error:
            ours.close()
            raise JobFailed(f"a worker process could not be started: {error}") from error
        child = cls(process, ours)
        try:
            async with asyncio.timeout(START_SECONDS):
                child.confinement = [str(word) for word in (await child._receive())["ready"]]
        except (WorkerGone, TimeoutError, KeyError, TypeError) as error:
            await child.kill()
            raise JobFailed(f"a worker process did not start: it {error or 'did not answer'}") from error
        except BaseException:
            await child.kill()
            raise
        return child

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
    ) -> dict[str, Any]:
        """One job. Raises what the job raised, JobFailed, or WorkerGone."""
        try:
            frame = frames.encode({"job": job, "args": args}, len(fds))
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

    def end(self) -> None:
        """SIGKILL. A `run()` in progress sees its socket end; `kill()` is still to be called."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def kill(self) -> None:
        """SIGKILL, reaped, socket closed. No `run()` may be in progress. Safe to repeat."""
        self.end()
        self._sock.close()
        await self._exited()

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
            length, fds = frames.decode_header(await self._exactly(frames.HEADER.size))
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


def _environment() -> dict[str, str]:
    """Nothing of ours but what Python needs to find itself; one thread per native pool."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "LANG", "TZ") if name in os.environ}
    # Each worker is one job on one core: native pools would only add arenas and threads.
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "ARROW_IO_THREADS": "1"}
    return {**kept, **threads, **ALLOCATOR, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
