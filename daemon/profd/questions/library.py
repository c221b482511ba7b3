"""Traces as a caller sees them: the daemon's servicer and the offline tool are thin shells around this."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final

from profd.disk.eviction import Preview
from profd.disk.space import Claim
from profd.errors import BadInput, Denied, Exhausted, NotFound
from profd.importing.ingest import Input, OnProgress, RunJob, check_raw, ingest
from profd.limits import CAPTURE_TRACES_MAX
from profd.model.capture import Loss
from profd.model.question import Cost, Question, Scope
from profd.model.trace_ids import is_id
from profd.questions.table import directory, find
from profd.segments.meta import TraceMeta
from profd.store.access import may_read, require_owner
from profd.store.catalog import TraceRecord
from profd.store.store import Store
from profd.trust.caller import Caller

OnUse = Callable[[str, Caller, TraceRecord], None]
"""(action, caller, trace): somebody who may has begun to read a trace, or has imported one."""

LIST_DEFAULT: Final = 50
_CANDIDATES_SHOWN: Final = 5
_SHARED_PART: Final = 5  # of a list that is full, one in so many is somebody else's where there are enough


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that may be asked: of `traces`, the one in its scope first, with arguments as its job takes them.

    Where a capture is asked, `traces` are those of it that the asker may read, and then those of the other.
    """

    question: Question
    traces: tuple[TraceRecord, ...]
    arguments: Mapping[str, Any]
    capture: str = ""  # the whole id; empty: a trace is asked


