"""Changes of traces, which wait for the disk and for names: those of one user keep no other's calls from a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from profd.rpc.traces import TraceServicer
from profd.store.catalog import TraceRecord
from profd.trust import caller as callers
from profd.trust.caller import Caller
from profproto.v1 import trace_pb2 as pb

from tests.support.captures import LONG


class Library:
    """Counts who changes something now, and waits until it may go on."""

    def __init__(self) -> None:
        self.changing: list[int] = []
        self.gate = asyncio.Event()

    async def share(self, caller: Caller, trace: str, names: Sequence[str]) -> TraceRecord:
        self.changing.append(caller.uid)
        await self.gate.wait()
        self.changing.remove(caller.uid)
        return TraceRecord(id=trace, owner_uid=caller.uid)

    async def pin(self, caller: Caller, trace: str, pinned: bool) -> TraceRecord:
        return await self.share(caller, trace, ())

    async def delete(self, caller: Caller, trace: str) -> str:
        return (await self.share(caller, trace, ())).id


class Audit:
    """Knows what was done."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, action: str, uid: int, **details: object) -> None:
        """One line."""
        self.written.append(f"{action} {uid} {details['trace']}")


@pytest.mark.parametrize(
    ("call", "request_"),
    [
        ("ShareTrace", pb.ShareTraceRequest(id="t")),
        ("PinTrace", pb.PinTraceRequest(id="t", pinned=True)),
        ("DeleteTrace", pb.TraceRef(id="t")),
    ],
)
async def test_one_change_of_a_user_at_a_time(call: str, request_: Any) -> None:
    library = Library()
    servicer: Any = TraceServicer(library, Audit(), None)  # type: ignore[arg-type]  # as much as is asked

    async def change(uid: int) -> None:
        callers.enter(Caller(uid=uid, gid=uid, user=f"u{uid}", admin=False, pid=0))
        await getattr(servicer, call)(request_, None)

    async with asyncio.timeout(LONG), asyncio.TaskGroup() as group:
        for uid in (1, 1, 1, 2):
            group.create_task(change(uid))
        while 2 not in library.changing:
            await asyncio.sleep(0)
        assert library.changing == [1, 2]
        library.gate.set()
    assert library.changing == []


@pytest.mark.parametrize(
    ("call", "first", "second", "said"),
    [
        ("ShareTrace", pb.ShareTraceRequest(id="a"), pb.ShareTraceRequest(id="b"), "trace.share 1"),
        ("DeleteTrace", pb.TraceRef(id="a"), pb.TraceRef(id="b"), "trace.delete 1"),
        ("PinTrace", pb.PinTraceRequest(id="a", pinned=True), pb.PinTraceRequest(id="b", pinned=True), "trace.pin 1"),
        ("PinTrace", pb.PinTraceRequest(id="a"), pb.PinTraceRequest(id="b"), "trace.unpin 1"),
    ],
)
async def test_a_change_whose_caller_went_away_counts_until_its_end_and_is_in_the_audit_log(
    call: str, first: Any, second: Any, said: str
) -> None:
    """Who cancels each call would have as many threads as there are, and nobody would know what was done."""
    library, audit = Library(), Audit()
    servicer: Any = TraceServicer(library, audit, None)  # type: ignore[arg-type]  # as much as is asked
    callers.enter(Caller(uid=1, gid=1, user="u", admin=False, pid=0))
    async with asyncio.timeout(LONG):
        gone, here = (asyncio.create_task(getattr(servicer, call)(asked, None)) for asked in (first, second))
        while not library.changing:
            await asyncio.sleep(0)
        gone.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert library.changing == [1]
        library.gate.set()
        assert (await here).id == "b"
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert audit.written == [f"{said} a", f"{said} b"]
