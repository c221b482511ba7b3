"""CaptureService: authorise, translate, call. ProfdErrors become statuses in the server's interceptor."""

# ruff: noqa: N802, D102 - the names are gRPC's, and capture.proto describes the calls

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from profproto.v1 import capture_pb2 as pb
from profproto.v1 import capture_pb2_grpc

from profd.attached.collectives import Collectives
from profd.capture.manager import CaptureManager
from profd.capture.planner import Request, forbidden, missing, of_one
from profd.capture.records import CaptureRecord
from profd.errors import BadInput, ProfdError
from profd.fairness.few import Few
from profd.fairness.pieces import in_pieces
from profd.fairness.rates import Rate, Rates
from profd.fairness.room import Room
from profd.fairness.shares import Holder
from profd.fairness.threads import in_thread
from profd.limits import (
    CAPTURE_TARGETS_MAX,
    STACKS_AT_ONCE,
    STACKS_AT_ONCE_PER_UID,
    STACKS_BYTES_MAX,
    STACKS_PER_SECOND,
    WHERES_AT_ONCE,
    WHERES_AT_ONCE_PER_UID,
    MiB,
)
from profd.rpc import translate
from profd.rpc.in_turn import InTurn
from profd.rpc.telling import Telling
from profd.sources.pyspy.stack import ThreadStack
from profd.targets.process import Process
from profd.targets.selector import Selection, Selector
from profd.trust import caller as callers
from profd.trust.namespaces import translate_pids

LIST_DEFAULT: Final = 50
LIST_MAX: Final = 1000
LIST_BYTES_MAX: Final = 48 * MiB  # of one answer: profctl takes 64, and a capture has fewer than the rest
LISTED_AT_ONCE: Final = 64  # targets: a few ms in which nobody else is served

_TOO_LONG: Final = f"The stacks of these processes exceed {STACKS_BYTES_MAX // MiB} MiB: ask for fewer at a time."
_STACKS: Final = Rate("stacks_rate", "looks at stacks of a process", STACKS_PER_SECOND, CAPTURE_TARGETS_MAX)

Where = Callable[[Process, bool], Awaitable[Sequence[ThreadStack]]]
"""(process, native) -> its threads' stacks. Raises ProfdError with the reason and the fix."""

TranslatePids = Callable[[callers.Caller, Sequence[int]], list[int]]


