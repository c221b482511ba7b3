"""The page Now: what happens on the host, as it happens; and, under --write, captures begun and ended from the page."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from profclient.errors import BusyError, Interrupted, UsageError
from profclient.ui.asking import Library, stopped_with

WATCH: Final = "/api/watch"
WATCHES_MAX: Final = 8
"""Tabs that are seen at once; each has a thread, beside the questions and never in their way."""
PIDS_MAX: Final = 256
SECONDS_MAX: Final = 600
_ALSO: Final = ("shapes", "stacks", "memory")
_REQUEST_ID: Final = re.compile(r"[0-9a-f-]{1,64}")
_CAPTURE: Final = re.compile(r"c[0-9a-f]{1,12}")


class Watches:
    """The tabs that watch."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._places = threading.BoundedSemaphore(WATCHES_MAX)

    def lines(self, asker: socket.socket) -> Iterator[bytes]:
        """JSON lines in pieces that end anywhere, until who asked goes away. Raises ClientError."""
        if self._library.store is not None:
            raise UsageError("a store's folder has no processes: run profctl ui without --store.")
        if not self._places.acquire(blocking=False):
            raise BusyError(f"{WATCHES_MAX} tabs watch already: close one of them.")
        try:
            yield from _told(asker)
        finally:
            self._places.release()


def _told(asker: socket.socket) -> Iterator[bytes]:
    from profproto.v1 import query_pb2

    from profclient.connection import Daemon

    request = query_pb2.QueryRequest(name="watch_host", scope=query_pb2.Scope(host=True))
    with Daemon() as daemon, stopped_with(asker, daemon.close) as gone:
        try:
            for part in daemon.stream(daemon.questions.Query, request, timeout=None):
                if part.WhichOneof("part") == "data":
                    yield part.data
        except ValueError as error:
            if gone.is_set():  # gRPC's word for a call on a channel that was closed before it
                raise Interrupted("the page that watched is gone.") from error
            raise


def estimate(asked: Any) -> Any:
    """As `profctl start --dry-run --json`. Raises ClientError."""
    from profproto.v1 import capture_pb2

    from profclient.cli.estimate_view import estimates_json
    from profclient.connection import Daemon

    selector, options = _order(asked)
    with Daemon() as daemon:
        request = capture_pb2.EstimateCaptureRequest(selector=selector, options=options)
        return estimates_json(daemon.call(daemon.captures.EstimateCapture, request).targets)


def start(asked: Any) -> Any:
    """As `profctl start --detach --json`: `request_id` is of the page, and never begins two. Raises ClientError."""
    from profproto.v1 import capture_pb2

    from profclient.as_json import capture_json
    from profclient.connection import Daemon

    selector, options = _order(asked)
    name = asked.get("request_id")
    if not isinstance(name, str) or not _REQUEST_ID.fullmatch(name):
        raise UsageError("a start has a request_id, which never begins two captures.")
    with Daemon() as daemon:
        request = capture_pb2.StartCaptureRequest(request_id=name, selector=selector, options=options)
        return capture_json(daemon.call(daemon.captures.StartCapture, request))


def stop(asked: Any) -> Any:
    """As `profctl stop --json`, without waiting for its end. Raises ClientError."""
    from profproto.v1 import capture_pb2

    from profclient.as_json import capture_json
    from profclient.connection import Daemon

    capture = asked.get("capture") if isinstance(asked, dict) else None
    if not isinstance(capture, str) or not _CAPTURE.fullmatch(capture):  # an empty one would be the latest
        raise UsageError("say which capture is to end.")
    with Daemon() as daemon:
        return capture_json(daemon.call(daemon.captures.StopCapture, capture_pb2.CaptureRef(id=capture)))


WRITES: Final[dict[str, Callable[[Any], Any]]] = {
    "/api/estimate": estimate,
    "/api/start": start,
    "/api/stop": stop,
}
"""Routes that there are under --write alone."""


def _order(asked: Any) -> tuple[Any, Any]:
    """The selector and the options of `pids`, `seconds` or `iterations`, and flags. Raises UsageError."""
    from profproto.v1 import capture_pb2

    if not isinstance(asked, dict):
        raise UsageError("a request is a JSON object.")
    pids = asked.get("pids")
    if not isinstance(pids, list) or not 0 < len(pids) <= PIDS_MAX or not all(_is_whole(pid, 1 << 31) for pid in pids):
        raise UsageError(f"choose between 1 and {PIDS_MAX} processes.")
    seconds, iterations = asked.get("seconds"), asked.get("iterations")
    if (seconds is None) == (iterations is None):
        raise UsageError("a window is so many seconds or so many steps: give one of them.")
    shapes, stacks, memory = (asked.get(name) is True for name in _ALSO)
    options = capture_pb2.Options(shapes=shapes, stacks=stacks, memory=memory)
    if iterations is not None:
        if not _is_whole(iterations, 10_001):
            raise UsageError("a window has between 1 and 10,000 steps.")
        options.iterations = iterations
    else:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0.001 <= seconds <= SECONDS_MAX:
            raise UsageError(f"a window has between 0.001 and {SECONDS_MAX} seconds.")
        options.duration_ns = round(seconds * 1e9)
    return capture_pb2.Selector(pids=pids), options


def _is_whole(value: Any, below: int) -> bool:
    return type(value) is int and 0 < value < below
