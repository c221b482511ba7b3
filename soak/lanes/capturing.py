"""What lanes of captures share: asking for one, following it to its end, asking again for what can be retried."""

from __future__ import annotations

import time
import uuid
from typing import Final

import grpc
from profproto.v1 import capture_pb2 as pb

from soak.client import PATIENCE_SECONDS, Client, Refused
from soak.rig import Follow, Rig

_LOOK_SECONDS: Final = 0.03
_GRACE_SECONDS: Final = 10.0  # a program looks for the next daemon for 15 s, and takes a few of these to find it
_RETRIES: Final = 12  # a worker may be killed under each


class Endless(Exception):
    """A capture has no end."""


def begun(rig: Rig, client: Client, follow: Follow, pid: int, options: pb.Options) -> bool:
    """Whether there is a capture now. Its request is sent until some daemon answers: that makes one at most."""
    request = pb.StartCaptureRequest(
        request_id=uuid.uuid4().hex,
        selector=pb.Selector(pids=[pid]),
        options=options,
        open_ended=not options.duration_ns,
    )
    try:
        answer = client.captures("StartCapture", request)
    except Refused as error:
        if error.code is not grpc.StatusCode.NOT_FOUND:  # the process has been killed
            rig.fault(f"a capture of pid {pid} was refused: {error}")
        return False
    follow.capture = answer.id
    with rig.lock:
        rig.asked.add(answer.id)
    return True


def target(client: Client, capture: str) -> pb.TargetStatus:
    """How its one process stands."""
    found: pb.TargetStatus = client.captures("GetCapture", pb.CaptureRef(id=capture)).targets[0]
    return found


def reached(client: Client, follow: Follow, state: int) -> pb.TargetStatus:
    """Once it is in this state, or further. Raises Endless."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := target(client, follow.capture)).state < state:
        if time.monotonic() > deadline:
            raise Endless(f"no end within {PATIENCE_SECONDS:.0f} s ({found.doing}): {told(found, follow)}")
        time.sleep(_LOOK_SECONDS)
    return found


def ended(rig: Rig, client: Client, follow: Follow) -> pb.TargetStatus:
    """Its end, after as many retries as it takes to have what is in the journal. Raises Endless."""
    found = reached(client, follow, pb.STATE_STORED)
    for _ in range(_RETRIES):
        if has_given_up(found, follow):
            with rig.lock:
                follow.promise.first = None
        if found.state != pb.STATE_FAILED or "profctl retry" not in found.message:
            break
        with rig.watcher.retrying(follow.capture):
            try:
                client.captures("RetryCapture", pb.CaptureRef(id=follow.capture))
            except Refused as error:
                if error.code is not grpc.StatusCode.FAILED_PRECONDITION:  # a daemon that was killed had begun it
                    raise
        found = reached(client, follow, pb.STATE_STORED)
    if found.trace:
        with rig.lock:
            rig.traces[found.trace] = found.events
    return found


def has_given_up(found: pb.TargetStatus, follow: Follow) -> bool:
    """Whether its program has let go of what it recorded, after daemons in a row, and nobody has said how much.

    Where the capture says how much, that is held against what was recorded.
    """
    restarted = found.state == pb.STATE_FAILED and found.reason == pb.REASON_DAEMON_RESTARTED
    return restarted and follow.away_seconds > _GRACE_SECONDS and not found.lost


def told(found: pb.TargetStatus, follow: Follow) -> str:
    """A line about it."""
    lost = {loss.reason: loss.count for loss in found.lost}
    hit = ", ".join(sorted(follow.hits)) or "nothing"
    text = f"capture {follow.capture}, pid {found.pid}, {outcome(found)} ({found.message}), trace {found.trace or '-'}"
    return f"{text}, counted {lost}, {follow.daemons} daemons killed, hit: {hit}; {follow.promise}"


def outcome(found: pb.TargetStatus) -> str:
    """State and reason."""
    state = pb.State.Name(found.state).removeprefix("STATE_").lower()
    reason = pb.Reason.Name(found.reason).removeprefix("REASON_").lower()
    return state if found.reason == pb.REASON_UNSPECIFIED else f"{state} {reason}"