class Library:
    """All verbs on stored traces. `trace` is an id, a prefix, or empty for the caller's latest
    (an admin's without traces of its own: the latest of all).

    Every method raises NotFound, Denied or BadInput (an ambiguous prefix) for
    the id, and what its job raises.
    """

    def __init__(
        self, store: Store, run_job: RunJob, host: str = "", on_use: OnUse = lambda action, caller, record: None
    ) -> None:
        self.store = store
        self._on_use = on_use
        self._run_job = run_job
        self._host = host or os.uname().nodename

    async def list(self, caller: Caller, limit: int = 0) -> Sequence[TraceRecord]:
        """What the caller may read, newest first; 0 = LIST_DEFAULT.

        Where that is more, their own: of others' a fifth, since anybody may share as many with them as they like.
        """
        return await asyncio.to_thread(self._visible, caller, limit or LIST_DEFAULT)

    async def get(self, caller: Caller, trace: str) -> TraceRecord:
        """One trace."""
        return await asyncio.to_thread(self._resolve, caller, trace)

    async def meta(self, caller: Caller, trace: str) -> TraceMeta:
        """Everything a trace says of itself."""
        record = await self.get(caller, trace)
        return await asyncio.to_thread(self.store.meta, record.id)

    async def pin(self, caller: Caller, trace: str, pinned: bool) -> TraceRecord:
        """Keep it from being evicted, or not any more. Owner, within limits, and admins."""
        record = await self._owned(caller, trace, "pin" if pinned else "unpin")
        return await asyncio.to_thread(self.store.pin, record.id, pinned, limited=not caller.admin)

    async def evictions(self, caller: Caller, size: int) -> tuple[Preview, Sequence[TraceRecord]]:
        """What would go were a trace of the caller's of this size stored now, and those of it that they may see."""
        if size < 0:
            raise BadInput(f"A trace has no {size} bytes.")
        preview = await asyncio.to_thread(self.store.preview, caller.uid, size)
        gone = [trace.id for trace in preview.gone if caller.admin or trace.uid == caller.uid]
        return preview, await asyncio.to_thread(lambda: [self.store.get(trace) for trace in gone])

    async def share(self, caller: Caller, trace: str, names: Sequence[str]) -> TraceRecord:
        """Let exactly these users (names or uids) read it beside its owner; "*" = everybody. Owner and admins."""
        record = await self._owned(caller, trace, "share")
        return await asyncio.to_thread(self.store.share, record.id, names)

    async def delete(self, caller: Caller, trace: str) -> str:
        """Remove it at once, pinned or not; returns its id. Owner and admins."""
        if not trace:
            raise BadInput("Say which trace to remove: `profctl rm TRACE`.")
        record = await self._owned(caller, trace, "remove")
        await asyncio.to_thread(self.store.delete, record.id)
        return record.id

    async def asked(
        self, caller: Caller, name: str, trace: str, values: Mapping[str, object], capture: str | None = None
    ) -> Asked:
        """A question of the table to a trace, or a capture, authorised, told to the audit log, its arguments checked.

        `capture`: an id or a prefix; None: the trace is asked. Also raises BadInput for a question or an argument
        that there is not, or that is beyond its limits.
        """
        question = find(name)
        others = {argument.name: argument.checked(values.get(argument.name) or "") for argument in question.others}
        if capture is not None:
            return await self._capture_asked(caller, question, {"trace": capture, **others}, values)
        traces = {}
        for argument, which in {"trace": trace, **others}.items():
            record = traces[argument] = await self.get(caller, which)
            self._on_use(f"trace.{question.verb}", caller, record)
        directories = {directory(argument): str(self.store.directory(one.id)) for argument, one in traces.items()}
        return Asked(question, tuple(traces.values()), {**question.checked(values), **directories})

    async def _capture_asked(
        self, caller: Caller, question: Question, captures: Mapping[str, str], values: Mapping[str, object]
    ) -> Asked:
        checked = question.checked(values, Scope.CAPTURE)
        traces: dict[str, Sequence[TraceRecord]] = {}
        for argument, which in captures.items():
            found = await asyncio.to_thread(self._traces_of, caller, which)
            for record in found:
                self._on_use(f"trace.{question.verb}", caller, record)
            checked[directory(argument)] = [str(self.store.directory(record.id)) for record in found]
            traces[argument] = found
        return Asked(question, tuple(chain(*traces.values())), checked, traces["trace"][0].capture)

    async def answer(self, asked: Asked, fd: int = -1) -> Any:
        """The answer where it is short; a long one is written to `fd`, which stays the caller's, and None returned.

        So is a short one where there is such a descriptor: as bytes, which the daemon need not parse.
        """
        question = asked.question
        if question.cost is Cost.LONG or (fd >= 0 and not question.with_record):
            await self._run_job(question.name, dict(asked.arguments), [fd])
            return None
        value = (await self._run_job(question.name, dict(asked.arguments)))["value"]
        return {**value, "trace": asked.traces[0].as_json()} if question.with_record else value

    async def import_file(
        self, caller: Caller, fd: int, label: str, form: str = "", on_progress: OnProgress | None = None
    ) -> TraceRecord:
        """Store an open trace file as the caller's. `label` is a name for people, never a path to us.

        `form`: a name of `decode/open.py`, or empty for what its content says. The descriptor stays the caller's.
        """
        name = Path(label).name or "import"
        return await self._import(caller, fd, form, on_progress, source="import", title=name)

    async def import_stream(
        self, caller: Caller, fd: int, label: str, lost: Sequence[Loss], warnings: Sequence[str]
    ) -> TraceRecord:
        """Store a file of event chunks that came over gRPC as the caller's. The descriptor stays the caller's."""
        said = {"lost": list(lost), "warnings": list(warnings)}
        return await self._import(caller, fd, "chunks", None, source="sdk", title=label, **said)

    async def _import(
        self, caller: Caller, fd: int, form: str, on_progress: OnProgress | None, *, title: str, **said: Any
    ) -> TraceRecord:
        check_raw(fd, title)
        meta = TraceMeta(owner_uid=caller.uid, owner=caller.user, title=title, host=self._host, **said)
        record, _ = await ingest(self.store, self._run_job, [Input(fd, form, title)], meta, on_progress)
        self._on_use("trace.import", caller, record)
        return record

    def spool(self) -> BinaryIO:
        """A nameless file on the store's disk for an import that arrives in pieces. Blocking; close it."""
        self.store.check_space()
        return tempfile.TemporaryFile(dir=self.store.root)

    def claim(self, caller: Caller, what: str) -> Claim:
        """Of room on the store's disk for what a caller sends."""
        return self.store.space.claim(caller.uid, what)

    async def _owned(self, caller: Caller, trace: str, what: str) -> TraceRecord:
        record = await self.get(caller, trace)
        require_owner(caller, record, what)
        return record

    def _visible(self, caller: Caller, limit: int) -> Sequence[TraceRecord]:
        readable = [record for record in self.store.newest_first() if may_read(caller, record)]
        if caller.admin or len(readable) <= limit:
            return readable[:limit]
        own = [record for record in readable if record.owner_uid == caller.uid]
        others = [record for record in readable if record.owner_uid != caller.uid]
        of_others = min(len(others), max(limit - len(own), limit // _SHARED_PART))
        chosen = {record.id for record in [*own[: limit - of_others], *others[:of_others]]}
        return [record for record in readable if record.id in chosen]

    def _traces_of(self, caller: Caller, capture: str) -> Sequence[TraceRecord]:
        """Those that the caller may read of one capture; of others' there is nothing, as of a capture that is none."""
        if not capture:
            raise BadInput("Say which capture: `profctl captures` lists them.")
        readable = [one for one in self.store.with_capture_prefix(capture) if may_read(caller, one) and not one.damaged]
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
                f"The capture {captures[0]} has {len(found)} traces, {CAPTURE_TRACES_MAX} can be asked at once."
            )
        return found

    def _resolve(self, caller: Caller, trace: str) -> TraceRecord:
        if not trace:
            latest = self.store.latest_of(caller.uid)
            if latest is None and caller.admin:
                latest = next(iter(self.store.newest_first(1)), None)
            if latest is None:
                raise NotFound("You have no traces yet: `profctl start --pid PID` records one.")
            return latest
        if is_id(trace):
            record = self.store.get(trace)
            if not may_read(caller, record):
                raise Denied(
                    f"Trace {trace} belongs to {record.owner or record.owner_uid} and is not shared with "
                    f"{caller.user}. Its owner can: `profctl share {trace} --with {caller.user}`."
                )
            return record
        found = [record for record in self.store.with_prefix(trace) if may_read(caller, record)]
        if not found:
            raise NotFound(f"You have no trace {trace!r}; `profctl list` shows those you may read.")
        if len(found) > 1:
            some = ", ".join(record.id for record in found[:_CANDIDATES_SHOWN])
            more = ", …" if len(found) > _CANDIDATES_SHOWN else ""
            raise BadInput(f"{trace!r} is the beginning of {len(found)} traces ({some}{more}): give more of it.")
        return found[0]
