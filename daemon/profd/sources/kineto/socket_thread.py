"""The thread that answers polls within 90 ms, whatever the event loop is doing.

A second thread, native, takes datagrams from the sockets as they come
(`_host.DatagramDrain`): their queue in the kernel is everybody's and short.
This one answers what has passed there. A third asks who unknown senders are, which may wait.
The registry is shared under one lock that nobody holds
across a system call other than a send that cannot block.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from profd import _host, limits
from profd.fairness.rare_line import RareLine
from profd.kernel import passed
from profd.sources.kineto import wire
from profd.sources.kineto.endpoints import Endpoint
from profd.sources.kineto.registry import Drop, KinetoPeer, Pending, Registered, Registry
from profd.sources.kineto.senders import Senders
from profd.targets import procfs
from profd.targets.process import ProcessId
from profd.targets.starts import starts

log = logging.getLogger(__name__)

_BATCH: Final = 64
_SWITCH_SECONDS: Final = 0.001
_COMPLAINTS_MAX: Final = 1024


class SocketThread:
    """Answers polls from `start` to `stop`. Every other method may be called from any thread."""

    def __init__(self, senders: Senders | None = None) -> None:
        """`senders`: the filter that the kernel runs before the sockets' queues, if there is one."""
        self._senders = senders or Senders()
        self._endpoints: dict[int, Endpoint] = {}
        self._registry = Registry()
        self._drain = _host.DatagramDrain(
            datagram_bytes=limits.KINETO_DATAGRAM_BYTES_MAX,
            queued=limits.KINETO_QUEUED_MAX,
            of_process=limits.KINETO_DATAGRAMS_PER_SECOND_MAX,
            of_user=limits.KINETO_DATAGRAMS_PER_UID_PER_SECOND_MAX,
            processes=limits.KINETO_SENDERS_TOLD_APART,
            users=limits.KINETO_USERS_TOLD_APART,
            interrupts=passed.may_come(),
        )
        self._passed = RareLine(log, "descriptors are passed to kineto's socket")
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._complained: set[tuple[int, str]] = set()
        self._threads = (
            threading.Thread(target=self._receive, name="kineto-drain", daemon=True),
            threading.Thread(target=self._run, name="kineto-polls", daemon=True),
            threading.Thread(target=self._introduce, name="kineto-senders", daemon=True),
        )
        self._unknown: queue.Queue[_Unknown | None] = queue.Queue(limits.KINETO_UNKNOWN_MAX)
        self._waiting: Counter[int] = Counter()  # there, by uid

    def start(self, endpoints: Sequence[Endpoint]) -> None:
        """Begin to answer. Once.

        Shortens the interpreter's switch interval for the whole process: an
        answer takes the GIL back about ten times, and beside a busy thread
        each costs one interval.
        """
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))
        self._endpoints = {endpoint.socket.fileno(): endpoint for endpoint in endpoints}
        for endpoint in endpoints:
            self._senders.attach(endpoint.socket)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Answer nobody any more; returns when the threads ended. The endpoints stay open."""
        self._drain.stop()
        self._unknown.put(None)
        for thread in self._threads:
            thread.join()

    def bound_anew(self, endpoint: Endpoint) -> None:
        """The descriptor of this endpoint is another socket now: listen to it."""
        self._senders.attach(endpoint.socket)
        self._drain.changed()  # its descriptor is the one that it had

    def get(self, process: ProcessId) -> Registered | None:
        """The facts about a process that polled."""
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
        """Datagrams since the start: `received`, `answered`, `configs`, `dropped.<reason>`; `waits` that were ended."""
        with self._lock:
            counts = self._counts.copy()
        by_reason = self._drain.counts()
        by_reason["flood"] += self._senders.dropped()
        for reason, dropped in by_reason.items():
            if dropped and reason == "waits":
                counts[reason] = dropped
            elif dropped:
                counts["received"] += dropped
                counts[f"dropped.{reason}"] += dropped
        return dict(counts)

    def forget_ended(self) -> int:
        """Drop processes that ended; how many. Reads /proc, so not from the thread that answers."""
        with self._lock:
            quiet = self._registry.quiet(time.monotonic_ns())
        ended = [process for process in quiet if starts.of(process.pid) != process.start_ticks]
        with self._lock:
            for process in ended:
                self._registry.forget(process)
        return len(ended)

    def _receive(self) -> None:
        try:
            self._drain.run(list(self._endpoints))
        except Exception:
            log.exception("kineto: datagrams are received no more")

    def _run(self) -> None:
        while waiting := self._drain.take(_BATCH):
            self._counts["received"] += len(waiting)  # by this thread alone; others only read
            try:
                self._handle([_Datagram(*fields) for fields in waiting])
            except Exception:  # one peer's datagram must not silence all others
                log.exception("kineto: a datagram could not be handled")

    def _handle(self, waiting: Sequence[_Datagram]) -> None:
        """Answer the newest request of each sender. All that waits of a sender comes at once."""
        newest: dict[tuple[int, bytes | str], tuple[KinetoPeer, wire.Poll | wire.Context, int]] = {}
        for datagram in waiting:
            endpoint = self._endpoints[datagram.descriptor]
            request = _untrusted(endpoint, datagram)
            if isinstance(request, str):
                self._drop(datagram, request)
                continue
            started = starts.known(datagram.pid)
            if not started:
                self._ask(_Unknown(endpoint, request, datagram))
                continue
            peer = _peer(endpoint, datagram, started)
            sender = datagram.descriptor, peer.address
            if newest.pop(sender, None) is not None:
                self._count(f"dropped.{Drop.STALE}")
            newest[sender] = peer, request, datagram.sent_ns
        for (descriptor, _), (peer, request, sent_ns) in newest.items():
            self._answer(self._endpoints[descriptor], peer, request, sent_ns)

    def _ask(self, unknown: _Unknown) -> None:
        """Leave a sender that was not heard of before to the thread that may wait for it."""
        uid = unknown.datagram.uid
        with self._lock:
            full = self._waiting[uid] >= limits.KINETO_UNKNOWN_PER_UID_MAX or self._unknown.full()
            if not full:
                self._waiting[uid] += 1
                self._unknown.put_nowait(unknown)
        if full:
            self._drop(unknown.datagram, "unknown_sender")

    def _introduce(self) -> None:
        """In a thread of its own: ask who senders are, which may wait, and answer those."""
        while (unknown := self._unknown.get()) is not None:
            datagram = unknown.datagram
            started = starts.of(datagram.pid)
            with self._lock:
                self._waiting[datagram.uid] -= 1
                if not self._waiting[datagram.uid]:
                    del self._waiting[datagram.uid]
            if not started:
                self._drop(datagram, "does_not_answer" if procfs.unanswering(datagram.pid) else "ended")
                continue
            peer = _peer(unknown.endpoint, datagram, started)
            try:
                self._answer(unknown.endpoint, peer, unknown.request, datagram.sent_ns)
            except Exception:  # as in the other thread
                log.exception("kineto: a datagram could not be handled")

    def _drop(self, datagram: _Datagram, reason: str) -> None:
        self._count(f"dropped.{reason}")
        if datagram.attached:
            self._passed.tell(datagram.uid, pid=datagram.pid)
        self._complain(datagram.pid, reason)

    def _answer(self, endpoint: Endpoint, peer: KinetoPeer, request: wire.Poll | wire.Context, sent_ns: int) -> None:
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

    def _send(self, endpoint: Endpoint, peer: KinetoPeer, reply: bytes) -> bool:
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
class _Datagram:
    """One that passed, and what the kernel says of it; zeros where it said nothing."""

    descriptor: int  # of the socket that it came in at
    data: bytes
    pid: int
    uid: int
    gid: int
    sent_ns: int  # Unix time
    attached: bool  # descriptors came with it
    truncated: bool
    address: bytes | str | None


@dataclass(frozen=True, slots=True)
class _Unknown:
    """A request whose sender has to be asked about."""

    endpoint: Endpoint
    request: wire.Poll | wire.Context
    datagram: _Datagram


def _untrusted(endpoint: Endpoint, datagram: _Datagram) -> wire.Poll | wire.Context | str:
    """The request, or the reason that it is not to be answered."""
    if datagram.attached:
        return "attached_descriptors"
    if datagram.truncated:
        return wire.Malformed.OVERSIZED.value
    if datagram.pid <= 0:
        return "other_pid_namespace"
    if not datagram.sent_ns:
        return "no_timestamp"
    if datagram.address is None or not endpoint.is_client(datagram.address):
        return "address"
    request = wire.parse_untrusted(datagram.data)
    if isinstance(request, wire.Malformed):
        return request.value
    return request


def _peer(endpoint: Endpoint, datagram: _Datagram, started: int) -> KinetoPeer:
    """The address is a client's: `_untrusted` has seen to that."""
    address = datagram.address or b""
    return KinetoPeer(ProcessId(datagram.pid, started), datagram.uid, datagram.gid, address, endpoint.mode)