class CaptureServicer(capture_pb2_grpc.CaptureServiceServicer):
    """All calls of the service. The interceptor has set the caller in the context."""

    def __init__(
        self,
        manager: CaptureManager,
        where: Where,
        translate_pids: TranslatePids = translate_pids,
        collectives: Collectives | None = None,
        telling: Telling | None = None,
    ) -> None:
        """`collectives`: None, and nothing is said of them. `telling`: other shares than those of docs/security.md."""
        self._manager = manager
        self._where = where
        self._collectives = collectives
        self._translate_pids = translate_pids
        self._telling = telling or Telling()
        self._lists = InTurn()
        self._stacks_rate = Rates(_STACKS)
        self._wheres = Few(WHERES_AT_ONCE_PER_UID, WHERES_AT_ONCE)
        self._few = Few(STACKS_AT_ONCE_PER_UID, STACKS_AT_ONCE)

    async def StartCapture(self, request: pb.StartCaptureRequest, context: object) -> pb.Capture:
        asked = Request(
            await self._selector(request.selector),
            translate.options_from_untrusted(request.options),
            request.request_id,
            request.open_ended,
            translate.fleet_from_untrusted(request),
        )
        return await self._told(await self._manager.start(callers.current(), asked))

    async def StopCapture(self, request: pb.CaptureRef, context: object) -> pb.Capture:
        return await self._told(self._manager.stop(callers.current(), request.id))

    async def RetryCapture(self, request: pb.CaptureRef, context: object) -> pb.Capture:
        return await self._told(await self._manager.retry(callers.current(), request.id))

    async def GetCapture(self, request: pb.CaptureRef, context: object) -> pb.Capture:
        return await self._told(self._manager.get(callers.current(), request.id))

    async def ListCaptures(self, request: pb.ListCapturesRequest, context: object) -> pb.ListCapturesResponse:
        if request.limit < 0:
            raise BadInput(f"limit {request.limit}: give a number from 0 (meaning {LIST_DEFAULT}) up")
        caller, answer, targets = callers.current(), pb.ListCapturesResponse(), 0
        limit = min(request.limit or LIST_DEFAULT, LIST_MAX)
        async with self._lists.of(caller.uid):
            records = self._manager.list(caller, limit)
            if await self._telling.may(caller, sum(len(record.targets) for record in records), len(records)):
                records = self._manager.list(caller, limit)
            size = 0
            for at, record in enumerate(records):
                message = translate.capture_message(record)
                size += message.ByteSize()
                if size > LIST_BYTES_MAX and at:
                    answer.left_out = len(records) - at
                    break
                answer.captures.append(message)
                targets += len(record.targets)
                if targets >= LISTED_AT_ONCE:  # here, where nothing of them changes meanwhile; but not all at once
                    targets = 0
                    await asyncio.sleep(0)
        return answer

    async def WatchCapture(self, request: pb.WatchCaptureRequest, context: object) -> AsyncIterator[pb.Capture]:
        states = self._manager.watch(callers.current(), request.id, lease=request.lease)
        async with contextlib.aclosing(states):
            async for record in states:
                yield await self._told(record)

    async def EstimateCapture(self, request: pb.EstimateCaptureRequest, context: object) -> pb.EstimateCaptureResponse:
        options = translate.options_from_untrusted(request.options)
        open_ended = not (options.duration_ns or options.iterations)
        asked = Request(await self._selector(request.selector), options, open_ended=open_ended)
        plans = await self._manager.planner.estimate(callers.current(), asked)
        steps = await self._manager.planner.steps(plans) if request.steps else [None] * len(plans)
        told = await in_pieces(lambda pair: translate.estimate_message(*pair), list(zip(plans, steps, strict=True)))
        return pb.EstimateCaptureResponse(targets=told)

    async def ListTargets(self, request: pb.ListTargetsRequest, context: object) -> pb.ListTargetsResponse:
        selector = await self._selector(request.selector)
        sightings = await self._manager.planner.targets(callers.current(), selector, everything=request.all)
        return pb.ListTargetsResponse(targets=await in_pieces(translate.sighting_message, sightings))

    async def Where(self, request: pb.WhereRequest, context: object) -> pb.WhereResponse:
        selector = await self._selector(request.selector)
        found = await self._manager.planner.processes(callers.current(), selector)
        processes = [process for process in found.allowed if selector.pids or process.python]
        if len(processes) > CAPTURE_TARGETS_MAX:
            raise BadInput(
                f"{len(processes)} processes match; look at {CAPTURE_TARGETS_MAX} or fewer{of_one(processes)}"
            )
        uid = callers.current().uid
        if processes:
            self._stacks_rate.take(Holder.of(callers.current()), len(processes))
        async with self._wheres.place(uid):
            return await self._where_of(uid, processes, found, request)

    async def _where_of(
        self, uid: int, processes: Sequence[Process], found: Selection, request: pb.WhereRequest
    ) -> pb.WhereResponse:
        before = await self._collectives.before(uid, processes) if self._collectives and processes else None
        room = Room(STACKS_BYTES_MAX)
        read = await asyncio.gather(*(self._stacks(process, request.native, room) for process in processes))
        stacks = {process.id: threads for process, (_, threads) in zip(processes, read, strict=True)}
        said = await self._collectives.after(uid, before, processes, stacks) if self._collectives and before else []
        answers = [answer for answer, _ in read]
        answers += [
            pb.ProcessStacks(pid=p.id.pid, error=forbidden(p)) for p in found.forbidden if request.selector.pids
        ]
        answers += [pb.ProcessStacks(pid=pid, error=missing(pid)) for pid in found.missing]
        return pb.WhereResponse(processes=answers, collectives=map(translate.collectives_message, said))

    async def SetEnabled(self, request: pb.SetEnabledRequest, context: object) -> pb.SetEnabledResponse:
        self._manager.set_enabled(callers.current(), request.enabled, request.why[:512])
        why = self._manager.switch.why_disabled()
        return pb.SetEnabledResponse(enabled=why is None, why=why or "")

    async def _told(self, record: CaptureRecord) -> pb.Capture:
        """When the caller may be told; as it is then."""
        caller = callers.current()
        if await self._telling.may(caller, len(record.targets)):
            record = self._manager.get(caller, record.id)
        return translate.capture_message(record)

    async def _selector(self, message: pb.Selector) -> Selector:
        if len(message.pids) > CAPTURE_TARGETS_MAX:
            raise BadInput(f"{len(message.pids)} pids were named; at most {CAPTURE_TARGETS_MAX} are taken")
        caller, pids = callers.current(), list(message.pids)
        if pids and not caller.host_pids:  # seldom: a thread is milliseconds away where cores are busy
            pids = await in_thread(Holder.of(caller), self._translate_pids, caller, pids)
        return translate.selector_from_untrusted(message, pids)

    async def _stacks(
        self, process: Process, native: bool, room: Room
    ) -> tuple[pb.ProcessStacks, Sequence[ThreadStack]]:
        answer = pb.ProcessStacks(pid=process.id.pid, command=translate.text(process.command), rank=process.rank)
        try:
            async with self._few.place(callers.current().uid):
                threads = await self._where(process, native)
        except ProfdError as error:
            answer.error = translate.text(str(error))
            return answer, ()
        holder = Holder.of(callers.current())
        if not room.take(await in_thread(holder, _bytes_of, threads)):
            answer.error = _TOO_LONG
            return answer, ()
        await in_thread(holder, _tell, answer, threads)
        return answer, threads


def _bytes_of(threads: Sequence[ThreadStack]) -> int:
    """Of their text, and something for each frame."""
    return sum(len(frame.function) + len(frame.file) + 32 for thread in threads for frame in thread.frames)


def _tell(answer: pb.ProcessStacks, threads: Sequence[ThreadStack]) -> None:
    """In a thread: a hundred thousand frames take a second."""
    answer.threads.extend(map(translate.stack_message, threads))
