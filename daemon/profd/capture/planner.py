"""The plan of a request: its targets, and a choice for each, made without touching any."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from profd.capture import admission
from profd.capture.choice import Choice, choose, in_order, in_turn, is_launcher
from profd.capture.estimate import HostHeadroom
from profd.capture.machine import Graces
from profd.capture.ports import Processes
from profd.capture.records import CaptureRecord, TargetRecord
from profd.errors import BadInput, Exhausted, NotFound
from profd.fairness.pieces import in_pieces, pieces
from profd.fairness.shares import Holder
from profd.fairness.threads import in_thread
from profd.limits import CAPTURE_TARGETS_MAX, PROC_STUCK_SECONDS
from profd.model.capture import Fleet, Options, ProgramSteps, Reason, State
from profd.sources.base import Offer, Source
from profd.targets import first_looks, procfs, user_namespaces
from profd.targets import selector as selectors
from profd.targets.process import Process, ProcessId
from profd.targets.selector import Families, Selector
from profd.targets.user_namespaces import Asker
from profd.trust.caller import Caller
from profd.trust.namespaces import of_container

log = logging.getLogger("profd.capture")

LEASE_GRACE_SECONDS: Final = 15.0
_USERS_TOLD: Final = 4  # in a sentence


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """How the manager behaves; tests shorten and freeze."""

    host: str
    graces: Graces = field(default_factory=Graces)
    lease_grace: float = LEASE_GRACE_SECONDS
    now_ns: Callable[[], int] = time.time_ns
    own_pids: Callable[[], Sequence[int]] = tuple  # the daemon and its workers
    operator: int = 0  # uid of whoever runs the daemon
    sidecar_risk: Callable[[Process, Options], str] = lambda process, options: ""  # of what is recorded beside a source


@dataclass(frozen=True, slots=True)
class Request:
    """A caller's request."""

    selector: Selector
    options: Options
    request_id: str = ""
    open_ended: bool = False
    fleet: Fleet | None = None
    reason: str = ""  # of the program that asks for itself


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """The plan of one target: a choice, made without touching it."""

    target: TargetRecord
    process: Process | None  # None: there is none with that pid
    choice: Choice
    permission: str


@dataclass(frozen=True, slots=True)
class Sighting:
    """A process and what each source says of it, best source first. `held` names a capture of ours; `attached`: a
    source can record it from the inside.
    """

    process: Process
    offers: list[tuple[str, Offer]]
    held: str = ""
    launcher: bool = False
    attached: bool = False


