"""The thread that answers polls within 90 ms, whatever the event loop is doing.

It owns the sockets; the registry is shared under one lock that nobody holds
across a system call other than a send that cannot block.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import select
import socket
import struct
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from profd import limits
from profd.sources.kineto import wire
from profd.sources.kineto.endpoints import SO_TIMESTAMPNS, Endpoint
from profd.sources.kineto.floods import Floods
from profd.sources.kineto.registry import Drop, Peer, Pending, Registered, Registry
from profd.targets import procfs
from profd.targets.process import ProcessId
from profd.targets.starts import starts

log = logging.getLogger(__name__)

_CREDENTIALS: Final = struct.Struct("=iII")
_TIMESPEC: Final = struct.Struct("=qq")
# Room for exactly these two: descriptors that a peer attaches find none and are closed by the kernel.
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_TIMESPEC.size)
_BATCH: Final = 64
_FLOOD: Final = f"dropped.{Drop.FLOOD}"
_SWITCH_SECONDS: Final = 0.001
_COMPLAINTS_MAX: Final = 1024


class SocketThread:
    """Answers polls from `start` to `stop`. Every other method may be called from any thread."""

    def __init__(self) -> None:
        self._endpoints: dict[int, Endpoint] = {}
        self._registry = Registry()
        self._floods = Floods()
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._complained: set[tuple[int, str]] = set()
        self._wake = -1
        self._stopping = False
        self._anew: deque[int] = deque()
        self._thread = threading.Thread(target=self._run, name="kineto-polls", daemon=True)
        self._unknown: queue.Queue[_Unknown | None] = queue.Queue(limits.KINETO_UNKNOWN_MAX)
        self._waiting: Counter[int] = Counter()  # there, by uid
        self._introducing = threading.Thread(target=self._introduce, name="kineto-senders", daemon=True)

    def start(self, endpoints: Sequence[Endpoint]) -> None:
        """Begin to answer. Once.

        Shortens the interpreter's switch interval for the whole process: an
        answer takes the GIL back about ten times, and beside a busy thread
        each costs one interval.
        """
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))
        self._endpoints = {endpoint.socket.fileno(): endpoint for endpoint in endpoints}
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread.start()
        self._introducing.start()

    def stop(self) -> None:
        """Answer nobody any more; returns when the thread ended. The endpoints stay open."""
        self._stopping = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        self._unknown.put(None)
        self._introducing.join()
        os.close(self._wake)

    def bound_anew(self, endpoint: Endpoint) -> None:
        """The descriptor of this endpoint is another socket now: listen to it."""
        self._anew.append(endpoint.socket.fileno())
        os.eventfd_write(self._wake, 1)

    def get(self, process: ProcessId) -> Registered | None:
        """What is known of a process that polled."""
        with self._lock:
            return self._registry.get(process)

    def all(self) -> list[Registered]:
        """Every process that polled and is not forgotten."""
        with self._lock:
            return self._registry.all()

    def submit(self, process: ProcessId, pending: Pending) -> bool:
        """Leave a config for the next poll. False if one waits already."""
        with self._lock:
            return self._registry.submit(process, pending)

    def withdraw(self, process: ProcessId, token: str) -> bool:
        """Take a config back. False if it was handed out."""
        with self._lock:
            return self._registry.withdraw(process, token)

    def counts(self) -> dict[str, int]:
        """Datagrams since the start: `received`, `answered`, `configs`, and `dropped.<reason>`."""
        with self._lock:
            return dict(self._counts)

    def forget_ended(self) -> int:
        """Drop processes that ended; how many. Reads /proc, so not from the thread that answers."""
        with self._lock:
            quiet = self._registry.quiet(time.monotonic_ns())
        ended = [process for process in quiet if starts.of(process.pid) != process.start_ticks]
        with self._lock:
            for process in ended:
                self._registry.forget(process)
        return len(ended)

    def _run(self) -> None:
        with select.epoll() as poller:
            poller.register(self._wake, select.EPOLLIN)
            for descriptor in self._endpoints:
                poller.register(descriptor, select.EPOLLIN)
            while True:
                for descriptor, _ in poller.poll():
                    if descriptor == self._wake:
                        os.eventfd_read(self._wake)
                        if self._stopping:
                            return
                        while self._anew:  # the socket before is closed, and so no longer registered
                            poller.register(self._anew.popleft(), select.EPOLLIN)
                        continue
                    try:
                        self._drain(self._endpoints[descriptor])
                    except Exception:  # one peer's datagram must not silence all others
                        log.exception("kineto: a datagram could not be handled")

    def _drain(self, endpoint: Endpoint) -> None:
        """Take everything that waits, then answer the newest request of each sender."""
        newest: dict[bytes | str, tuple[Peer, wire.Poll | wire.Context, int]] = {}
        for _ in range(_BATCH):
            try:
                data, ancillary, flags, address = endpoint.socket.recvmsg(
                    limits.KINETO_DATAGRAM_BYTES_MAX + 1, _ANCILLARY_BYTES, socket.MSG_DONTWAIT
                )
            except BlockingIOError:
                break
            self._counts["received"] += 1  # by this thread alone; others only read
            sender = _ancillary(ancillary)
            if self._floods.beyond(sender.pid, sender.uid, time.monotonic_ns()):
                self._counts[_FLOOD] += 1
                continue
            request = _untrusted(endpoint, data, sender, flags, address)
            if isinstance(request, str):
                self._drop(sender, request)
                continue
            started = starts.known(sender.pid)
            if not started:
                self._ask(_Unknown(endpoint, request, sender, address))
                continue
            taken = _peer(endpoint, sender, started, address), request, sender.sent_ns
            if newest.pop(taken[0].address, None) is not None:
                self._count(f"dropped.{Drop.STALE}")
            newest[taken[0].address] = taken
        for peer, request, sent_ns in newest.values():
            self._answer(endpoint, peer, request, sent_ns)

    def _ask(self, unknown: _Unknown) -> None:
        """Leave a sender that was not heard of before to the thread that may wait for it."""
        with self._lock:
            waiting = self._waiting[unknown.sender.uid]
            full = waiting >= limits.KINETO_UNKNOWN_PER_UID_MAX or self._unknown.full()
            if not full:
                self._waiting[unknown.sender.uid] += 1
                self._unknown.put_nowait(unknown)
        if full:
            self._drop(unknown.sender, "unknown_sender")

    def _introduce(self) -> None:
        """In a thread of its own: ask who senders are, which may wait, and answer those."""
        while (unknown := self._unknown.get()) is not None:
            sender = unknown.sender
            started = starts.of(sender.pid)
            with self._lock:
                self._waiting[sender.uid] -= 1
                if not self._waiting[sender.uid]:
                    del self._waiting[sender.uid]
            if not started:
                self._drop(sender, "does_not_answer" if procfs.unanswering(sender.pid) else "ended")
                continue
            peer = _peer(unknown.endpoint, sender, started, unknown.address)
            try:
                self._answer(unknown.endpoint, peer, unknown.request, sender.sent_ns)
            except Exception:  # as in the other thread
                log.exception("kineto: a datagram could not be handled")

    def _drop(self, sender: _Sender, reason: str) -> None:
        self._count(f"dropped.{reason}")
        self._complain(sender.pid, reason)

    def _answer(self, endpoint: Endpoint, peer: Peer, request: wire.Poll | wire.Context, sent_ns: int) -> None:
        with self._lock:
            age, now = max(0, time.time_ns() - sent_ns), time.monotonic_ns()
            if isinstance(request, wire.Context):
                reply = wire.context_reply(self._registry.context(peer, request))
                self._send(endpoint, peer, reply)
                return
            answer = self._registry.poll(peer, request, age, now)
            if isinstance(answer, Drop):
                self._counts[f"dropped.{answer}"] += 1
                return
            delivered = self._send(endpoint, peer, wire.reply(answer.text))
            if delivered and answer.pending is not None:
                self._counts["configs"] += 1
            age = max(0, time.time_ns() - sent_ns)
            self._registry.sent(peer, answer, delivered, age, time.monotonic_ns())

    def _send(self, endpoint: Endpoint, peer: Peer, reply: bytes) -> bool:
        """Called with the lock held: a send that does not wait."""
        try:
            endpoint.send(reply, peer.address, peer.uid)
        except BlockingIOError:
            reason = "queue_full"  # it does not read: wedged, stopped, or not a real client
        except PermissionError:
            reason = "forged_address"
        except OSError:
            reason = "unreachable"
        else:
            self._counts["answered"] += 1
            return True
        self._counts[f"dropped.{reason}"] += 1
        self._complain(peer.id.pid, reason)
        return False

    def _count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1

    def _complain(self, pid: int, reason: str) -> None:
        """Once per peer and reason: a flood must not fill the log too."""
        if (pid, reason) in self._complained:
            return
        if len(self._complained) >= _COMPLAINTS_MAX:
            self._complained.clear()
        self._complained.add((pid, reason))
        log.warning("kineto: a datagram of pid %d was not answered: %s", pid, reason)


@dataclass(frozen=True, slots=True)
class _Sender:
    """What the kernel says of a datagram; zeros where it said nothing."""

    pid: int = 0
    uid: int = -1
    gid: int = -1
    sent_ns: int = 0  # Unix time
    attached: bool = False  # descriptors came with it


@dataclass(frozen=True, slots=True)
class _Unknown:
    """A request whose sender has to be asked about."""

    endpoint: Endpoint
    request: wire.Poll | wire.Context
    sender: _Sender
    address: Any


def _ancillary(ancillary: list[tuple[int, int, bytes]]) -> _Sender:
    pid, uid, gid, sent_ns, attached = 0, -1, -1, 0, False
    for level, kind, data in ancillary:
        if level != socket.SOL_SOCKET:
            continue
        if kind == socket.SCM_CREDENTIALS and len(data) == _CREDENTIALS.size:
            pid, uid, gid = _CREDENTIALS.unpack(data)
        elif kind == SO_TIMESTAMPNS and len(data) == _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack(data)
            sent_ns = seconds * 1_000_000_000 + nanoseconds
        elif kind == socket.SCM_RIGHTS:
            attached = True
            for offset in range(0, len(data) - 3, 4):
                with contextlib.suppress(OSError):
                    os.close(struct.unpack_from("=i", data, offset)[0])
    return _Sender(pid, uid, gid, sent_ns, attached)


def _untrusted(
    endpoint: Endpoint, data: bytes, sender: _Sender, flags: int, address: Any
) -> wire.Poll | wire.Context | str:
    """What was sent, or why that is not to be answered."""
    if sender.attached or flags & socket.MSG_CTRUNC:
        return "attached_descriptors"
    if flags & socket.MSG_TRUNC:
        return wire.Malformed.OVERSIZED.value
    if sender.pid <= 0:
        return "other_pid_namespace"
    if not sender.sent_ns:
        return "no_timestamp"
    if not endpoint.is_client(address):
        return "address"
    request = wire.parse_untrusted(data)
    if isinstance(request, wire.Malformed):
        return request.value
    return request


def _peer(endpoint: Endpoint, sender: _Sender, started: int, address: Any) -> Peer:
    return Peer(ProcessId(sender.pid, started), sender.uid, sender.gid, address, endpoint.mode)
