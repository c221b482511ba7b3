"""Admission of calls: shares of the calls that are open at once, and rates.

gRPC counts all calls together (`maximum_concurrent_rpcs`) and hides the user of a connection, so that its counts are of
no use: a call is admitted by its token, before its request is read.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from profd import limits
from profd.fairness.rare_line import NOBODY
from profd.fairness.rates import STARTS, Rate, Rates
from profd.fairness.shares import Holder, Refused, Share, Shares
from profd.rpc.messages import IMPORT, STREAM
from profd.trust.caller import Caller
from profd.trust.token import Unidentified

_CALLS: Final = Share(
    "calls", "calls", limits.CALLS_PER_UID_MAX, limits.CALLS_MAX, limits.CALLS_RESERVED, retry_seconds=5
)
_INGEST: Final = Share(
    *("ingest_calls", "streams of events", limits.INGEST_CALLS_PER_UID_MAX, limits.INGEST_CALLS_MAX),
    reserved=limits.INGEST_CALLS_PER_UID_MAX,
    retry_seconds=1,
)
_IMPORTS: Final = Share(
    "imports", "imports", limits.IMPORTS_PER_UID_MAX, limits.IMPORTS_MAX, limits.IMPORTS_RESERVED, retry_seconds=10
)
_LOOKS: Final = Share(
    *("looks", "looks at the host's processes", limits.LOOKS_PER_UID_MAX, limits.LOOKS_MAX, limits.LOOKS_RESERVED),
    retry_seconds=1,
)
_HELD: Final = Share(
    *("answers_held", "MiB of answers that wait for their readers"),
    *(limits.ANSWERS_HELD_MIB_PER_UID, limits.ANSWERS_HELD_MIB_MAX, limits.ANSWERS_HELD_MIB_RESERVED),
    retry_seconds=1,
)
_CALL_RATE: Final = Rate("call_rate", "calls", limits.CALLS_PER_SECOND, limits.CALLS_BURST)
_INGEST_RATE: Final = Rate(
    "ingest_call_rate", "streams of events", limits.INGEST_CALLS_PER_SECOND, limits.INGEST_CALLS_PER_UID_MAX
)
_LOOK_RATE: Final = Rate("look_rate", "looks at the host's processes", limits.LOOKS_PER_SECOND, limits.LOOKS_BURST)
_SMALL_RATE: Final = Rate(
    "small_messages", "small messages", limits.SMALL_MESSAGES_PER_SECOND, limits.SMALL_MESSAGES_BURST
)
_UNPROVED_RATE: Final = Rate(
    *("unproved_messages", "messages without a token", limits.UNPROVED_MESSAGES_PER_SECOND),
    limits.UNPROVED_MESSAGES_BURST,
)

_STARTS: Final = frozenset(f"/profd.v1.CaptureService/{name}" for name in ("StartCapture", "RetryCapture"))
_LOOKING: Final = frozenset(
    f"/profd.v1.{name}"
    for name in (
        *("HostService/GetHostStatus", "CaptureService/ListTargets"),
        *("CaptureService/EstimateCapture", "CaptureService/Where"),
    )
)


class CallsByUser:
    """The open calls of our own services, by user."""

    def __init__(self) -> None:
        self._calls, self._ingest, self._imports, self._looks = map(Shares, (_CALLS, _INGEST, _IMPORTS, _LOOKS))
        self._call_rate, self._ingest_rate = Rates(_CALL_RATE), Rates(_INGEST_RATE)
        self._look_rate, self._start_rate = Rates(_LOOK_RATE), Rates(STARTS)
        self._small = {STREAM: Rates(_SMALL_RATE), IMPORT: Rates(_SMALL_RATE)}

    def enter(self, method: str, holder: Holder) -> None:
        """Count the call of this task until it has been answered. Raises Refused."""
        with ExitStack() as held:
            if method == STREAM:  # a streamer's: the job that it serves must not wait for what its user asks
                self._ingest_rate.take(holder)
                held.enter_context(self._ingest.take(holder))
            else:
                self._call_rate.take(holder)
                held.enter_context(self._calls.take(holder))
            if method == IMPORT:
                held.enter_context(self._imports.take(holder))
            if method in _STARTS:
                self._start_rate.take(holder)
            if method in _LOOKING:
                self._look_rate.take(holder)
                held.enter_context(self._looks.take(holder))
            # Not when its handler returns: an answer that nobody reads is memory, too.
            let_go = held.pop_all().close
            current_task().add_done_callback(lambda _done: let_go())

    def pause(self, method: str, holder: Holder, small: int) -> float:
        """Seconds to wait after so many small messages of a stream."""
        return self._small[method].owe(holder, small)


class HeldAnswers:
    """What of answers is in the daemon, by user, until it is read."""

    def __init__(self) -> None:
        self._shares = Shares(_HELD)

    def hold(self, holder: Holder, mib: int) -> None:
        """So many MiB more, until the call of this task has ended: what nobody reads is memory, too. Raises Refused."""
        for _ in range(mib):
            self._shares.hold(holder)
            current_task().add_done_callback(lambda _done: self._shares.give_back(holder))

    @contextmanager
    def holding(self, holder: Holder, mib: int) -> Iterator[None]:
        """So many MiB for the block: one message of many, until gRPC has got rid of it. Raises Refused."""
        with ExitStack() as held:
            for _ in range(mib):
                held.enter_context(self._shares.take(holder))
            yield


class Unproved:
    """Calls that need no token: so few that they cannot crowd out ours, and the oldest gives way to the newest."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Task[Any], None] = {}  # oldest first
        self._ended: set[asyncio.Task[Any]] = set()  # for others
        self._messages: Counter[asyncio.Task[Any]] = Counter()
        self._rate = Rates(_UNPROVED_RATE)

    def enter(self) -> None:
        """Count the call of this task until it has been answered; the oldest ends where there are too many."""
        task = current_task()
        if len(self._open) >= limits.UNPROVED_CALLS_MAX:
            oldest = next(iter(self._open))
            del self._open[oldest]
            self._ended.add(oldest)
            oldest.cancel()
        self._open[task] = None
        task.add_done_callback(self._left)

    def pause(self, small: int) -> float:
        """Seconds to wait before this call's next message. Raises Refused after too many."""
        task, most = current_task(), limits.UNPROVED_MESSAGES_MAX
        self._messages[task] += small
        if self._messages[task] >= most:
            why = f"a call without a token has {most} messages at most; make another for more"
            raise Refused(why, "unproved_messages", most, most, retry_seconds=1)
        return self._rate.owe(NOBODY, small)

    def check(self) -> None:
        """After a cancelled call. Raises Refused where others needed its place, nothing where its client went away."""
        task = current_task()
        if task not in self._ended:
            return
        task.uncancel()
        most = limits.UNPROVED_CALLS_MAX
        why = f"{most} calls without a token are open at once, and another came; try again in 1 s"
        raise Refused(why, "unproved_calls", most, most, retry_seconds=1)

    def _left(self, task: asyncio.Task[Any]) -> None:
        self._open.pop(task, None)
        self._ended.discard(task)
        self._messages.pop(task, None)


class OpenCalls:
    """Calls that are open, and whose: they were admitted once, however long they go on."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Task[Any], Caller] = {}
        self._ended: dict[asyncio.Task[Any], str] = {}  # and why

    def enter(self, caller: Caller) -> None:
        """Note the call of this task until it has been answered; calls of root do not depend on a group."""
        if caller.uid:
            task = current_task()
            self._open[task] = caller
            task.add_done_callback(self._left)

    def end(self, whose: Callable[[Caller], bool], why: str) -> None:
        """These callers have lost the right by which they were admitted."""
        for task, caller in self._open.items():
            if task not in self._ended and whose(caller):
                self._ended[task] = why
                task.cancel()

    def check(self) -> None:
        """After a cancelled call. Raises Unidentified if the change of a group cancelled it."""
        task = current_task()
        if task in self._ended:
            task.uncancel()
            raise Unidentified(f"{self._ended[task]} while this call went on: call again with a new token")

    def _left(self, task: asyncio.Task[Any]) -> None:
        self._open.pop(task, None)
        self._ended.pop(task, None)


def current_task() -> asyncio.Task[Any]:
    """The task of the call, which ends when the kernel has the answer."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a call has no task")
    return task