class Planner:
    """Reads the process table and asks the sources. `held` is the manager's map of who holds what."""

    def __init__(
        self,
        sources: Sequence[Source],
        table: Processes,
        headroom: HostHeadroom,
        settings: ManagerSettings,
        held: Mapping[ProcessId, CaptureRecord],
    ) -> None:
        self._sources = in_order(sources)
        self._table = table
        self._headroom = headroom
        self._settings = settings
        self._held = held

    async def estimate(self, caller: Caller, request: Request) -> list[TargetPlan]:
        """The plan of `CaptureManager.start` for each target; touches nothing. Raises what `start` raises.

        Nothing is awaited between the last look at who holds what and the end.
        """
        admission.check_untrusted_options(request.options, self._settings.now_ns(), open_ended=request.open_ended)
        selectors.check_untrusted_selector(request.selector)
        if _by_pid(request.selector):  # a look at every process of the host takes longer than all the rest
            plans = await self._estimate(caller, request, await self._named_alone(caller, request.selector))
            if not any(_needs_family(plan) for plan in plans):
                return plans
        return await self._estimate(caller, request, await self._seen(caller, request.selector))

    async def _snapshot(self, caller: Caller, selector: Selector) -> Sequence[Process]:
        """The processes among which those are that the caller may have; all of the host where an answer needs others'.

        Nobody waits for what others run: these may execute programs all the time, or be thousands.
        """
        if not caller.admin:
            owned = await in_thread(Holder.of(caller), self._owned, caller, selector)
            if self._suffices(caller, selector, owned):
                return owned
        return await in_thread(Holder.of(caller), lambda: _near(caller, self._table.snapshot()))

    def _owned(self, caller: Caller, selector: Selector) -> Sequence[Process]:
        return _near(caller, self._table.owned(caller.uid, selector.pids))

    def _suffices(self, caller: Caller, selector: Selector, owned: Sequence[Process]) -> bool:
        """Whether nothing of the answer is about others' processes, but for those that are named by pid."""
        if selector.empty or selector.pids:
            return True
        mine = {caller.user, str(caller.uid)}
        return mine.issuperset(selector.users) and bool(
            selectors.matching(selector, self._as_seen_by(caller, [p for p in owned if p.uid == caller.uid]))
        )

    async def _seen(self, caller: Caller, selector: Selector) -> Sequence[Process]:
        """A snapshot in which no process that may be meant is missing because it was asked on a busy host.

        Ranks of a job would be left out without a word.
        """
        return await _until_all_answer(
            lambda: self._snapshot(caller, selector), lambda snapshot: self._silent(caller, selector, snapshot) > 0
        )

    def _silent(self, caller: Caller, selector: Selector, snapshot: Sequence[Process]) -> int:
        """The number of processes that may be meant, by a criterion that only they can tell, and do not answer now.

        Processes of users of whom none is meant do not count: they keep nobody waiting.
        """
        if selector.empty or selector.pids:
            return 0
        owners = {process.uid for process in selectors.matching(selector, snapshot)} if caller.admin else {caller.uid}
        return procfs.silent_of(owners or None)

    async def steps(self, plans: Sequence[TargetPlan]) -> list[ProgramSteps | None]:
        """How far each of these is, where it can begin at a step."""
        return await asyncio.gather(*map(self._steps, plans))

    async def _steps(self, plan: TargetPlan) -> ProgramSteps | None:
        source = next((each for each in self._sources if each is plan.choice.source), None)
        return None if source is None or plan.process is None else await source.steps(plan.process)

    def _check_source(self, name: str) -> None:
        """BadInput for a source that there is not: whoever asks mistyped it, and no process is to blame."""
        known = [source.name for source in self._sources]
        if name and name not in known:
            raise BadInput(f"there is no source {name!r}; there are: {', '.join(known) or 'none'}")

    def _as_seen_by(self, caller: Caller, processes: Sequence[Process]) -> Sequence[Process]:
        """To an admin none is private; others learn of one what the kernel tells them, whatever they select by."""
        elsewhere = not caller.admin and any(p.user_namespace is not None and p.uid == caller.uid for p in processes)
        asker = user_namespaces.asker(caller.pid) if elsewhere and caller.pid else None
        seen = [_as_asked(process, asker) for process in processes]
        if not caller.admin:
            return [self._table.as_its_user_sees(process) for process in seen]
        return [replace(process, unrestricted=True) for process in seen]

    async def _estimate(self, caller: Caller, request: Request, snapshot: Sequence[Process]) -> list[TargetPlan]:
        self._check_source(request.options.source)
        snapshot = self._as_seen_by(caller, snapshot)
        selection = self._select(caller, request.selector, snapshot)
        if len(selection.allowed) > CAPTURE_TARGETS_MAX:
            raise Exhausted(
                f"{request.selector.describe()} means {len(selection.allowed)} processes; "
                f"a capture has at most {CAPTURE_TARGETS_MAX}: select fewer{of_one(selection.allowed)}"
            )
        if await self._back(request.options.source, selection.allowed):
            selection = replace(selection, allowed=await self._again(caller, selection.allowed))
        await self._prepare(selection.allowed)
        families, plans = Families(snapshot), list[TargetPlan]()
        for some in pieces(selection.allowed):
            with await self._headroom.ahead(caller.uid, [process.id for process in some]):
                plans += [self._plan(caller, request, process, families) for process in some]
        plans = [self._as_held(caller, plan) for plan in plans]
        plans += [self._forbidden(process) for process in selection.forbidden]
        return plans + [self._missing(pid) for pid in selection.missing]

    async def _named_alone(self, caller: Caller, selector: Selector) -> Sequence[Process]:
        """The processes of these pids, and no look at any other."""
        # What is remembered spares a thread: where a core is busy, waiting for one takes milliseconds.
        recalled = [] if caller.container else await self._recalled(caller, selector)
        return recalled or await self._asked(caller, selector)

    async def _recalled(self, caller: Caller, selector: Selector) -> list[Process]:
        """The processes of these pids; none where any of them has to be looked at."""
        found: list[Process] = []
        for some in pieces(selector.pids):
            recalled = await first_looks.look(caller.uid, len(selector.pids), self._recall, some)
            if len(recalled) < len(some):
                return []
            found += recalled
        return found

    def _recall(self, pids: Sequence[int]) -> list[Process]:
        """The processes of which enough is remembered."""
        return [process for process in map(self._table.recall, pids) if process is not None]

    async def _asked(self, caller: Caller, selector: Selector) -> Sequence[Process]:
        """The processes of these pids."""

        def lacks(found: Sequence[Process]) -> bool:
            return len(found) < len(selector.pids) and any(map(procfs.unanswering, selector.pids))

        return await _until_all_answer(lambda: in_thread(Holder.of(caller), self._named, caller, selector), lacks)

    def _named(self, caller: Caller, selector: Selector) -> Sequence[Process]:
        found = (self._table.get(pid) for pid in selector.pids)
        return _near(caller, [process for process in found if process is not None])

    async def _prepare(self, processes: Sequence[Process]) -> None:
        """Let sources look closer. One that fails says so in its offers."""
        for source in self._sources:  # one of them at most has to wait for anything
            try:
                await source.prepare(processes)
            except Exception as error:
                log.error("a source could not look", exc_info=error, extra={"source": source.name})

    async def _back(self, source: str, processes: Sequence[Process]) -> bool:
        """Wait for those that come back to a source of the request by themselves; False: there were none."""
        asked = (each.back(processes) for each in self._sources if source in ("", each.name))
        return any(await asyncio.gather(*asked))

    async def _again(self, caller: Caller, processes: Sequence[Process]) -> list[Process]:
        """The same, as they are now; one that has ended meanwhile as it was."""
        again = Selector(pids=tuple(process.id.pid for process in processes))
        named = await in_thread(Holder.of(caller), self._named, caller, again)
        now = {process.id: process for process in self._as_seen_by(caller, named)}
        return [now.get(process.id, process) for process in processes]

    def _select(self, caller: Caller, selector: Selector, snapshot: Sequence[Process]) -> selectors.Selection:
        own = {*self._settings.own_pids(), *({caller.pid} - set(selector.pids))}
        try:
            selection = selectors.select(selector, snapshot, uid=caller.uid, admin=caller.admin, own=own)
        except NotFound as error:
            silent = [pid for pid in selector.pids if procfs.unanswering(pid)]
            if silent:  # so that nothing is known of it
                raise NotFound(procfs.silence(silent[0])) from None
            if count := self._silent(caller, selector, ()):
                raise NotFound(f"{error}. {count} processes do not answer now: try again in some seconds") from None
            raise
        if not selector.children:
            return selection
        # With its children in the capture a launcher has nothing to add; alone it is answered as one.
        families = Families(snapshot)
        working = [p for p in selection.allowed if not (is_launcher(p) and self._traceable_below(p, families))]
        return replace(selection, allowed=working or selection.allowed)

    def _not_meant(self, caller: Caller) -> set[int]:
        """The daemon, its workers, and whoever asks: `profctl` runs Python too."""
        return {*self._settings.own_pids(), caller.pid}

    def _traceable_below(self, process: Process, families: Families) -> list[Process]:
        below = [p for p in families.below([process.id.pid]) if p.uid == process.uid]
        own = self._settings.own_pids() if below else ()
        return [p for p in below if p.id.pid not in own and any(source.offer(p).can for source in self._sources)]

    def _plan(self, caller: Caller, request: Request, process: Process, families: Families) -> TargetPlan:
        target = TargetRecord.of(process, self._settings.host)
        permission = "your own process" if process.uid == caller.uid else "you are an admin"
        busy = self._busy(caller, process)
        if busy is not None:
            return TargetPlan(target, process, busy, permission)
        choice = choose(
            process,
            request.options,
            self._sources,
            self._traceable_below(process, families),
            lambda: self._headroom.of(process.id),
            open_ended=request.open_ended,
        )
        if process.unread and not choice.source:  # what sources say of it may be of what it was
            choice = replace(choice, message=f"pid {process.id.pid} was {process.unread}: name its pid, or ask again")
        if choice.source and choice.plan and (risk := self._settings.sidecar_risk(process, request.options)):
            choice = replace(choice, plan=replace(choice.plan, risks=(*choice.plan.risks, risk)))
        return TargetPlan(target, process, choice, permission)

    def _busy(self, caller: Caller, process: Process) -> Choice | None:
        """The answer for one that a capture holds; None for any other."""
        holder = self._held.get(process.id)
        if holder is None:
            return None
        return Choice(None, state=State.BUSY, reason=Reason.CAPTURE_RUNNING, message=_held_by(caller, process, holder))

    def _as_held(self, caller: Caller, plan: TargetPlan) -> TargetPlan:
        """The same, unless a capture has taken its process since it was made."""
        busy = None if plan.process is None else self._busy(caller, plan.process)
        return plan if busy is None else replace(plan, choice=busy)

    def _forbidden(self, process: Process) -> TargetPlan:
        choice = Choice(None, reason=Reason.NOT_PERMITTED, message=forbidden(process))
        # Its owner is in /proc for all to see; what it runs need not be told.
        target = replace(TargetRecord.of(process, self._settings.host), command="", rank=None, gpus=(), job="")
        return TargetPlan(target, process, choice, "")

    def _missing(self, pid: int) -> TargetPlan:
        target = TargetRecord(self._settings.host, pid, start_ticks=0, uid=0, user="", command="")
        return TargetPlan(target, None, Choice(None, reason=Reason.TARGET_ENDED, message=missing(pid)), "")

    async def targets(self, caller: Caller, selector: Selector, *, everything: bool = False) -> Sequence[Sighting]:
        """Processes the caller may see (its own; an admin all) with what each source says, in pid order."""
        snapshot = self._as_seen_by(caller, await self._snapshot(caller, selector))
        found = self._found(caller, selector, snapshot).allowed
        named = everything or bool(selector.pids)
        shown = [p for p in found if everything or p.python or p.cuda or p.gpus or p.unread]
        shown = [p for p in shown if named or not selectors.serves_profd(p)]
        await self._prepare(shown)
        families = Families(snapshot)
        return await in_pieces(lambda process: self._sight(process, families), shown)

    async def processes(self, caller: Caller, selector: Selector) -> selectors.Selection:
        """The processes of a selector; an empty one means all that the caller may profile."""
        # A caller that names pids does not wait for looks at all processes of the host: others may have thousands.
        look = self._named_alone if _by_pid(selector) else self._seen
        return self._found(caller, selector, self._as_seen_by(caller, await look(caller, selector)))

    def _found(self, caller: Caller, selector: Selector, snapshot: Sequence[Process]) -> selectors.Selection:
        if not selector.empty:
            return self._select(caller, selector, snapshot)
        seen = (p for p in snapshot if p.id.pid not in self._not_meant(caller) and not p.zombie)
        allowed = [p for p in seen if selectors.may_profile(p, uid=caller.uid, admin=caller.admin)]
        return selectors.Selection(allowed, [])

    def _sight(self, process: Process, families: Families) -> Sighting:
        holder = self._held.get(process.id)
        said = list(in_turn(process, self._sources))
        launcher = is_launcher(process) and bool(self._traceable_below(process, families))
        attached = not launcher and any(offer.can and source.declaration.attached for source, offer in said)
        offers = [(source.name, offer) for source, offer in said]
        return Sighting(process, offers, holder.id if holder else "", launcher, attached)


