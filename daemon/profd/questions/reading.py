"""Traces as a caller may read them: lists, and the questions of the table."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final, Protocol

from profd.errors import BadInput, Denied, Exhausted, NotFound, ProfdError
from profd.fairness.few import Few
from profd.fairness.shares import Holder
from profd.fairness.threads import in_thread
from profd.fairness.to_the_end import or_undone, to_the_end
from profd.importing.ingest import RunJob
from profd.limits import CAPTURE_LOOKS_AT_ONCE, CAPTURE_TRACES_MAX
from profd.model.question import Cost, Question, Scope
from profd.model.trace_ids import is_id
from profd.questions.packed import ASKS, KEPT_ONLY
from profd.questions.table import absent, directory, find, index, of_whole
from profd.segments.meta import TraceMeta
from profd.store.access import may_read
from profd.store.catalog import TraceRecord
from profd.store.exported import ExportedStore
from profd.trust.caller import Caller

OnUse = Callable[[str, Caller, TraceRecord], None]
"""(action, caller, trace): somebody who may has begun to read a trace, or has imported one."""

log = logging.getLogger("profd.questions")

LIST_DEFAULT: Final = 50
_CANDIDATES_SHOWN: Final = 5
_CANDIDATES_MAX: Final = 100  # that are counted: each is decoded, as often as a caller asks
_SHARED_PART: Final = 5  # of a list that is full, one in so many is somebody else's where there are enough


class Stored(Protocol):
    """Where traces are kept: a `Store`, or captures that were exported. Every call blocks."""

    def newest_first(self, limit: int = -1) -> Sequence[TraceRecord]:
        """The newest traces; -1 = all."""
        ...

    def newest_of(self, uid: int, limit: int) -> Sequence[TraceRecord]:
        """The newest traces that a user owns."""
        ...

    def newest_shared(self, uid: int, limit: int) -> Sequence[TraceRecord]:
        """The newest traces of others that a user may read."""
        ...

    def get(self, trace: str) -> TraceRecord:
        """One trace by its whole id. NotFound."""
        ...

    def with_prefix(self, prefix: str, reader: int | None = None, limit: int = -1) -> Sequence[TraceRecord]:
        """The first traces by id whose id begins so, that this uid may read; None: all."""
        ...

    def with_capture_prefix(self, prefix: str, reader: int | None = None, limit: int = -1) -> Sequence[TraceRecord]:
        """The same of captures whose id begins so, by capture and id."""
        ...

    def directory(self, trace: str) -> Path:
        """Where a trace lies."""
        ...

    def meta(self, trace: str) -> TraceMeta:
        """Everything a trace says of itself. NotFound, BadTrace."""
        ...

    def index(self, trace: str) -> Path | None:
        """Where rollups of a trace lie, if it has any; None: they are not kept here."""
        ...

    def rollups_staging(self, traces: Sequence[TraceRecord]) -> Path | None:
        """A directory for what a job works out of these; None where none of it would be kept."""
        ...

    def take_rollups(self, staging: Path, traces: Sequence[str], names: Collection[str]) -> None:
        """Keep the rollups of these names that a job has written about these traces. BadInput, Exhausted."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that may be asked: of `traces`, the one in its scope first, with arguments as its job takes them.

    Where a capture is asked, `traces` are those of it that the asker may read, and then those of the other.
    """

    question: Question
    traces: tuple[TraceRecord, ...]
    arguments: Mapping[str, Any]
    capture: str = ""  # the whole id; empty: a trace is asked
    uid: int = -1  # who asks

    @property
    def holder(self) -> Holder:
        """Whose share its work is of."""
        return Holder.of_user(self.uid)


class ReadLibrary:
    """All verbs that read stored traces. `trace` is an id, a prefix, or empty for the caller's latest
    (an admin's without traces of its own: the latest of all).

    Every method raises NotFound, Denied or BadInput (an ambiguous prefix) for
    the id, and what its job raises.
    """

    def __init__(self, stored: Stored, run_job: RunJob, on_use: OnUse = lambda action, caller, record: None) -> None:
        self._stored = stored
        self._on_use = on_use
        self._looks = Few(1, CAPTURE_LOOKS_AT_ONCE)
        self._run_job = run_job

    async def list(self, caller: Caller, limit: int = 0) -> Sequence[TraceRecord]:
        """What the caller may read, newest first; 0 = LIST_DEFAULT.

        Where that is more, their own: of others' a fifth, since anybody may share as many with them as they like.
        """
        return await in_thread(Holder.of(caller), self._visible, caller, limit or LIST_DEFAULT)

    async def get(self, caller: Caller, trace: str) -> TraceRecord:
        """One trace."""
        return await in_thread(Holder.of(caller), self._resolve, caller, trace)

    async def meta(self, caller: Caller, trace: str) -> TraceMeta:
        """Everything a trace says of itself."""
        record = await self.get(caller, trace)
        return await in_thread(Holder.of(caller), self._stored.meta, record.id)

    async def asked(
        self, caller: Caller, name: str, trace: str, values: Mapping[str, object], capture: str | None = None
    ) -> Asked:
        """A question of the table to a trace, or a capture, authorised, told to the audit log, its arguments checked.

        `capture`: an id or a prefix; None: the trace is asked. Also raises BadInput for a question or an argument
        that there is not, or that is beyond its limits.
        """
        question = find(name)
        if Scope.HOST in question.scopes:
            question.require(Scope.TRACE if capture is None else Scope.CAPTURE)
        others = {argument.name: argument.checked(values.get(argument.name) or "") for argument in question.others}
        if capture is not None:
            return await self._capture_asked(caller, question, {"trace": capture, **others}, values)
        traces = {}
        for argument, which in {"trace": trace, **others}.items():
            record = traces[argument] = await self.get(caller, which)
            self._on_use(f"trace.{question.verb}", caller, record)
        places = {argument: _places(self._stored, question, argument, [one]) for argument, one in traces.items()}
        directories = {name: of_each[0] for place in places.values() for name, of_each in place.items()}
        arguments = {**question.checked(values), **directories}
        return Asked(question, tuple(traces.values()), arguments, uid=caller.uid)

    async def _capture_asked(
        self, caller: Caller, question: Question, captures: Mapping[str, str], values: Mapping[str, object]
    ) -> Asked:
        checked = question.checked(values, Scope.CAPTURE)
        traces: dict[str, Sequence[TraceRecord]] = {}
        for argument, which in captures.items():
            # Thousands of traces take a tenth of a second, whether or not there is a worker for the question then.
            async with self._looks.place(caller.uid):
                found, places = await in_thread(Holder.of(caller), self._found_of, caller, question, argument, which)
            checked |= places
            traces[argument] = found
        return Asked(question, tuple(chain(*traces.values())), checked, traces["trace"][0].capture, caller.uid)

    def _found_of(
        self, caller: Caller, question: Question, argument: str, capture: str
    ) -> tuple[Sequence[TraceRecord], Mapping[str, Any]]:
        """The traces of a capture that an argument names, told to the audit log; where they lie, and what it lacks.

        Blocking.
        """
        found = self._traces_of(caller, capture)
        for record in found:
            self._on_use(f"trace.{question.verb}", caller, record)
        places: Mapping[str, Any] = _places(self._stored, question, argument, found)
        if isinstance(self._stored, ExportedStore):  # a store knows of no other host's
            places = {**places, absent(argument): asdict(self._stored.absent(found[0].capture))}
        return found, places

    async def files(self, caller: Caller, trace: str, capture: str | None = None) -> Sequence[tuple[TraceRecord, Path]]:
        """The files that have the events of a trace, or of all traces of a capture, in their order."""
        found = [await self.get(caller, trace)] if capture is None else None
        records = await in_thread(Holder.of(caller), self._traces_of, caller, capture or "") if found is None else found
        return await in_thread(Holder.of(caller), self._files_of, records)

    def check(self, traces: Iterable[str]) -> None:
        """Compare all files of these with their sums. Blocking. BadTrace for what has changed, BadInput in a store."""
        if not isinstance(self._stored, ExportedStore):
            raise BadInput("pages of a store have sums of their own, which are looked at whenever they are read")
        for trace in traces:
            self._stored.check(trace)

    def _files_of(self, records: Sequence[TraceRecord]) -> Sequence[tuple[TraceRecord, Path]]:
        return [
            (record, self._stored.directory(record.id) / info.file)
            for record in sorted(records, key=lambda one: (one.rank is None, one.rank or 0, one.id))
            for info in self._stored.meta(record.id).segments
        ]

    async def answer(self, asked: Asked, fd: int = -1) -> Any:
        """The answer where it is short; a long one is written to `fd`, which stays the caller's, and None returned.

        So is a short one where there is such a descriptor: as bytes, which the daemon need not parse; what
        `profctl list` says of the trace is then not in it, and `with_record` puts it there.
        """
        question = asked.question
        fds = [fd] if question.cost is Cost.LONG or fd >= 0 else []
        kept = None if question.cost is Cost.LONG else await self._run_kept_only(asked, fds)
        found = await self._run(asked, fds) if kept is None else kept
        if fds:
            return None
        value = found["value"]
        return {**value, "trace": asked.traces[0].as_json()} if question.with_record else value

    async def answer_kept(self, asked: Asked, fd: int) -> bool:
        """The same of a long answer, where what was kept of the traces gives it; whether it was written.

        It is a glance, which waits for nothing that lasts. So `fd` must be read however slowly the asker reads.
        """
        return await self._run_kept_only(asked, [fd]) is not None

    async def _run_kept_only(self, asked: Asked, fds: Sequence[int]) -> dict[str, Any] | None:
        """Its job, by what was kept of the traces alone; None where that does not answer it."""
        question = asked.question
        if asked.capture or question.cost is Cost.GLANCE or not of_whole(question, asked.arguments):
            return None
        if not question.rollups or not await in_thread(asked.holder, self._may_be_kept, asked):
            return None
        found = await self._run_job(question.name, {**asked.arguments, KEPT_ONLY: True}, fds)
        return None if found.get("needs_events") else found

    def _may_be_kept(self, asked: Asked) -> bool:
        """Whether there is something of each trace. Blocking."""
        indexes = [self._stored.index(one.id) for one in asked.traces]
        return all(index and any((index / name).exists() for name in asked.question.rollups) for index in indexes)

    async def _run(self, asked: Asked, fds: Sequence[int]) -> dict[str, Any]:
        """Its job; what that has worked out of each trace is kept for the next question."""
        name, arguments, rollups = asked.question.name, dict(asked.arguments), asked.question.rollups
        if rollups and asked.question.cost is Cost.GLANCE:
            found = await self._run_job(name, {**arguments, ASKS: True}, fds)
            if not found.get("needs_staging"):
                return found
        staging = None
        if rollups:
            staging = await or_undone(in_thread(asked.holder, self._stored.rollups_staging, asked.traces), _removed)
        if staging is None:
            return await self._run_job(name, arguments, fds)
        try:
            found = await self._run_job(name, {**arguments, "staging": str(staging)}, fds)
            await in_thread(asked.holder, self._take, staging, [one.id for one in asked.traces], rollups)
            return found
        finally:
            await to_the_end(asyncio.to_thread(_removed, staging))

    def _take(self, staging: Path, traces: Sequence[str], names: Collection[str]) -> None:
        try:
            self._stored.take_rollups(staging, traces, names)
        except (ProfdError, OSError) as error:  # the answer is none the worse
            log.warning("rollups were not kept", extra={"why": str(error)})

    def _visible(self, caller: Caller, limit: int) -> Sequence[TraceRecord]:
        if caller.admin:
            return self._stored.newest_first(limit)
        own = self._stored.newest_of(caller.uid, limit)
        others = [one for one in self._stored.newest_shared(caller.uid, limit) if may_read(caller, one)]
        of_others = min(len(others), max(limit - len(own), limit // _SHARED_PART))
        chosen = [*own[: limit - of_others], *others[:of_others]]
        return sorted(chosen, key=lambda record: (record.created_ns, record.id), reverse=True)

    def _traces_of(self, caller: Caller, capture: str) -> Sequence[TraceRecord]:
        """The traces that the caller may read of one capture; none of others' captures, and of one that is none."""
        if not capture:
            raise BadInput("Say which capture: `profctl captures` lists them.")
        # One that has this whole id comes first.
        begun = self._stored.with_capture_prefix(capture, _reader(caller), CAPTURE_TRACES_MAX + 1)
        readable = [one for one in begun if may_read(caller, one) and not one.damaged]
        found = [one for one in readable if one.capture == capture] or readable
        captures = list(dict.fromkeys(one.capture for one in found))
        if not captures:
            raise NotFound(
                f"You have no traces of a capture {capture[:100]!r}; `profctl captures` lists captures, and what was "
                "stored of each."
            )
        if len(captures) > 1:
            some = ", ".join(captures[:_CANDIDATES_SHOWN])
            raise BadInput(f"{capture!r} is the beginning of {len(captures)} captures ({some}): give more of it.")
        if len(found) > CAPTURE_TRACES_MAX:
            raise Exhausted(
                f"The capture {captures[0]} has more than the {CAPTURE_TRACES_MAX} traces that can be asked at once."
            )
        return found

    def _resolve(self, caller: Caller, trace: str) -> TraceRecord:
        if not trace:
            latest = self._stored.newest_of(caller.uid, 1) or (self._stored.newest_first(1) if caller.admin else ())
            if not latest:
                raise NotFound("You have no traces yet: `profctl start --pid PID` records one.")
            return latest[0]
        if is_id(trace):
            record = self._stored.get(trace)
            if not may_read(caller, record):
                raise Denied(
                    f"Trace {trace} belongs to {record.owner or record.owner_uid} and is not shared with "
                    f"{caller.user}. Its owner can: `profctl share {trace} --with {caller.user}`."
                )
            return record
        begun = self._stored.with_prefix(trace, _reader(caller), _CANDIDATES_MAX + 1)
        found = [record for record in begun if may_read(caller, record)]
        if not found:
            raise NotFound(f"You have no trace {trace!r}; `profctl list` shows those you may read.")
        if len(found) > 1:
            some = ", ".join(record.id for record in found[:_CANDIDATES_SHOWN])
            more = ", …" if len(found) > _CANDIDATES_SHOWN else ""
            count = f"{len(found)}" if len(found) <= _CANDIDATES_MAX else f"more than {_CANDIDATES_MAX}"
            raise BadInput(f"{trace!r} is the beginning of {count} traces ({some}{more}): give more of it.")
        return found[0]


def _reader(caller: Caller) -> int | None:
    return None if caller.admin else caller.uid


def _removed(staging: Path | None) -> None:
    if staging is not None:
        shutil.rmtree(staging, ignore_errors=True)


def with_record(answer: bytes, record: TraceRecord) -> bytes:
    """The text of an answer that is an object, with `trace` in it, which is not parsed for that."""
    return b'%b, "trace": %b}\n' % (answer.rstrip().removesuffix(b"}"), json.dumps(record.as_json()).encode())


def _places(stored: Stored, question: Question, argument: str, traces: Sequence[TraceRecord]) -> dict[str, list[str]]:
    """What a job reads of the traces that an argument names: their directories, and those of their rollups."""
    found = {directory(argument): [str(stored.directory(one.id)) for one in traces]}
    indexes = [stored.index(one.id) for one in traces] if question.rollups else []
    kept = [str(path) for path in indexes if path is not None]
    return {**found, index(argument): kept} if kept else found
