"""Captures that programs ask for, of their own processes (REQUEST): one for all processes of a host that give one key.

Each is a `start` by the process's own user, and never an admin's: the same limits and shares, the same audit. Processes
of a job ask within moments of each other; what they ask is gathered, briefly, and becomes one capture. A process that
comes later gets one of its own, of the same fleet. Keys are of a user: others' never meet them.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
from dataclasses import dataclass, field, replace
from typing import Final

from profd.attached.agents.agent import Agent
from profd.attached.agents.registry import AgentRegistry
from profd.capture.manager import CaptureManager
from profd.capture.planner import Request
from profd.capture.records import CaptureRecord
from profd.errors import BadInput, ProfdError
from profd.fairness.rare_line import RareLine
from profd.fairness.rates import STARTS, Rate, Rates
from profd.fairness.shares import Holder, Refused
from profd.fairness.threads import in_thread
from profd.kernel import names
from profd.limits import (
    CAPTURE_TARGETS_MAX,
    REFUSED_CAPTURES_BURST,
    REFUSED_CAPTURES_PER_SECOND,
    WISH_BATCHES_MAX,
    WISH_GATHER_SECONDS,
    WISHES_BURST,
    WISHES_PER_SECOND,
)
from profd.model.capture import Fleet, Options
from profd.model.wish import Wish
from profd.targets import procfs
from profd.targets.process import ProcessId
from profd.targets.selector import Selector
from profd.trust.audit_line import Audit
from profd.trust.caller import Caller

_RATE: Final = Rate("program_requests", "requests of programs", WISHES_PER_SECOND, WISHES_BURST)
_KEPT_RATE: Final = Rate(
    "refused_captures", "captures that were refused", REFUSED_CAPTURES_PER_SECOND, REFUSED_CAPTURES_BURST
)

_OUTSIDE: Final = (
    "its user is not in the group that may connect to profd (`socket_group` was changed). Ask an operator of this host"
)

log = logging.getLogger("profd.capture")


@dataclass(slots=True)
class _Batch:
    """Processes of one user that give one key, and ask within moments."""

    uid: int
    key: str
    asked: dict[ProcessId, tuple[Agent, Wish]] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None

    @property
    def first(self) -> Wish:
        """What is asked is what the first one asks."""
        return next(iter(self.asked.values()))[1]

    @property
    def whole(self) -> bool:
        """Nobody else is waited for."""
        most = self.first.local or CAPTURE_TARGETS_MAX  # its word, which may be of more than a capture takes
        return len(self.asked) >= min(most, CAPTURE_TARGETS_MAX)


class AskedByPrograms:
    """`asked` is for the registry of agents."""

    def __init__(self, manager: CaptureManager, agents: AgentRegistry, audit: Audit) -> None:
        self._manager = manager
        self._agents = agents
        self._audit = audit
        self._rates = Rates(_RATE)
        self._kept = Rates(_KEPT_RATE)
        self._starts = Rates(STARTS)
        self._batches: dict[tuple[int, str], _Batch] = {}
        self._starting: dict[tuple[int, str], asyncio.Task[None]] = {}  # the last of a key
        self._refused = RareLine(log, "a program asked for a capture, and got none")
        self._group: int | None = None

    def asked(self, agent: Agent, wish: Wish) -> None:
        """One request. It is answered in any case, at once or when the capture has begun."""
        holder = Holder(agent.uid, reserved=False)  # a program is nobody's admin, whoever runs it
        try:
            self._rates.take(holder)
        except Refused as error:
            self._refuse(agent, wish, str(error))
            return
        key = wish.key or f"{agent.process.pid}.{agent.process.start_ticks}.{wish.incarnation:x}.{wish.number}"
        batch = self._batches.get((agent.uid, key))
        if batch is None:
            batch = self._batches[agent.uid, key] = _Batch(agent.uid, key)
            alone = not wish.key or wish.local == 1
            seconds = 0 if alone else WISH_GATHER_SECONDS
            batch.timer = asyncio.get_running_loop().call_later(seconds, self._begin, batch)
        before = batch.asked.get(agent.process)
        if before is not None and before[0] is agent:
            self._refuse(agent, before[1], "this process has asked with the same key again, within moments")
        batch.asked[agent.process] = agent, wish
        if batch.whole and batch.timer is not None:
            self._begin(batch)

    def keep_members(self, group: int | None) -> None:
        """Another group's members may connect (None: everybody): programs of others stay attached, and get nothing."""
        self._group = group

    def close(self) -> None:
        """Nothing is started any more."""
        for batch in self._batches.values():
            if batch.timer is not None:
                batch.timer.cancel()
        self._batches.clear()
        for task in self._starting.values():
            task.cancel()

    def _begin(self, batch: _Batch) -> None:
        if batch.timer is not None:
            batch.timer.cancel()
        key = batch.uid, batch.key
        self._batches.pop(key, None)
        task = asyncio.get_running_loop().create_task(self._start(batch, self._starting.get(key)))
        self._starting[key] = task
        task.add_done_callback(lambda done: self._over(key, done))

    def _over(self, key: tuple[int, str], done: asyncio.Task[None]) -> None:
        if self._starting.get(key) is done:
            del self._starting[key]

    async def _start(self, batch: _Batch, before: asyncio.Task[None] | None) -> None:
        wish = batch.first
        holder = Holder(batch.uid, reserved=False)
        caller = Caller(batch.uid, 0, await in_thread(holder, names.user_name, batch.uid), admin=False, pid=0)
        if before is not None:  # it may have the process already, and has a name that the next one must not take
            await asyncio.wait({before})
        # One that has ended, or runs another program since (exec), asks no more.
        there = {process: asked for process, asked in batch.asked.items() if self._agents.get(process) is asked[0]}
        named = _name(batch)
        try:
            for process, (agent, its) in list(there.items()):
                if (known := self._known(batch.uid, named, process)) is not None:
                    self._tell(known, process, agent, its)
                    del there[process]
            for process in await in_thread(holder, self._outside, caller, list(there)):
                self._refuse(*there.pop(process), _OUTSIDE)
            if not there:
                return
            self._starts.take(Holder(batch.uid, reserved=False))
            # Of the programs that ask one is looked at, as a caller is: all of a batch are in one job.
            caller = replace(caller, pid=next(iter(there)).pid)
            await self._start_of(caller, wish, self._unused(batch.uid, named), named, there)
        except ProfdError as error:
            for agent, its in there.values():
                self._refuse(agent, its, str(error))

    async def _start_of(
        self, caller: Caller, wish: Wish, request_id: str, named: str, there: dict[ProcessId, tuple[Agent, Wish]]
    ) -> None:
        options = Options(iterations=wish.iterations, duration_ns=wish.duration_ns, begin_step=wish.begin_step)
        pids = tuple(process.pid for process in there)
        many = wish.key and wish.hosts > 1  # without a key nobody elsewhere asks for the same
        fleet = Fleet(f"f{named[:12]}", socket.gethostname(), wish.hosts, "programs") if many else None
        request = Request(
            Selector(pids=pids), options, request_id, fleet=fleet, reason=wish.reason or "asked by itself"
        )
        try:
            record = await self._manager.start(caller, request)
        except BadInput:
            raise
        except ProfdError as error:
            await self._keep_refusal(caller, request, str(error))
            raise
        for process, (agent, its) in there.items():
            self._tell(record, process, agent, its)

    def _tell(self, record: CaptureRecord, process: ProcessId, agent: Agent, wish: Wish) -> None:
        target = next((target for target in record.targets if target.process == process), None)
        if target is None:
            self._refuse(agent, wish, f"capture {record.id} has no place for pid {process.pid}")
        elif target.state.terminal and not target.trace:
            self._refuse(agent, wish, target.message)
        else:
            agent.tell_granted(wish.number, capture=record.fleet.id if record.fleet else record.id)

    async def _keep_refusal(self, caller: Caller, request: Request, why: str) -> None:
        try:
            self._kept.take(Holder(caller.uid, reserved=False))
            await self._manager.refuse(caller, request, why)
        except ProfdError:
            return  # so many that nobody reads them, or the process has ended: the log and the audit have it

    def _refuse(self, agent: Agent, wish: Wish, why: str) -> None:
        self._agents.counts["requests_refused"] += 1
        self._refused.tell(agent.uid, pid=agent.process.pid, why=why, reason=wish.reason)
        self._audit.write("capture.denied", agent.uid, pid=agent.process.pid, why=why, reason=wish.reason)
        agent.tell_granted(wish.number, why=why)

    def _outside(self, caller: Caller, processes: list[ProcessId]) -> list[ProcessId]:
        """The processes among these whose users may not connect any more. In a thread: one may not answer."""
        if self._group is None:
            return []
        groups = ((process, procfs.groups_of(process.pid)) for process in processes)
        return [process for process, own in groups if not replace(caller, gid=-1, groups=own).may_connect(self._group)]

    def _known(self, uid: int, named: str, process: ProcessId) -> CaptureRecord | None:
        """The capture of this key that has the process, also of before a restart of the daemon."""
        for number in range(WISH_BATCHES_MAX):
            record = self._manager.by_request(uid, f"{named}.{number}")
            if record is not None and any(target.process == process for target in record.targets):
                return record
        return None

    def _unused(self, uid: int, named: str) -> str:
        for number in range(WISH_BATCHES_MAX):
            if self._manager.by_request(uid, f"{named}.{number}") is None:
                return f"{named}.{number}"
        raise BadInput(f"{WISH_BATCHES_MAX} captures have been made for this key already; ask with another one")


def _name(batch: _Batch) -> str:
    """The name of a key: of this user's, the same on all hosts, and nothing that a caller could have made up."""
    return hashlib.sha256(f"{batch.uid}:{batch.key}".encode()).hexdigest()[:40]
