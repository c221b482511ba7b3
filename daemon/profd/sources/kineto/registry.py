"""Processes that poll, the answers that they may get, and the answers that they got. Pure: no sockets, no clocks.

Rules that protect the jobs (each broken one damages a training process):

- one reply per poll, and none to a poll that its client has given up on: the
  client would read it at its next poll, and every later config one poll late;
- a config only in reply to a poll whose mask says that it will be taken;
- after a reply that may have come too late, the next poll stays unanswered, so
  that the client drains the leftover.

Times are monotonic ns. A poll's age is how long ago the kernel saw it sent.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from profd import limits
from profd.fairness.shares import Holder, Refused, Share, Shares
from profd.sources.kineto.wire import Context, Poll
from profd.targets.process import ProcessId

_MS: Final = 1_000_000
STALE_AGE_NS: Final = 80 * _MS  # the client waits about 90 ms
CONFIG_AGE_NS: Final = 50 * _MS  # a config needs more margin than "nothing to do"
LATE_AGE_NS: Final = 85 * _MS  # measured after the reply left: it may have been missed
SILENT_NS: Final = 60 * 1_000_000_000
DEFAULT_PERIOD_NS: Final = 5_000_000_000
POLLING: Final = Share(
    *("polling", "processes that poll", limits.KINETO_PROCESSES_PER_UID_MAX, limits.KINETO_PROCESSES_MAX),
    reserved=limits.KINETO_PROCESSES_RESERVED,
    retry_seconds=SILENT_NS / 1e9,
)


class Drop(StrEnum):
    """Why a well-formed datagram got no answer."""

    STALE = "stale"
    CATCH_UP = "catch_up"  # withheld so that the client drains an old reply
    FLOOD = "flood"
    TABLE_FULL = "table_full"


@dataclass(frozen=True, slots=True)
class KinetoPeer:
    """The sender of a datagram according to the kernel, and the address of a reply."""

    id: ProcessId
    uid: int
    gid: int
    address: bytes | str
    mode: str  # "abstract" or "directory"


@dataclass(frozen=True, slots=True)
class Registered:
    """A process that polls. A new value at every poll; holders keep a snapshot."""

    peer: KinetoPeer
    job_id: int
    last_poll_ns: int
    polls: int = 1
    takes_config: bool = True  # the last poll's mask: no trace is active in the process
    period_ns: int | None = None  # last interval between polls; None until two were seen

    @property
    def expected_period_ns(self) -> int:
        """The period seen, or libkineto's default."""
        return self.period_ns or DEFAULT_PERIOD_NS

    def silent(self, now_ns: int) -> bool:
        """Whether it has not polled for so long that it is not counted on."""
        return now_ns - self.last_poll_ns >= max(SILENT_NS, 3 * self.expected_period_ns)


@dataclass(frozen=True, slots=True)
class HandOut:
    """A config left for a process. `late` says that it may be read one poll later than now."""

    at_ns: int
    late: bool


@dataclass(frozen=True, slots=True)
class Pending:
    """A config waiting for its process's next poll. Not handed out from `expires_ns` on."""

    token: str
    text: str
    handed: Callable[[HandOut], None]  # called once, by whoever answers polls
    expires_ns: int | None = None
    same: Callable[[], bool] = lambda: True  # whether it is still the program that it is meant for; returns at once


@dataclass(frozen=True, slots=True)
class PollReply:
    """Send this text, then say so with `Registry.sent`."""

    text: str
    pending: Pending | None = None


@dataclass(slots=True)
class _Ledger:
    """The room in a client's queue, and how often it asks."""

    address: bytes | str
    owed: int = 0  # replies sent that it may not have read: as many polls stay unanswered
    second_began_ns: int = 0
    second_polls: int = 0


