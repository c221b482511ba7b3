"""TraceService: authorise, translate, call. The Library does the work, in workers."""

# ruff: noqa: N802, D102 - the names are gRPC's, and trace.proto describes the calls

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
from google.protobuf.message import Message
from profproto.v1 import capture_pb2, trace_pb2_grpc
from profproto.v1 import trace_pb2 as pb

from profd.disk.eviction import Preview
from profd.errors import BadInput
from profd.fairness.shares import Holder
from profd.fairness.threads import in_thread
from profd.fairness.to_the_end import to_the_end
from profd.importing.ingest import format_of
from profd.limits import (
    KEY_AVERAGES_BYTES_MAX,
    KEY_AVERAGES_ROW_BYTES_MAX,
    KEY_AVERAGES_ROWS_MAX,
    SUMMARY_BYTES_MAX,
)
from profd.questions.library import Library
from profd.questions.reading import Asked
from profd.rpc.answers import Answers
from profd.rpc.imports import received
from profd.rpc.in_turn import InTurn
from profd.rpc.translate import text
from profd.store.catalog import TraceRecord
from profd.trust import caller as callers
from profd.trust.audit_line import Audit
from profd.trust.caller import Caller

LIST_MAX: Final = 1000
_ROWS_ASKED: Final = KEY_AVERAGES_ROWS_MAX + 1
_IN_PARTS: Final = "ask QueryService for `summary`, which sends it in parts"
_OTHERWISE: Final = "give a `limit`, or ask QueryService for `top`, which sends all"

_INTEGERS: Final = (
    "count",
    "cpu_time_total_ns",
    "self_cpu_time_total_ns",
    "device_time_total_ns",
    "self_device_time_total_ns",
)
_MAYBE_INTEGERS: Final = (
    "flops",
    "backward_time_total_ns",
    "cpu_memory_usage",
    "self_cpu_memory_usage",
    "device_memory_usage",
    "self_device_memory_usage",
    "node_id",
)


def _streamed(question: str) -> Callable[[TraceServicer, Message, object], AsyncIterator[pb.DataChunk]]:
    """The call that asks this question."""
    return lambda self, request, context: self._chunks(question, request)


class TraceServicer(trace_pb2_grpc.TraceServiceServicer):
    """All calls of the service."""

    def __init__(
        self, library: Library, audit: Audit, answers: Answers, awaited: Callable[[], bool] = lambda: False
    ) -> None:
        """`awaited`: whether somebody waits for an answer now; files come slowly then."""
        self._library = library
        self._awaited = awaited
        self._audit = audit
        self._answers = answers
        self._lists = InTurn()
        self._changes = InTurn()  # each waits for the disk, and names of readers for the network, in a thread of all

    async def ListTraces(self, request: pb.ListTracesRequest, context: object) -> pb.ListTracesResponse:
        if request.limit < 0:
            raise BadInput(f"limit {request.limit}: give a number from 0 (meaning 50) up")
        caller = callers.current()
        async with self._lists.of(caller.uid):  # a thousand take 10 ms of a core
            return await to_the_end(self._listed(caller, min(request.limit, LIST_MAX)))

    async def _listed(self, caller: Caller, limit: int) -> pb.ListTracesResponse:
        return await in_thread(Holder.of(caller), _list_message, await self._library.list(caller, limit))

    async def GetTrace(self, request: pb.TraceRef, context: object) -> pb.Trace:
        return trace_message(await self._library.get(callers.current(), request.id))

    async def PinTrace(self, request: pb.PinTraceRequest, context: object) -> pb.Trace:
        caller = callers.current()
        async with self._changes.of(caller.uid):
            return trace_message(await to_the_end(self._pinned(caller, request.id, request.pinned)))

    async def _pinned(self, caller: Caller, trace: str, pinned: bool) -> TraceRecord:
        record = await self._library.pin(caller, trace, pinned)
        self._audit.write("trace.pin" if pinned else "trace.unpin", caller.uid, trace=record.id)
        return record

    async def ShareTrace(self, request: pb.ShareTraceRequest, context: object) -> pb.Trace:
        caller = callers.current()
        names = list(getattr(request, "with"))  # a keyword of Python
        async with self._changes.of(caller.uid):
            return trace_message(await to_the_end(self._shared(caller, request.id, names)))

    async def _shared(self, caller: Caller, trace: str, names: Sequence[str]) -> TraceRecord:
        record = await self._library.share(caller, trace, names)
        self._audit.write("trace.share", caller.uid, trace=record.id, names=names)
        return record

    async def DeleteTrace(self, request: pb.TraceRef, context: object) -> pb.DeleteTraceResponse:
        caller = callers.current()
        async with self._changes.of(caller.uid):
            return pb.DeleteTraceResponse(id=await to_the_end(self._deleted(caller, request.id)))

    async def _deleted(self, caller: Caller, trace: str) -> str:
        gone = await self._library.delete(caller, trace)
        self._audit.write("trace.delete", caller.uid, trace=gone)
        return gone

    async def Summary(self, request: pb.TraceRef, context: object) -> pb.SummaryResponse:
        asked = await self._asked("summary", request)
        summary = await self._answers.whole(asked, SUMMARY_BYTES_MAX, _IN_PARTS)
        return pb.SummaryResponse(trace=trace_message(asked.traces[0]), summary_json=summary.rstrip())

    async def KeyAverages(self, request: pb.KeyAveragesRequest, context: object) -> pb.KeyAveragesResponse:
        asked = await self._asked("top", request)
        limit = min(asked.arguments["limit"] or _ROWS_ASKED, _ROWS_ASKED)
        asked = replace(asked, arguments={**asked.arguments, "limit": limit})
        text = await self._answers.whole(asked, KEY_AVERAGES_BYTES_MAX, _OTHERWISE)
        # In Python, row by row: others have their turns.
        return await in_thread(Holder.of(callers.current()), _averages_message, text)

    async def Import(self, request: AsyncIterator[pb.ImportChunk], context: object) -> pb.ImportResponse:
        caller = callers.current()
        with (
            self._library.claim(caller, "this import") as claim,
            contextlib.closing(await in_thread(Holder.of(caller), self._library.spool)) as file,
        ):
            label, dialect, capture = await received(request, file, claim, Holder.of(caller), awaited=self._awaited)
            form = format_of(dialect)
            record = await self._library.import_file(caller, file.fileno(), label, form, capture=capture)
        return pb.ImportResponse(trace=trace_message(record))

    async def Evictions(self, request: pb.EvictionsRequest, context: object) -> pb.EvictionsResponse:
        caller = callers.current()
        async with self._lists.of(caller.uid):  # looks at all traces of all users
            return await to_the_end(self._going(caller, request.bytes))

    async def _going(self, caller: Caller, size: int) -> pb.EvictionsResponse:
        preview, gone = await self._library.evictions(caller, size)
        return await in_thread(Holder.of(caller), _evictions_message, preview, gone)

    Tree = _streamed("tree")
    Export = _streamed("export")
    Steps = _streamed("steps")
    Gpu = _streamed("gpu")
    Timeline = _streamed("timeline")
    Diff = _streamed("diff")
    Sql = _streamed("sql")

    async def _asked(self, question: str, request: Message) -> Asked:
        """The fields of a request are the arguments of its question; those that are not set are not sent."""
        set_ = {field.name: value for field, value in request.ListFields()}
        values = {name: value if isinstance(value, (str, int)) else list(value) for name, value in set_.items()}
        return await self._library.asked(callers.current(), question, str(values.pop("id", "")), values)

    async def _chunks(self, question: str, request: Message) -> AsyncGenerator[pb.DataChunk, None]:
        asked = await self._asked(question, request)
        async with contextlib.aclosing(self._answers.pieces(asked)) as answer:
            async for piece in answer:
                yield pb.DataChunk(data=piece)


