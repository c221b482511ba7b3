"""One streamer process, from the daemon's side of its socket (`profclient/streamer/link.py` is the other)."""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from profd.kernel.environment import bare_environment
from profd.kernel.freeing import let_go
from profd.kernel.sealed import sealed
from profd.limits import STREAMER_MESSAGE_BYTES_MAX
from profd.targets import procfs
from profd.targets.process import ProcessId
from profd.targets.procfs import printable
from profd.trust.identify import start_ticks

EXIT_SECONDS: Final = 5.0  # between the end of its socket and its own
_LOOK_SECONDS: Final = 0.01  # at whether it has ended
_WORDS_BYTES: Final = 16 << 10
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")

Key = tuple[int, int]  # incarnation, epoch


_left: Final[list[subprocess.Popen[bytes]]] = []  # could not be ended


def reap() -> int:
    """Collect processes that were left and have ended by now; returns how many have not."""
    _left[:] = [process for process in _left if process.poll() is None]
    return len(_left)


class NotStarted(Exception):
    """No process could be started; str() is a sentence."""


@dataclass(frozen=True, slots=True)
class Said:
    """A streamer's word about an arena. Untrusted."""

    word: str  # finished, failed, lead: it would allocate more
    key: Key
    why: str


class StreamerProcess:
    """A running streamer."""

    def __init__(self, process: subprocess.Popen[bytes], sock: socket.socket, words: IO[bytes]) -> None:
        self._process = process
        self._words = words
        self._sock = sock
        self._unsent: deque[tuple[bytes, int]] = deque()  # messages, and our descriptors that go with them or -1
        self.given_up = False
        self._given_up_at = 0.0
        self.pid = process.pid
        self.id = ProcessId(process.pid, start_ticks(process.pid))  # it is not reaped, so the number is its

    @classmethod
    async def start(cls, grpc_socket: Path, identity: int | None) -> StreamerProcess:
        """Start one, with this uid and gid or as the daemon is. Raises NotStarted."""
        reap()
        starting = asyncio.ensure_future(asyncio.to_thread(cls._start, grpc_socket, identity))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            process = await starting
            await process.kill()
            raise

    @classmethod
    def _start(cls, grpc_socket: Path, identity: int | None) -> StreamerProcess:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        who: dict[str, Any] = {}
        if identity is not None:
            # Set between fork and exec, in C: the program never runs with what the daemon may.
            who = {"user": identity, "group": identity, "extra_groups": _groups(grpc_socket)}
        command = [sys.executable, "-P", "-m", "profd.attached.ingest.streamer", "--link", str(theirs.fileno())]
        # Its stderr. Not the daemon's own, which is its log.
        words = sealed(b"\0" * _WORDS_BYTES)
        try:
            with theirs:
                process = subprocess.Popen(
                    [*command, "--socket", str(grpc_socket)],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=words,
                    cwd="/",
                    env=bare_environment(),
                    **who,
                )
        except OSError as error:
            ours.close()
            words.close()
            as_whom = f" as uid {identity}" if identity is not None else ""
            raise NotStarted(
                f"no streamer could be started{as_whom}: {error.strerror} ({error.filename or sys.executable}). "
                "It must be able to read and run the daemon's Python"
            ) from error
        return cls(process, ours, words)

    def cpu_seconds(self) -> float:
        """CPU time that it has used; 0 once it is gone."""
        stat = procfs.stat_of(self.pid)
        return stat.cpu_ticks / _TICKS_PER_SECOND if stat is not None and self._process.returncode is None else 0.0

    def drain(self, key: Key, fd: int, lead: int) -> None:
        """Have it drain an arena, and allocate so many bytes in it at most."""
        self._send({"do": "drain", "lead": lead}, key, os.dup(fd))

    def lead(self, key: Key, lead: int) -> None:
        """Let it allocate so many bytes, in all."""
        self._send({"do": "lead", "lead": lead}, key)

    def finish(self, key: Key, *, target_died: bool) -> None:
        """Have it take the rest of an arena."""
        self._send({"do": "finish", "target_died": target_died}, key)

    def drop(self, key: Key) -> None:
        """Have it let go of an arena."""
        self._send({"do": "drop"}, key)

    async def said(self) -> Said | None:
        """Its next word; None when it has ended, or speaks something else."""
        try:
            data = await asyncio.get_running_loop().sock_recv(self._sock, STREAMER_MESSAGE_BYTES_MAX)
        except OSError:
            return None
        return _said(data)

    async def exited(self) -> str:
        """How it ended, to continue "the streamer …"."""
        await self._reaped()
        code = self._process.poll()
        if code is None:
            return "said something that makes no sense"
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
            return f"was ended by signal {name}"
        return f"ended with exit code {code}"

    def last_words(self) -> str:
        """The last line of what it wrote to stderr, as far as there was room. Untrusted, printable."""
        if self._words.closed:
            return ""
        lines = os.pread(self._words.fileno(), _WORDS_BYTES, 0).rstrip(b"\0").strip().rpartition(b"\n")
        return printable(lines[2], _WORDS_BYTES)

    def waits(self) -> bool:
        """Whether it waits for what no signal ends, as of now: an arena's lock, which a target may hold for ever."""
        found = procfs.stat_of(self.pid)
        return found is not None and found.state == "D"

    @property
    def is_stuck(self) -> bool:
        """It was given up EXIT_SECONDS ago; as nobody has let go of it since, it cannot end."""
        return self.given_up and time.monotonic() - self._given_up_at >= EXIT_SECONDS

    def give_up(self) -> None:
        """SIGKILL, and no more orders. It may live on, and said() tells when it does not. Safe to repeat."""
        if not self.given_up:
            self.given_up, self._given_up_at = True, time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._stop_sending()

    async def kill(self) -> None:
        """SIGKILL, socket closed, reaped unless it waits for what SIGKILL does not end. Safe to repeat."""
        self.give_up()
        self._sock.close()
        self._words.close()
        await self._reaped()
        if self._process.poll() is None:
            _left.append(self._process)

    async def _reaped(self) -> None:
        """For EXIT_SECONDS. No thread waits: of those there are few, and some would wait for one user's processes."""
        until = time.monotonic() + EXIT_SECONDS
        while self._process.poll() is None and time.monotonic() < until:
            await asyncio.sleep(_LOOK_SECONDS)

    def _send(self, message: dict[str, object], key: Key, fd: int = -1) -> None:
        """Send in order, now or when there is room; `fd` is closed then."""
        if self.given_up:
            if fd >= 0:
                let_go(fd)
            return
        ids = {"incarnation": f"{key[0]:016x}", "epoch": f"{key[1]:016x}"}
        self._unsent.append((json.dumps({**message, **ids}).encode(), fd))
        if len(self._unsent) == 1:
            self._flush()

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        while self._unsent:
            data, fd = self._unsent[0]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))] if fd >= 0 else []
            try:
                self._sock.sendmsg([data], rights, socket.MSG_NOSIGNAL)
            except BlockingIOError:  # it starts, or was stopped
                loop.add_writer(self._sock.fileno(), self._flush)
                return
            except OSError:  # it has ended: said() tells
                break
            self._unsent.popleft()
            if fd >= 0:
                let_go(fd)
        self._stop_sending()

    def _stop_sending(self) -> None:
        if self._sock.fileno() >= 0:
            asyncio.get_running_loop().remove_writer(self._sock.fileno())
        while self._unsent:
            _, fd = self._unsent.popleft()
            if fd >= 0:
                let_go(fd)


def _groups(grpc_socket: Path) -> list[int]:
    """The groups that a streamer needs to connect: none, or the one that the operator has given the socket to."""
    found = grpc_socket.stat()
    return [] if found.st_mode & stat.S_IWOTH else [found.st_gid]


def _said(untrusted: bytes) -> Said | None:
    try:
        message = json.loads(untrusted)
        key = (int(message["incarnation"], 16), int(message["epoch"], 16))
        return Said(str(message["said"]), key, str(message.get("why", ""))[:1024])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