class Registry:
    """Every process that polls, by host pid and start time. Not thread-safe."""

    def __init__(self, share: Share = POLLING) -> None:
        self._processes: dict[ProcessId, Registered] = {}
        self._ledgers: dict[ProcessId, _Ledger] = {}
        self._pending: dict[ProcessId, Pending] = {}
        self._share = Shares(share)
        self._instances: dict[int, dict[ProcessId, None]] = {}

    def __len__(self) -> int:
        return len(self._processes)

    def get(self, process: ProcessId) -> Registered | None:
        """The process, if it ever polled and is not forgotten."""
        return self._processes.get(process)

    def all(self) -> list[Registered]:
        """Everybody, in order of registration."""
        return list(self._processes.values())

    def submit(self, process: ProcessId, pending: Pending) -> bool:
        """Leave a config for the next poll. False if one is waiting already."""
        if process in self._pending:
            return False
        self._pending[process] = pending
        return True

    def withdraw(self, process: ProcessId, token: str) -> bool:
        """Take a config back. False if it is not there: it was handed out."""
        waiting = self._pending.get(process)
        if waiting is None or waiting.token != token:
            return False
        del self._pending[process]
        return True

    def poll(self, peer: KinetoPeer, request: Poll, age_ns: int, now_ns: int) -> PollReply | Drop:
        """Take note of a poll and say what to answer, if anything."""
        ledger = self._admit(peer, request, now_ns - age_ns)
        if isinstance(ledger, Drop):
            return ledger
        if self._floods(ledger, now_ns):
            return Drop.FLOOD
        stale = age_ns >= STALE_AGE_NS
        if ledger.owed:
            ledger.owed -= 1  # a poll without an answer drains one
            return Drop.STALE if stale else Drop.CATCH_UP
        if stale:
            return Drop.STALE
        waiting = self._pending.get(peer.id)
        if waiting is None or not request.takes_config or age_ns >= CONFIG_AGE_NS:
            return PollReply("")
        if waiting.expires_ns is not None and now_ns >= waiting.expires_ns:
            return PollReply("")
        return PollReply(waiting.text, waiting) if waiting.same() else PollReply("")

    def sent(self, peer: KinetoPeer, answer: PollReply, delivered: bool, age_ns: int, now_ns: int) -> None:
        """Note the outcome of an answer; `age_ns` is the poll's age after it was sent."""
        ledger = self._ledgers.get(peer.id)
        if not delivered or ledger is None:
            return
        late = age_ns >= LATE_AGE_NS
        if late:
            ledger.owed += 1
        pending = answer.pending
        if pending is not None:
            self._pending.pop(peer.id, None)
            pending.handed(HandOut(now_ns, late))

    def context(self, peer: KinetoPeer, request: Context) -> int:
        """Count an old client on its GPU; how many processes share it."""
        if peer.id not in self._processes or not 0 <= request.gpu < limits.KINETO_GPUS_MAX:
            return 1
        instances = self._instances.setdefault(request.gpu, {})
        instances[peer.id] = None
        return len(instances)

    def quiet(self, now_ns: int) -> list[ProcessId]:
        """Processes that missed two polls, and may have ended."""
        return [
            process
            for process, known in self._processes.items()
            if now_ns - known.last_poll_ns >= 2 * known.expected_period_ns
        ]

    def forget(self, process: ProcessId) -> None:
        """Drop one that ended, with whatever was waiting for it."""
        known = self._processes.pop(process, None)
        if known is None:
            return
        self._ledgers.pop(process, None)
        self._pending.pop(process, None)
        self._share.give_back(_holder(known.peer.uid))
        for gpu, instances in list(self._instances.items()):
            instances.pop(process, None)
            if not instances:  # a table keeps the size that it once had
                del self._instances[gpu]

    def _admit(self, peer: KinetoPeer, request: Poll, sent_ns: int) -> _Ledger | Drop:
        known = self._processes.get(peer.id)
        if known is None:
            try:
                self._share.hold(_holder(peer.uid))
            except Refused:
                return Drop.TABLE_FULL
            self._processes[peer.id] = Registered(peer, request.job_id, sent_ns, takes_config=request.takes_config)
            return self._ledgers.setdefault(peer.id, _Ledger(peer.address))
        interval = sent_ns - known.last_poll_ns
        self._processes[peer.id] = replace(
            known,
            peer=replace(peer, uid=known.peer.uid),
            job_id=request.job_id,
            last_poll_ns=max(sent_ns, known.last_poll_ns),
            polls=known.polls + 1,
            takes_config=request.takes_config,
            period_ns=interval if interval > 0 else known.period_ns,
        )
        ledger = self._ledgers[peer.id]
        if ledger.address != peer.address:  # another socket has another queue
            ledger.address, ledger.owed = peer.address, 0
        return ledger

    @staticmethod
    def _floods(ledger: _Ledger, now_ns: int) -> bool:
        if now_ns - ledger.second_began_ns >= 1_000_000_000:
            ledger.second_began_ns, ledger.second_polls = now_ns, 0
        ledger.second_polls += 1
        return ledger.second_polls > limits.KINETO_POLLS_PER_SECOND_MAX


def _holder(uid: int) -> Holder:
    """The holder of the share that a process counts in: root, the daemon, or a user."""
    return Holder(uid, reserved=uid in (0, os.geteuid()))
