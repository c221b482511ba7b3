"""Traces as a caller sees them: the daemon's servicer and the offline tool are thin shells around this."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from profd.disk.eviction import Preview
from profd.disk.files import disk
from profd.disk.space import Claim
from profd.errors import BadInput
from profd.fairness.few import Few
from profd.fairness.shares import Holder
from profd.fairness.threads import in_thread
from profd.importing.ingest import Input, OnProgress, RunJob, check_raw, ingest
from profd.kernel.freeing import Spool, let_go
from profd.limits import CAPTURE_TRACES_MAX, PACKED_AT_ONCE, PACKED_AT_ONCE_PER_UID
from profd.model.capture import Loss
from profd.questions.packed import PACKED, Layout, pack
from profd.questions.reading import Asked, OnUse, ReadLibrary
from profd.questions.table import directory, index
from profd.segments.meta import TraceMeta
from profd.store.access import require_owner
from profd.store.catalog import TraceRecord
from profd.store.store import Store
from profd.trust.caller import Caller

NEW: Final = "new"  # in the place of a capture's id


class Library(ReadLibrary):
    """All verbs on the traces of a store."""

    def __init__(
        self, store: Store, run_job: RunJob, host: str = "", on_use: OnUse = lambda action, caller, record: None
    ) -> None:
        super().__init__(store, run_job, on_use)
        self.store = store
        self._packs = Few(PACKED_AT_ONCE_PER_UID, PACKED_AT_ONCE)
        self._host = host or os.uname().nodename

    async def _run(self, asked: Asked, fds: Sequence[int]) -> dict[str, Any]:
        """By what was kept of a capture's traces, where that answers it; otherwise as any question."""
        kept = None
        places = self._packs.of(asked.uid)
        if asked.capture and asked.question.rollups and asked.question.kept_of_capture and not places.locked():
            async with places:
                kept = await self._run_kept(asked, fds)
        return await super()._run(asked, fds) if kept is None else kept

    async def _run_kept(self, asked: Asked, fds: Sequence[int]) -> dict[str, Any] | None:
        """The job of a capture, by what was kept of its traces alone; None where that does not answer it."""
        names = ["trace", *(other.name for other in asked.question.others)]
        places = {directory(name) for name in names} | {index(name) for name in names}
        with contextlib.ExitStack() as held:
            kept = os.memfd_create("profd-kept")
            held.callback(let_go, kept)
            layouts = await in_thread(asked.holder, _packed, asked, names, kept)
            if layouts is None:
                return None
            others = {name: value for name, value in asked.arguments.items() if name not in places}
            found = await self._run_job(asked.question.name, {**others, PACKED: layouts}, [*fds, kept])
        return None if found.get("needs_events") else found

    async def pin(self, caller: Caller, trace: str, pinned: bool) -> TraceRecord:
        """Keep it from being evicted, or not any more. Owner, within limits, and admins."""
        record = await self._owned(caller, trace, "pin" if pinned else "unpin")
        return await in_thread(Holder.of(caller), self._pin, record.id, pinned, not caller.admin)

    def _pin(self, trace: str, pinned: bool, limited: bool) -> TraceRecord:
        return self.store.pin(trace, pinned, limited=limited)

    async def evictions(self, caller: Caller, size: int) -> tuple[Preview, Sequence[TraceRecord]]:
        """What would go were a trace of the caller's of this size stored now, and the first of it that they may see."""
        if size < 0:
            raise BadInput(f"A trace has no {size} bytes.")
        return await in_thread(Holder.of(caller), self._going, caller.uid, size, caller.admin)

    def _going(self, uid: int, size: int, all_seen: bool) -> tuple[Preview, Sequence[TraceRecord]]:
        preview = self.store.preview(uid, size, all_seen=all_seen)
        return preview, self.store.these(preview.gone)

    async def share(self, caller: Caller, trace: str, names: Sequence[str]) -> TraceRecord:
        """Let exactly these users (names or uids) read it beside its owner; "*" = everybody. Owner and admins."""
        record = await self._owned(caller, trace, "share")
        return await in_thread(Holder.of(caller), self.store.share, record.id, names)

    async def delete(self, caller: Caller, trace: str) -> str:
        """Remove it at once, pinned or not; returns its id. Owner and admins."""
        if not trace:
            raise BadInput("Say which trace to remove: `profctl rm TRACE`.")
        record = await self._owned(caller, trace, "remove")
        await in_thread(Holder.of(caller), self.store.delete, record.id)
        return record.id

    async def import_file(
        self,
        caller: Caller,
        fd: int,
        label: str,
        form: str = "",
        on_progress: OnProgress | None = None,
        capture: str = "",
    ) -> TraceRecord:
        """Store an open trace file as the caller's. `label` is a name for people, never a path to us.

        `form`: a name of `decode/open.py`, or empty for what its content says. The descriptor stays the caller's.
        `capture`: NEW for one of its own, which several files are to be of, or the id of such a one (else BadInput).
        """
        name = Path(label).name or "import"
        of = await in_thread(Holder.of(caller), self._capture_of_imports, caller, capture) if capture else ""
        return await self._import(caller, fd, form, on_progress, source="import", title=name, capture=of)

    def _capture_of_imports(self, caller: Caller, capture: str) -> str:
        """Nobody adds a trace to what was recorded, or to somebody else's: its readers would take it for a part."""
        if capture == NEW:
            return "c" + secrets.token_hex(6)
        traces = self.store.of_capture(capture)
        if not traces or any(one.owner_uid != caller.uid or one.source != "import" for one in traces):
            raise BadInput(f"{capture[:100]!r} is no capture of files that you imported together.")
        if len(traces) >= CAPTURE_TRACES_MAX:
            raise BadInput(f"the capture {capture} has {len(traces)} traces, as many as can be asked at once.")
        return capture

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
        told: Callable[[TraceRecord], None] = lambda record: self._on_use("trace.import", caller, record)  # noqa: E731
        record, _ = await ingest(self.store, self._run_job, [Input(fd, form, title)], meta, on_progress, told)
        return record

    def spool(self) -> BinaryIO:
        """A nameless file on the store's disk for an import that arrives in pieces. Blocking; close it.

        Raises Exhausted, with a sentence, where it cannot be made.
        """
        self.store.check_space()
        with disk(self.store.root, "Writing to"):
            return Spool(self.store.root)

    def claim(self, caller: Caller, what: str) -> Claim:
        """Of room on the store's disk for what a caller sends."""
        return self.store.space.claim(caller.uid, what)

    async def _owned(self, caller: Caller, trace: str, what: str) -> TraceRecord:
        record = await self.get(caller, trace)
        require_owner(caller, record, what)
        return record


def _packed(asked: Asked, names: Sequence[str], out: int) -> dict[str, Layout] | None:
    """Of the traces that each of these arguments names, what was kept: packed, or None."""
    layouts = {}
    for name in names:
        traces, indexes = (asked.arguments.get(place, ()) for place in (directory(name), index(name)))
        if len(indexes) < len(traces):
            return None
        found = pack([*map(Path, traces)], [*map(Path, indexes)], asked.question.rollups, out)
        if found is None:
            return None
        layouts[name] = found
    return layouts
