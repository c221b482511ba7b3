"""Long lists, which everybody else does not wait for."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from profd.capture.records import CaptureRecord, TargetRecord
from profd.rpc import captures, traces
from profd.store.catalog import TraceRecord
from profd.trust import caller as callers
from profd.trust.caller import Caller
from profproto.v1 import capture_pb2, trace_pb2


class Library:
    """Has traces, and counts who lists them now."""

    def __init__(self) -> None:
        self.listing = self.most = 0

    async def list(self, caller: Caller, limit: int) -> list[TraceRecord]:
        self.listing += 1
        self.most = max(self.most, self.listing)
        await asyncio.sleep(0)
        self.listing -= 1
        return [TraceRecord(id=f"t{number}", owner_uid=caller.uid) for number in range(3)]


class Manager:
    """Has captures of many targets."""

    def list(self, caller: Caller, limit: int) -> list[CaptureRecord]:
        target = TargetRecord("host", 1, 1, 1, "u", "python")
        return [CaptureRecord(f"c{number}", "", "u", 1, 1, targets=[target] * 64) for number in range(3)]


@pytest.fixture(autouse=True)
def _alice() -> None:
    callers.enter(Caller(uid=1, gid=1, user="u", admin=False, pid=0))


async def test_traces_are_listed_in_a_thread_and_a_users_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    where: set[int] = set()

    def message(record: TraceRecord) -> trace_pb2.Trace:
        where.add(threading.get_ident())
        return trace_pb2.Trace(id=record.id)

    monkeypatch.setattr(traces, "trace_message", message)
    library = Library()
    servicer: Any = traces.TraceServicer(library, None, None)  # type: ignore[arg-type]  # as much as is asked
    asked = [servicer.ListTraces(trace_pb2.ListTracesRequest(), None) for _ in range(12)]
    answers = await asyncio.gather(*asked)
    assert [[trace.id for trace in answer.traces] for answer in answers] == [["t0", "t1", "t2"]] * 12
    assert threading.get_ident() not in where
    assert library.most == 1


async def test_others_are_served_between_captures_of_many_targets() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(others())
    servicer: Any = captures.CaptureServicer(Manager(), None)  # type: ignore[arg-type]  # as much as is asked
    answer = await servicer.ListCaptures(capture_pb2.ListCapturesRequest(), None)
    task.cancel()
    assert [capture.id for capture in answer.captures] == ["c0", "c1", "c2"]
    assert turns == 3


async def test_a_list_that_would_be_too_large_leaves_out_earlier_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    servicer: Any = captures.CaptureServicer(Manager(), None)  # type: ignore[arg-type]  # as much as is asked
    whole = await servicer.ListCaptures(capture_pb2.ListCapturesRequest(), None)
    one = whole.captures[0].ByteSize()
    for most, listed, left_out in ((3 * one, 3, 0), (3 * one - 1, 2, 1), (1, 1, 2)):  # one in any case
        monkeypatch.setattr(captures, "LIST_BYTES_MAX", most)
        answer = await servicer.ListCaptures(capture_pb2.ListCapturesRequest(), None)
        assert (len(answer.captures), answer.left_out) == (listed, left_out)
