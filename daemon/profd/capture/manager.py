"""Captures from request to terminal state: the one place that holds them all.

A CaptureRecord for each capture is durable; a TargetRun for each target that is not terminal is live. One process is
held by one capture at a time. All methods run on the event loop's thread; only /proc and the disk are read and written
in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from profd.capture import admission
from profd.capture.afterwards import Afterwards, OnLoad
from profd.capture.book import Book
from profd.capture.estimate import HostHeadroom
from profd.capture.ids import new_id
from profd.capture.machine import Decline, Machine
from profd.capture.planner import ManagerSettings, Planner, Request, TargetPlan
from profd.capture.ports import Ended, Processes, Records, Storing
from profd.capture.recorded_seconds import RecordedSeconds
from profd.capture.records import CaptureRecord, TargetRecord
from profd.capture.recovery import Recovery, counted_late
from profd.capture.run import RunParts, SourceOrder, TargetRun
from profd.capture.switch import Switch
from profd.capture.watch import ClientLease, Watchers
from profd.errors import Denied, Exhausted, NotFound, Unavailable
from profd.gpu.sidecar import BeginSidecar
from profd.journal.journal import Journal, Key
from profd.limits import CAPTURE_WINDOW_MAX_NS
from profd.model.capture import Cost, Loss, Options, Reason, State
from profd.sources.base import Plan, Source
from profd.targets.process import ProcessId
from profd.trust.audit_line import Audit
from profd.trust.caller import Caller

log = logging.getLogger("profd.capture")

LET_GO_SECONDS: Final = 15.0
DEADLINE_DEFAULT_NS: Final = 120 * 1_000_000_000  # beyond the window, for a plan that names none


class CaptureManager:
    """See the module. `open` before use, `close` at the end."""

    def __init__(
        self,
        *,
        sources: Sequence[Source],
        table: Processes,
        records: Records,
        storing: Storing,
        journal: Journal,
        audit: Audit,
        switch: Switch,
        headroom: HostHeadroom,
        ended: Ended,
        settings: ManagerSettings,
        begin_sidecar: BeginSidecar = lambda process, options: None,
        on_load: OnLoad = lambda source, load: None,
    ) -> None:
        self.switch = switch
        self._audit = audit
        self._headroom = headroom
        self._settings = settings
        self._parts = RunParts(journal, storing, ended, settings.graces, begin_sidecar)
        self._book = Book(records, storing, journal, settings.now_ns, self._changed)
        self._afterwards = Afterwards(on_load, self._book.schedule)
        self._held: dict[ProcessId, CaptureRecord] = {}
        self.planner = Planner(sources, table, headroom, settings, self._held)
        self._runs: dict[str, dict[ProcessId, TargetRun]] = {}
        self._watchers: dict[str, Watchers] = {}
        self.on_changed: set[Callable[[CaptureRecord], None]] = set()  # of who watches all captures
        self._leases: dict[str, ClientLease] = {}
        self._recorded = RecordedSeconds()
        self._launching: dict[str, tuple[Reason, str] | None] = {}  # with the stop that came meanwhile
        self._starting: dict[tuple[int, str], asyncio.Task[CaptureRecord]] = {}
        self._admins = 0  # how often their group has changed
        self._by_rights: set[str] = set()  # live captures with processes that their own user could not sample
        self._closing = False
        self._recovery = Recovery(settings.graces, ended)
        self._unstored: list[TargetRun] = []

    async def open(
        self, returning: Collection[Key] = (), salvaging: Mapping[Key, asyncio.Event] = MappingProxyType({})
    ) -> None:
        """Read what an earlier daemon left. What it left unfinished ends here, with the reason, or goes on:
        what had only to be stored with `go_on`, what is `returning` as `returned` and `recovered` will tell, and what
        is `salvaging` once that is set.
        """
        for record, target in await self._book.open(returning, salvaging):
            run = self._new_run(record, target)
            if target.state is State.COLLATING:
                self._unstored.append(run)
                continue
            self._held[target.process] = record
            key = record.id, target.process
            if key in salvaging:
                self._recovery.expect_file(key, run, salvaging[key], partial(self._book.found, record))
            else:
                self._recovery.expect(key, run)

    def go_on(self) -> None:
        """Store what an earlier daemon had at hand. Once the sockets are there: while gRPC binds, the umask of the
        whole daemon is such that nobody could enter a directory that is made then.
        """
        for run in self._unstored:
            run.retry()
        self._unstored.clear()

    @property
    def active(self) -> int:
        """Captures that are not terminal."""
        return len(self._live())

    def _live(self) -> list[CaptureRecord]:
        """Found by what runs: a thousand captures that have ended are not looked at for each that begins."""
        records = (self._book.get(capture) for capture in {*self._runs, *self._launching})
        return [record for record in records if record is not None and not record.terminal]

    def active_sources(self) -> Counter[str]:
        """Live targets by source."""
        return Counter(run.target.source for runs in self._runs.values() for run in runs.values())

    def record(self, capture: str) -> CaptureRecord | None:
        """The capture of this id, whoever owns it: for the daemon's own parts."""
        return self._book.get(capture)

    # --- asking for captures ---

    async def start(self, caller: Caller, request: Request) -> CaptureRecord:
        """A capture for this request, running; the same one again for a request id this caller has used
        (whatever else the request says).

        Raises BadInput, NotFound and Denied (nothing to trace), Exhausted (limits) and Unavailable (switched off).
        Single targets have states for their refusals.
        """
        admission.check_untrusted_request_id(request.request_id)
        admission.check_untrusted_fleet(request.fleet)
        key = (caller.uid, request.request_id or secrets.token_hex(16))
        task = self._starting.get(key)
        if task is None:
            known = self._book.by_request(*key)
            if known is not None:
                return self._book.told(known)
            task = asyncio.get_running_loop().create_task(self._start(caller, request))
            self._starting[key] = task
            task.add_done_callback(lambda _task: self._starting.pop(key, None))
        # A caller that goes away must leave neither half a capture nor one that nobody gets who asks again.
        return await asyncio.shield(task)

    def by_request(self, uid: int, request_id: str) -> CaptureRecord | None:
        """The capture that a user's request id has led to."""
        return self._book.by_request(uid, request_id)

    async def refuse(self, caller: Caller, request: Request, why: str) -> CaptureRecord:
        """A capture that ended before it began: for a user who sees no answer, and looks for what became of it."""
        found = await self.planner.processes(caller, request.selector)
        targets = [TargetRecord.of(process, self._settings.host) for process in found.allowed]
        record = self._record(caller, request, targets)
        self._book.add(record)
        for target in targets:
            self._book.hold(record, target, target.state)
            Machine(target).handle(Decline(State.REFUSED, Reason.OVER_LIMIT, why))
        record.finished_ns = self._settings.now_ns()
        await self._book.write(record)
        return self._book.told(record)

    async def _start(self, caller: Caller, request: Request) -> CaptureRecord:
        self._check_open()
        admins = self._admins
        plans = await self.planner.estimate(caller, request)
        if caller.admin and caller.uid and admins != self._admins:
            raise Denied("profd's admin group has just been changed: ask again")
        self._check_limits(caller)
        record = self._record(caller, request, [plan.target for plan in plans])
        self._book.add(record)
        processes = [plan.target.process for plan in plans if plan.choice.source is not None]
        # Held before the first await: no second request gets between.
        self._held.update(dict.fromkeys(processes, record))
        self._afterwards.cut(processes)
        self._launching[record.id] = None
        declined = self._decline(record, plans)
        if caller.admin and not declined and any(plan.process and plan.process.private for plan in plans):
            self._by_rights.add(record.id)
        # A disk takes milliseconds. What forgets us by itself, should we die in them, need not wait for it.
        for plan in plans:
            if _self_disarming(plan):
                self._launch(record, plan, None)
        await asyncio.sleep(0)  # these begin before anything else is done: a few are told by then
        failure = await self._book.write(record)
        why = {"reason": record.reason} if record.reason else {}
        self._audit.write("capture.start", caller.uid, capture=record.id, **why, **_audited(plans))
        if failure is not None:
            self._abandon_runs(record, *failure)
        if declined and record.terminal:
            self._audit_end(record)
        for plan in plans:
            if plan.choice.source is not None and not _self_disarming(plan):
                self._launch(record, plan, failure)
        stop = self._launching.pop(record.id)
        if stop is not None:
            self._stop_runs(record, *stop)
        if record.open_ended and not record.terminal:
            self._leases[record.id] = self._new_lease(record)
        if failure is not None and any(target.state.terminal for target in record.targets):
            self._settled(record)
        return self._book.told(record)

    def _decline(self, record: CaptureRecord, plans: Sequence[TargetPlan]) -> bool:
        """End those that no source records, so that the first write has it. Whether all of them are."""
        for plan in plans:
            target, choice = plan.target, plan.choice
            if choice.source is None or choice.plan is None or plan.process is None:
                target.choice = choice.why
                self._book.hold(record, target, target.state)
                Machine(target).handle(Decline(choice.state, choice.reason, choice.message))
        if record.terminal:
            record.finished_ns = self._settings.now_ns()
        return record.terminal

    def _check_open(self) -> None:
        if self._closing:
            raise Unavailable("profd is shutting down and takes no new captures; ask again in a moment")
        self.switch.check()

    def _check_limits(self, caller: Caller) -> None:
        live = self._live()
        admission.check_active(caller, Counter(record.owner_uid for record in live))
        running = sum(_seconds(record) for record in live if record.owner_uid == caller.uid)
        if caller.uid != self._settings.operator:
            self._recorded.check(caller, running)
        disk = self._headroom.disk()
        if disk is not None and disk <= 0:
            raise Exhausted(
                "the disk of profd's store is nearly full, so no capture is started; "
                "free space (`profctl rm`), or move the state directory"
            )

    def _record(self, caller: Caller, request: Request, targets: list[TargetRecord]) -> CaptureRecord:
        return CaptureRecord(
            id=new_id(self._book.ids()),
            request_id=request.request_id,
            owner=caller.user,
            owner_uid=caller.uid,
            created_ns=self._settings.now_ns(),
            options=request.options,
            open_ended=request.open_ended,
            fleet=request.fleet,
            reason=request.reason,
            targets=targets,
        )

    def _launch(self, record: CaptureRecord, plan: TargetPlan, failure: tuple[Reason, str] | None) -> None:
        target, process, choice = plan.target, plan.process, plan.choice
        target.choice = choice.why
        if choice.source is None or choice.plan is None or process is None:
            return  # declined
        if failure is not None:
            Machine(target).handle(Decline(State.FAILED, *failure))
            self._release(record, target.process)
            return
        target.not_honoured = list(choice.not_honoured)
        target.risks = list(choice.plan.risks)
        target.traits = choice.source.declaration.traits
        order = SourceOrder(choice.source, process, record.options, choice.plan.trace_bytes)
        deadline_ns = self._deadline_ns(record.options, choice.plan)
        self._new_run(record, target).begin(order, deadline_ns, choice.plan.stop_ns)

    def _deadline_ns(self, options: Options, plan: Plan) -> int:
        """From now; plans count from the agreed start, where there is one."""
        ahead = max(0, options.start_at_ns - self._settings.now_ns()) if options.start_at_ns else 0
        longest = (options.duration_ns or CAPTURE_WINDOW_MAX_NS) + DEADLINE_DEFAULT_NS
        return ahead + (plan.deadline_ns or longest)

    def _new_run(self, record: CaptureRecord, target: TargetRecord) -> TargetRun:
        run = TargetRun(
            record,
            target,
            self._parts,
            on_change=lambda: self._changed(record),
            on_recorded=lambda: self._book.schedule(record),
            on_settled=lambda: self._target_settled(record, target, run),
            on_released=lambda: self._released(record, target),
        )
        self._runs.setdefault(record.id, {})[target.process] = run
        return run

    # --- while they run ---

    def _changed(self, record: CaptureRecord) -> None:
        watchers = self._watchers.get(record.id)
        if watchers is not None:
            watchers.notify()
        for changed in self.on_changed:
            changed(record)

    def _target_settled(self, record: CaptureRecord, target: TargetRecord, run: TargetRun) -> None:
        self._book.hold(record, target, run.before)
        self._recorded.add(record.owner_uid, run.recorded_seconds)
        self._afterwards.begin(record, target, run.load)
        log.info(
            "target ended",
            extra={"capture": record.id, "pid": target.pid, "state": target.state.label, "why": target.message},
        )
        self._settled(record)

    def _settled(self, record: CaptureRecord) -> None:
        """After any target may have become terminal: close the capture if it was the last, and write it."""
        if record.terminal and record.finished_ns is None:
            record.finished_ns = self._settings.now_ns()
            self._by_rights.discard(record.id)
            lease = self._leases.pop(record.id, None)
            if lease is not None:
                lease.end()
            self._audit_end(record)
        self._book.schedule(record)
        self._changed(record)

    def _audit_end(self, record: CaptureRecord) -> None:
        self._audit.write("capture.end", record.owner_uid, capture=record.id, state=record.state.label)

    def _released(self, record: CaptureRecord, target: TargetRecord) -> None:
        self._release(record, target.process)
        if not target.files:
            self._book.schedule(record, drop=target.process)

    def _release(self, record: CaptureRecord, process: ProcessId) -> None:
        if self._held.get(process) is record:
            del self._held[process]
        runs = self._runs.get(record.id, {})
        runs.pop(process, None)
        if not runs:
            self._runs.pop(record.id, None)

    def _new_lease(self, record: CaptureRecord) -> ClientLease:
        def lost() -> None:
            self._stop_runs(record, Reason.CLIENT_GONE, "the client that asked for it went away")

        lease = ClientLease(self._settings.lease_grace, lost)
        lease.start()
        return lease

    def _stop_runs(self, record: CaptureRecord, reason: Reason, message: str) -> None:
        if record.id in self._launching:
            self._launching[record.id] = reason, message
        for run in list(self._runs.get(record.id, {}).values()):
            run.stop(reason, message)

    def _abandon_runs(self, record: CaptureRecord, reason: Reason, message: str) -> None:
        for run in list(self._runs.get(record.id, {}).values()):
            run.abandon(reason, message)

    def end_all(self, reason: Reason, message: str) -> None:
        """Ask every live target to end now, keeping what it has: the host cannot bear it."""
        for capture in list(self._runs):
            record = self._book.get(capture)
            if record is not None:
                self._stop_runs(record, reason, message)

    def end_admins(self) -> None:
        """The admin group is another one: what its members record by its rights ends, keeping what it has: others'
        processes, and their own that the kernel keeps from them.
        """
        self._admins += 1
        for record in self._live():
            of_others = any(target.uid != record.owner_uid for target in record.targets if not target.state.terminal)
            if (of_others or record.id in self._by_rights) and record.owner_uid not in (0, self._settings.operator):
                self._stop_runs(record, Reason.CANCELLED_BY_USER, "profd's admin group was changed")

    # --- what callers do with theirs ---

    def get(self, caller: Caller, prefix: str = "") -> CaptureRecord:
        """A capture of the caller's (an admin's: anybody's) by id, prefix, or the caller's latest if empty.

        Others' captures are NotFound. The record may be the live one: read it at once.
        """
        return self._book.told(self._book.find(caller, prefix))

    def list(self, caller: Caller, limit: int) -> Sequence[CaptureRecord]:
        """Newest first."""
        return [self._book.told(record) for record in self._book.visible(caller)[:limit]]

    def current(self, caller: Caller, ended: int) -> Sequence[CaptureRecord]:
        """The captures that run, and so many that ended last; newest first."""
        visible = [self._book.told(record) for record in self._book.visible(caller)]
        over = [record.id for record in visible if record.terminal][:ended]
        return [record for record in visible if not record.terminal or record.id in over]

    def passed(self, capture: str, process: ProcessId) -> Sequence[tuple[State, int]]:
        """The states of a target that is not over, and the Unix ns at which each began; empty: it is over."""
        run = self._runs.get(capture, {}).get(process)
        return run.passed if run is not None else ()

    def stop(self, caller: Caller, prefix: str = "") -> CaptureRecord:
        """Ask every live target to end. Sources that cannot stop say so and run to their window's end.

        Without an id it is the caller's latest that still runs; NotFound where none does.
        """
        record = self._book.find(caller, prefix) if prefix else self._running(caller)
        self._audit.write("capture.stop", caller.uid, capture=record.id)
        self._stop_runs(record, Reason.CANCELLED_BY_USER, f"stopped by {caller.user}")
        return self._book.told(record)

    def _running(self, caller: Caller) -> CaptureRecord:
        own = (r for r in self._book.visible(caller) if r.owner_uid == caller.uid)
        running = next((record for record in own if not record.terminal), None)
        if running is None:
            latest = self._book.find(caller, "")
            raise NotFound(
                f"none of your captures is running: there is nothing to stop. The latest, {latest.id}, ended as "
                f"{latest.state.name.lower()}; `profctl show {latest.id}` shows it"
            )
        return running

    async def retry(self, caller: Caller, prefix: str = "") -> CaptureRecord:
        """Decode what failed targets left in the journal once more. Unavailable if there is nothing."""
        record = self._book.find(caller, prefix)
        failed = [target for target in record.targets if target.state is State.FAILED]
        targets = [target for target in failed if await self._book.has_raw(record, target)]
        if not record.terminal:
            raise Unavailable(f"capture {record.id} is still running; wait for it (`profctl wait {record.id}`)")
        if not targets or self._closing:
            raise Unavailable(f"capture {record.id} has no raw data that could be decoded again; start a new one")
        record.finished_ns = None
        self._audit.write("capture.retry", caller.uid, capture=record.id)
        for target in targets:
            self._new_run(record, target).retry()
        await self._book.write(record)
        return self._book.told(record)

    def returned(self, capture: str, process: ProcessId) -> None:
        """A process that an earlier daemon was recording is back: what it recorded since is being taken over."""
        self._recovery.returned((capture, process))

    def recovered(self, capture: str, process: ProcessId, losses: Sequence[Loss] | None) -> None:
        """That has been done, and it is stored as far as it goes. `losses`: None where not all of it came."""
        if self._recovery.recovered((capture, process), losses) or losses is None:
            return
        # Its capture has ended: it is there for who retries that.
        record = self._book.get(capture)
        for target in record.targets if record is not None else []:
            if record is not None and target.process == process and counted_late(target, losses):
                self._book.schedule(record, None if target.files else process)

    def compared(self, capture: str, process: ProcessId, cost: Cost) -> None:
        """What it cost its process is known better now: the seconds after it have been seen, too."""
        record = self._book.get(capture)
        for target in record.targets if record is not None else []:
            if record is not None and target.process == process and target.source:
                target.cost = cost
                self._book.schedule(record)

    async def watch(
        self, caller: Caller, prefix: str = "", *, lease: bool = False
    ) -> AsyncGenerator[CaptureRecord, None]:
        """The capture now and after its changes (coalesced), until it is terminal.

        With `lease` an open-ended capture ends LEASE_GRACE_SECONDS after the
        last such iterator was closed.
        """
        record = self._book.find(caller, prefix)
        if lease and caller.uid != record.owner_uid:
            raise Denied(f"capture {record.id} is {record.owner}'s; only they can hold its lease")
        watchers = self._watchers.setdefault(record.id, Watchers())
        held = self._leases.get(record.id) if lease else None
        if held is not None:
            held.attach()
        try:
            async with contextlib.aclosing(watchers.follow(lambda: self._book.told(record))) as states:
                async for state in states:
                    yield state
        finally:
            if held is not None and record.id in self._leases:
                held.detach()
            if watchers.idle:
                self._watchers.pop(record.id, None)

    def set_enabled(self, caller: Caller, enabled: bool, why: str = "") -> None:
        """Switch captures on or off for everybody; only admins may, and who runs the daemon. Running captures go on."""
        # Root of the host is an admin; of a container it is nobody here.
        if not (caller.admin or caller.uid == self._settings.operator != 0):
            raise Denied("only root of the host and profd's admin group may switch captures on or off")
        try:
            self.switch.set(enabled, f"{why} ({caller.user})" if why else f"switched off by {caller.user}")
        except OSError as error:
            raise Unavailable(f"the switch {self.switch.file} cannot be written: {error.strerror}") from error
        self._audit.write("capture.switch", caller.uid, enabled=enabled, why=why)

    async def close(self, drain_seconds: float = 20.0) -> None:
        """Take no new captures, end the running ones (keeping what they have), then let go.

        A target that has not ended after `drain_seconds` FAILS with DAEMON_RESTARTED; its raw files stay for a retry.
        A target that waits for a process to come back waits on in the next daemon.
        """
        self._closing = True
        await asyncio.gather(*self._starting.values(), return_exceptions=True)
        self._recovery.let_go()
        runs = [run for by_process in self._runs.values() for run in by_process.values()]
        for run in runs:
            run.stop(Reason.DAEMON_RESTARTED, "profd was stopped")
        ends = [asyncio.ensure_future(run.wait()) for run in runs]
        if ends:
            await asyncio.wait(ends, timeout=drain_seconds)
        self._recovery.let_go(taken_over_too=True)
        for run in runs:
            run.abandon(Reason.DAEMON_RESTARTED, "profd was stopped before this had ended")
        if ends:
            # Sources that are cut off still let go of their targets.
            _, pending = await asyncio.wait(ends, timeout=LET_GO_SECONDS)
            for end in pending:
                end.cancel()
        await self._afterwards.close()
        await self._book.close()


def _seconds(record: CaptureRecord) -> float:
    """That its live targets record at most."""
    live = sum(not target.state.terminal for target in record.targets)
    return live * (record.options.duration_ns or CAPTURE_WINDOW_MAX_NS) / 1e9


def _self_disarming(plan: TargetPlan) -> bool:
    return plan.choice.source is not None and plan.choice.source.declaration.self_disarming


def _audited(plans: Sequence[TargetPlan]) -> dict[str, list[int]]:
    denied = [plan.target.pid for plan in plans if plan.choice.reason is Reason.NOT_PERMITTED]
    return {"targets": [plan.target.pid for plan in plans if plan.target.pid not in denied], "denied": denied}