def _list_message(records: Sequence[TraceRecord]) -> pb.ListTracesResponse:
    return pb.ListTracesResponse(traces=[trace_message(record) for record in records])


def _evictions_message(preview: Preview, gone: Sequence[TraceRecord]) -> pb.EvictionsResponse:
    return pb.EvictionsResponse(
        limit_bytes=preview.limit,
        stored_bytes=preview.stored,
        share_bytes=preview.share,
        own_bytes=preview.own,
        own_pinned_bytes=preview.own_pinned,
        traces=[trace_message(record) for record in gone],
        others=preview.others,
        more=preview.more,
        refusal=preview.refusal,
    )


def trace_message(record: TraceRecord) -> pb.Trace:
    """A trace as the contract shows it."""
    message = pb.Trace(
        id=record.id,
        capture=record.capture,
        owner=text(record.owner),
        owner_uid=max(0, record.owner_uid),
        source=record.source,
        title=text(record.title),
        created_ns=record.created_ns,
        events=record.events,
        bytes=record.bytes,
        pinned=record.pinned,
        shared_with=[text(name) for name in record.readers],
        lost=[capture_pb2.Loss(stage=loss.stage, reason=loss.reason, count=loss.count) for loss in record.lost],
        host=text(record.host),
    )
    for name in ("start_ns", "end_ns", "gpu_events", "pid", "rank"):
        value = getattr(record, name)
        if value is not None:
            setattr(message, name, value)
    return message


def _averages_message(text: bytes) -> pb.KeyAveragesResponse:
    # Whole, `json` would keep the interpreter from everybody else until it is through.
    rows = msgspec.json.decode(text, type=list[msgspec.Raw])
    if len(rows) > KEY_AVERAGES_ROWS_MAX:
        raise BadInput(f"there are more than {KEY_AVERAGES_ROWS_MAX} rows, the limit of this call; {_OTHERWISE}")
    if any(memoryview(row).nbytes > KEY_AVERAGES_ROW_BYTES_MAX for row in rows):
        raise BadInput(f"a row has more than {KEY_AVERAGES_ROW_BYTES_MAX} bytes, the limit of this call; {_OTHERWISE}")
    return pb.KeyAveragesResponse(rows=[_average_message(json.loads(bytes(row))) for row in rows])


def _average_message(row: dict[str, Any]) -> pb.KeyAverage:
    message = pb.KeyAverage(
        name=text(row["name"]),
        device_type=row["device_type"],
        input_shapes="" if row["input_shapes"] is None else text(msgspec.json.encode(row["input_shapes"]).decode()),
        stack=[text(frame) for frame in row.get("stack") or ()],
        **{name: row[name] for name in _INTEGERS},
    )
    if row.get("module") is not None:
        message.module = text(row["module"])
    for name in _MAYBE_INTEGERS:
        if row.get(name) is not None:
            setattr(message, name, row[name])
    return message
