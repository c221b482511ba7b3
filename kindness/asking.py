"""Captures through the client library, and what became of each of their processes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
from profclient.connection import Daemon
from profclient.errors import ClientError
from profproto.v1 import capture_pb2

Told = Callable[[int, str, bool], None]  # pid, outcome, whether it recorded
PATIENCE_SECONDS = 180.0
_OF_OURS = ("store_unavailable", "worker_died", "unreadable", "source_failed")  # faults of profd: its words are kept


@contextmanager
def connection(socket: Path) -> Iterator[Daemon | None]:
    """A daemon, or None where none answers."""
    try:
        daemon = Daemon(socket)
    except ClientError:
        yield None
        return
    with daemon:
        yield daemon


def capture(
    daemon: Daemon,
    pids: list[int],
    options: capture_pb2.Options,
    told: Told,
    *,
    stop_after: float | None = None,
    children: bool = False,
) -> None:
    """One capture from its start to its end. `stop_after` seconds it is stopped; without one it ends by itself.

    What a daemon or a process does on the way is an outcome, never an exception.
    """
    begun: capture_pb2.Capture | None = None
    try:
        begun = daemon.call(
            daemon.captures.StartCapture,
            capture_pb2.StartCaptureRequest(
                request_id=uuid.uuid4().hex,
                selector=capture_pb2.Selector(pids=pids, children=children),
                options=options,
                open_ended=not options.duration_ns and not options.iterations,
            ),
        )
        this = capture_pb2.CaptureRef(id=begun.id)
        if stop_after is not None:
            time.sleep(stop_after)
            begun = daemon.call(daemon.captures.StopCapture, this)
        for status in _statuses(daemon, begun):
            told(status.pid, outcome(status), recorded(status))
    except (ClientError, grpc.RpcError, ValueError) as error:  # ValueError: the channel was closed under us
        for pid in pids:
            told(pid, f"{type(error).__name__}", False)


def _statuses(daemon: Daemon, begun: capture_pb2.Capture) -> list[capture_pb2.TargetStatus]:
    """Of all its processes once it is over."""
    asked = capture_pb2.WatchCaptureRequest(id=begun.id)
    seen = begun
    for seen in daemon.stream(daemon.captures.WatchCapture, asked, timeout=PATIENCE_SECONDS):
        if seen.HasField("finished_ns"):
            break
    return list(seen.targets)


def recorded(status: capture_pb2.TargetStatus) -> bool:
    """Whether something of the process was recorded: a trace with events in it."""
    return status.state in (capture_pb2.STATE_STORED, capture_pb2.STATE_PARTIAL) and status.events > 0


def outcome(status: capture_pb2.TargetStatus) -> str:
    """A short stable name of how it ended."""
    state = capture_pb2.State.Name(status.state).removeprefix("STATE_").lower()
    if status.reason == capture_pb2.REASON_UNSPECIFIED:
        return state
    reason = capture_pb2.Reason.Name(status.reason).removeprefix("REASON_").lower()
    return f"{state} {reason}: {status.message[:200]}" if reason in _OF_OURS else f"{state} {reason}"
