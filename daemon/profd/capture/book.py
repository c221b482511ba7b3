"""All captures this daemon knows, in memory and on disk; bounded, oldest forgotten first."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from profd.capture.failures import reason_of, sentence
from profd.capture.ids import resolve
from profd.capture.machine import Abandon, Machine, Stored
from profd.capture.ports import Records, Storing
from profd.capture.raw_paths import relative, resolved
from profd.capture.records import CaptureRecord, TargetRecord
from profd.capture.recovery import KEPT, RESTARTED
from profd.capture.told import Told
from profd.disk.eviction import Evictable, victims
from profd.errors import BadInput, NotFound, ProfdError
from profd.fairness.by_turns import ByTurns
from profd.journal.journal import Journal, Key, any_data
from profd.limits import (
    CAPTURE_BYTES_KEPT_MAX,
    CAPTURE_BYTES_KEPT_PER_UID_MAX,
    CAPTURE_TARGETS_KEPT_MAX,
    CAPTURE_TARGETS_KEPT_PER_UID_MAX,
    CAPTURES_KEPT_MAX,
    CAPTURES_KEPT_PER_UID_MAX,
    JOURNAL_TARGETS_MAX,
    JOURNAL_TARGETS_PER_UID_MAX,
)
from profd.model.capture import RawFile, Reason, State
from profd.targets.process import ProcessId
from profd.trust.caller import Caller

log = logging.getLogger("profd.capture")


class Book:
    """Reads and writes go through one thread, so a later state never meets an earlier one on disk. Users take turns in
    it: on a slow disk nobody waits for all that another one has begun.
    """

    def __init__(
        self,
        records: Records,
        storing: Storing,
        journal: Journal,
        now_ns: Callable[[], int],
        on_written: Callable[[CaptureRecord], None] = lambda record: None,
    ) -> None:
        """`on_written` is called where callers may hear of an end now that they could not before."""
        self._disk = records
        self._storing = storing
        self._journal = journal
        self._now_ns = now_ns
        self._on_written = on_written
        self._told = Told()
        self._by_id: dict[str, CaptureRecord] = {}  # oldest first
        self._by_request: dict[tuple[int, str], str] = {}
        self._bytes: dict[str, int] = {}  # of those that are on the disk
        self._raw: dict[str, int] = {}  # how many targets have ended and have raw files, of those that have such
        self._unwritten: dict[int, dict[str, CaptureRecord]] = {}  # by owner
        self._droppable: dict[str, list[ProcessId]] = {}
        self._writers: dict[int, asyncio.Task[None]] = {}  # by owner
        self._forgetting: asyncio.Task[None] | None = None
        self._too_many = False  # there may be, since the look of `_forgetting` began
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="profd-captures")
        self._turn = ByTurns(1)

    async def open(
        self, returning: Collection[Key] = (), salvaging: Collection[Key] = ()
    ) -> list[tuple[CaptureRecord, TargetRecord]]:
        """Read all; what was live when the last daemon went away gets its terminal state.

        Returned are, as they were, those that have none yet: what is to be stored, what is `returning`, and what is
        `salvaging`, of which `found` tells later.
        """
        live = []
        sizes = await self._in_thread(lambda: {name: self._disk.size(name) for name in self._disk.names()})
        for value in await self._in_thread(self._disk.all):
            try:
                record = CaptureRecord.from_json(value)
                resolved(record, self._journal.path)
            except BadInput as error:
                log.warning("capture record dropped", extra={"why": str(error)})
                continue
            self._remember(record)
            self._bytes[record.id] = sizes.get(record.id, 0)
            self._count_raw(record)
            if record.finished_ns is None:
                for target in record.targets:
                    await self._find_unfinished(record, target)
                live += [(record, target) for target in self._recover(record, returning, salvaging)]
                await self.write(record)
        await self._drop_unrecorded()
        await self._drop_unneeded()
        await self._forget_old()
        return live

    async def flush(self) -> None:
        """Until everything that was scheduled is on disk."""
        while at_work := [*self._writers.values(), *([self._forgetting] if self._forgetting is not None else [])]:
            await asyncio.shield(at_work[0])

    async def close(self) -> None:
        """Flush, then let go of the thread."""
        await self.flush()
        while not self._turn.free:
            (await self._turn.get(-1))()  # behind those who wait for one
        await asyncio.to_thread(self._thread.shutdown, True)

    def add(self, record: CaptureRecord) -> None:
        """Know a new capture; `write` makes it durable."""
        self._remember(record)

    async def write(self, record: CaptureRecord) -> tuple[Reason, str] | None:
        """Put its present state on disk. A failure is returned (and logged), never raised.

        Then callers hear of ends in it; also where the disk refuses them: a caller is not to wait for a disk.
        """
        self._count_raw(record)
        ends = self._told.held(record)
        value = relative(record, self._journal.path)
        try:
            self._bytes[record.id] = await self._in_turn(record.owner_uid, self._put, record.id, value)
        except (OSError, ProfdError) as error:
            log.error("capture record not written", extra={"capture": record.id, "why": str(error)})
            return reason_of(error), f"the capture could not be recorded: {sentence(error, 'the disk')}"
        finally:
            if ends:
                self._told.release(record, ends)
                self._on_written(record)
        return None

    def _put(self, capture: str, value: dict[str, Any]) -> int:
        """In the thread: how large it is."""
        self._disk.put(capture, value)
        return self._disk.size(capture)

    def hold(self, record: CaptureRecord, target: TargetRecord, before: State) -> None:
        """It has just ended, and stood at `before`: no caller hears of it until it is written."""
        self._told.hold(record, target, before)

    def told(self, record: CaptureRecord) -> CaptureRecord:
        """The record for callers: itself, or as it was before ends that are not written yet."""
        return self._told.of(record)

    def schedule(self, record: CaptureRecord, drop: ProcessId | None = None) -> None:
        """Write the record soon; many changes make few writes.

        `drop` names a target whose raw files go once the record that needs
        them no more is on disk.
        """
        uid = record.owner_uid
        self._unwritten.setdefault(uid, {})[record.id] = record
        if drop is not None:
            self._droppable.setdefault(record.id, []).append(drop)
        if uid not in self._writers:
            self._writers[uid] = asyncio.get_running_loop().create_task(self._write_all(uid))

    async def _write_all(self, uid: int) -> None:
        try:
            while unwritten := self._unwritten.get(uid):
                capture, record = next(iter(unwritten.items()))
                del unwritten[capture]
                droppable = self._droppable.pop(capture, [])
                if capture not in self._by_id:  # forgotten meanwhile
                    continue
                await self.write(record)
                for process in droppable:
                    await self._drop(record, process)
                if record.terminal:
                    self._look_for_too_many()
        finally:
            if not self._unwritten[uid]:
                del self._unwritten[uid]
            del self._writers[uid]

    def _look_for_too_many(self) -> None:
        """Forget what is too much, in a task of its own: of whoever has most, and no other user waits for that."""
        self._too_many = True
        if self._forgetting is None:
            self._forgetting = asyncio.get_running_loop().create_task(self._forget_all())

    async def _forget_all(self) -> None:
        try:
            while self._too_many:
                self._too_many = False
                await self._forget_old()
        finally:
            self._forgetting = None

    def ids(self) -> Collection[str]:
        """Every id in use."""
        return self._by_id.keys()

    def records(self) -> Collection[CaptureRecord]:
        """All captures, oldest first."""
        return self._by_id.values()

    def get(self, capture: str) -> CaptureRecord | None:
        """By its whole id."""
        return self._by_id.get(capture)

    def by_request(self, uid: int, request_id: str) -> CaptureRecord | None:
        """The capture a caller's request id has led to."""
        return self._by_id.get(self._by_request.get((uid, request_id), ""))

    def visible(self, caller: Caller) -> Sequence[CaptureRecord]:
        """The caller's own (an admin's: all), newest first."""
        return [r for r in reversed(self._by_id.values()) if caller.admin or r.owner_uid == caller.uid]

    def find(self, caller: Caller, prefix: str) -> CaptureRecord:
        """By id, by a prefix of it, by the id of its fleet, or the caller's own latest. NotFound, BadInput."""
        if prefix:
            if (of_fleet := self._of_fleet(caller, prefix)) is not None:
                return of_fleet
            return self._by_id[resolve(prefix, [r.id for r in self.visible(caller)], "capture")]
        own = (r for r in self.visible(caller) if r.owner_uid == caller.uid)
        latest = next(own, None)
        if latest is None:
            raise NotFound("you have no captures yet; `profctl start --pid PID --duration 5s` makes one")
        return latest

    def _of_fleet(self, caller: Caller, fleet: str) -> CaptureRecord | None:
        """The latest with this fleet id, of the caller's own before others': ids of fleets are their clients'.

        BadInput for an admin where others' are of several users: each could be the one that is meant.
        """
        found = [record for record in self.visible(caller) if record.fleet is not None and record.fleet.id == fleet]
        own = next((record for record in found if record.owner_uid == caller.uid), None)
        if own is not None or not found:
            return own
        latest = {record.owner_uid: record for record in reversed(found)}
        if len(latest) > 1:
            some = ", ".join(f"{record.id} of {record.owner}" for record in list(latest.values())[:4])
            raise BadInput(
                f"captures of {len(latest)} users call themselves {fleet} ({some}), and any user may call one so: "
                "name one by its own id on its host, or ask as its user"
            )
        return found[0]

    def _remember(self, record: CaptureRecord) -> None:
        self._by_id[record.id] = record
        if record.request_id:
            self._by_request[record.owner_uid, record.request_id] = record.id

    async def _find_unfinished(self, record: CaptureRecord, target: TargetRecord) -> None:
        """A record may be older than what its sources were doing."""
        if not target.state.terminal and not target.files:
            target.keep(await self._in_thread(self._journal.unfinished, record.id, target.process))
            if target.files and await self._in_thread(self._journal.whole, record.id, target.process):
                target.shortfall, target.shortfall_message = Reason.NONE, ""

    async def found(self, record: CaptureRecord, target: TargetRecord) -> str:
        """Look once more for what there is of one that `open` has returned; the sentence of its end."""
        await self._find_unfinished(record, target)
        return str(await self._in_thread(self._interrupted, record, target))

    def _interrupted(self, record: CaptureRecord, target: TargetRecord) -> str:
        if not self._holds_data(record, target):  # it was killed before anything had come
            target.keep([])
        return f"{RESTARTED}; {KEPT}" if any_data(target.files) else RESTARTED

    def _recover(
        self, record: CaptureRecord, returning: Collection[Key], salvaging: Collection[Key]
    ) -> list[TargetRecord]:
        """End what is live; returns what may still go on."""
        live = []
        for target in record.targets:
            if target.state.terminal:
                continue
            # The trace may have been stored in the last moment, before the record was.
            stored = self._storing.find(record.id, target.process)
            if stored is not None:
                target.state = State.COLLATING
                Machine(target).handle(Stored(stored))
                continue
            key = record.id, target.process
            if key in salvaging or (target.files and (target.state is State.COLLATING or key in returning)):
                live.append(target)
                continue
            Machine(target).handle(Abandon(Reason.DAEMON_RESTARTED, self._interrupted(record, target)))
        if not live:
            record.finished_ns = self._now_ns()
        return live

    def _holds_data(self, record: CaptureRecord, target: TargetRecord) -> bool:
        """Also where the record names other files than there are: what has no other copy is not unneeded."""
        there = self._journal.files(record.id, target.process)
        return any_data([*target.files, *(RawFile(str(path), "") for path in there)])

    async def _forget_old(self) -> None:
        """Bound the number of records, at the cost of whoever has most; the journal bounds its bytes and age."""
        await self._drop_raw_beyond(JOURNAL_TARGETS_PER_UID_MAX, JOURNAL_TARGETS_MAX)
        await self._forget_beyond(lambda _record: 1, CAPTURES_KEPT_PER_UID_MAX, CAPTURES_KEPT_MAX)
        # Their processes take the memory, and a request names hundreds.
        await self._forget_beyond(
            lambda record: len(record.targets), CAPTURE_TARGETS_KEPT_PER_UID_MAX, CAPTURE_TARGETS_KEPT_MAX
        )
        # Of some of them much is told, in the words of attached processes.
        await self._forget_beyond(
            lambda record: self._bytes.get(record.id, 0), CAPTURE_BYTES_KEPT_PER_UID_MAX, CAPTURE_BYTES_KEPT_MAX
        )

    async def _forget_beyond(self, weigh: Callable[[CaptureRecord], int], each: int, most: int) -> None:
        total = sum(map(weigh, self._by_id.values()))
        if total <= min(each, most):
            return
        ended: Counter[int] = Counter()
        for record in self._by_id.values():
            ended[record.owner_uid] += weigh(record) * record.terminal
        while True:
            [(uid, use)] = ended.most_common(1)
            if not use or (use <= each and total <= most):
                return
            # Nobody's can be pushed out by others.
            record = next(r for r in self._by_id.values() if r.terminal and r.owner_uid == uid and weigh(r))
            ended[uid] -= weigh(record)
            total -= weigh(record)
            del self._by_id[record.id]
            self._bytes.pop(record.id, None)
            self._by_request.pop((record.owner_uid, record.request_id), None)
            await self._drop_raw(record)  # nobody can name it any more
            await self._in_turn(record.owner_uid, self._disk.remove, record.id)

    def _count_raw(self, record: CaptureRecord) -> None:
        self._raw.pop(record.id, None)
        if kept := len(_with_raw(record)):
            self._raw[record.id] = kept

    async def _drop_raw_beyond(self, each: int, most: int) -> None:
        """Bound how many targets have raw files: each is a folder, and every start of a capture may look at all."""
        if sum(self._raw.values()) <= min(each, most):
            return
        held = [
            Evictable(one.id, one.owner_uid, self._raw[one.id]) for one in self._by_id.values() if one.id in self._raw
        ]
        for uid in {one.uid for one in held}:
            for gone in victims([one for one in held if one.uid == uid], each):
                await self._drop_raw(self._by_id[gone.id])
        for gone in victims([one for one in held if one.id in self._raw], most):
            await self._drop_raw(self._by_id[gone.id])

    async def _drop_raw(self, record: CaptureRecord) -> None:
        """Its record goes on to name them, as where the journal has swept them."""
        if count := self._raw.pop(record.id, 0):
            log.info("raw data dropped", extra={"capture": record.id, "processes": count})
            for target in _with_raw(record):
                await self._drop(record, target.process)

    async def _drop(self, record: CaptureRecord, process: ProcessId) -> None:
        try:
            await self._in_turn(record.owner_uid, self._journal.remove, record.id, process)
        except (OSError, ProfdError) as error:
            log.warning("raw files not removed", extra={"capture": record.id, "why": str(error)})

    async def _drop_unrecorded(self) -> None:
        """Sources may begin before their capture is on disk; one that never came there was promised to nobody."""
        try:
            await self._in_thread(lambda: self._journal.keep_only(self._disk.names()))
        except (OSError, ProfdError) as error:
            log.warning("raw files not removed", extra={"why": str(error)})

    async def _drop_unneeded(self) -> None:
        """A daemon may have died between a record that needs raw files no more and their removal."""
        for capture, process in await self._in_thread(self._journal.sessions):
            record = self._by_id.get(capture)
            target = next((t for t in record.targets if t.process == process), None) if record is not None else None
            if record is not None and target is not None and target.state.terminal and not target.files:
                await self._drop(record, process)

    async def has_raw(self, record: CaptureRecord, target: TargetRecord) -> bool:
        """Whether a target's raw files are still in the journal: a sweep may have taken them."""
        if not target.files:
            return False
        return bool(await self._in_turn(record.owner_uid, self._journal.files, record.id, target.process))

    async def _in_turn(self, uid: int, function: Callable[..., Any], *args: object) -> Any:
        """In the thread, when it is this user's turn."""
        let_go = await self._turn.get(uid)
        try:
            return await self._in_thread(function, *args)
        finally:
            let_go()

    async def _in_thread(self, function: Callable[..., Any], *args: object) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)


def _with_raw(record: CaptureRecord) -> list[TargetRecord]:
    """The targets that have ended, and of which something is left for a retry."""
    return [target for target in record.targets if target.state.terminal and target.files]