async def _until_all_answer(
    look: Callable[[], Awaitable[Sequence[Process]]], lacks: Callable[[Sequence[Process]], bool]
) -> Sequence[Process]:
    """The processes of a look. Where it lacks one that did not answer (its memory or its host's cores are short), those
    of a second one, when that may be asked again: whoever asks waits, and nobody else.
    """
    found = await look()
    if lacks(found):
        await asyncio.sleep(PROC_STUCK_SECONDS)
        found = await look()
    return found


def _by_pid(selector: Selector) -> bool:
    """Only processes that it names are meant."""
    return bool(selector.pids) and not selector.children


def _near(caller: Caller, processes: Sequence[Process]) -> Sequence[Process]:
    """The processes of the caller's container, where it is in one: root may have any uid of the host there, and has no
    more than its container by that. Asks the processes: for a thread.
    """
    if not caller.container:
        return processes
    below = (process for process in processes if len(process.namespace_pids) > 1)
    return [process for process in below if of_container(process.id.pid, caller.container)]


def _as_asked(process: Process, asker: Asker | None) -> Process:
    """The same, private where the kernel keeps it from whoever asks as its user by its user namespace."""
    namespace = process.user_namespace
    if namespace is None:
        return process
    private = process.private or not namespace.opens_to(process.uid, asker)
    return replace(process, private=private, asker=asker)


def _needs_family(plan: TargetPlan) -> bool:
    """Whether the answer could be another one if its children were known."""
    return plan.process is not None and (plan.choice.source is None or is_launcher(plan.process))


def forbidden(process: Process) -> str:
    """Why a caller may not have a process."""
    return f"pid {process.id.pid} belongs to {process.user or process.uid}; you may profile only your own"


def of_one(processes: Sequence[Process]) -> str:
    """Anybody's process may say that it is of a job: how an admin tells them apart. The end of a sentence."""
    counts = Counter(process.user or str(process.uid) for process in processes)
    if len(counts) < 2:
        return ""
    fewest = sorted(counts.items(), key=lambda of: (of[1], of[0]))[:_USERS_TOLD]
    told = ", ".join(f"{count} of {user}" for user, count in fewest)
    more = ", ..." if len(counts) > len(fewest) else ""
    return f", such as --user {fewest[0][0]} (they belong to {len(counts)} users: {told}{more})"


def missing(pid: int) -> str:
    """A pid that names nothing, or a process of which nothing can be known."""
    if procfs.unanswering(pid):
        return procfs.silence(pid)
    return f"there is no process with pid {pid}"


def _held_by(caller: Caller, process: Process, holder: CaptureRecord) -> str:
    if caller.admin or caller.uid == holder.owner_uid:
        whose = f"capture {holder.id} of {holder.owner}"
        return f"pid {process.id.pid} is held by {whose}; wait for it (`profctl wait {holder.id}`) or stop it"
    return f"pid {process.id.pid} is held by another user's capture; try again when it has ended"
