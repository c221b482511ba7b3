"""Looks at all captures all the time: a terminal state is reached once, and never changes."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from profproto.v1 import capture_pb2

from soak.client import Client, Refused, Unanswered

_LOOK_SECONDS: Final = 0.05
_LISTED: Final = 500

Seen = tuple[str, str, str]  # state, reason, trace


class Watcher:
    """A thread while `open`. `told` hears of each capture whose end was no end."""

    def __init__(self, socket: Path, told: Callable[[str], None]) -> None:
        self._client = Client(socket)
        self._told = told
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._ends: dict[tuple[str, int], Seen] = {}
        self._retried: dict[str, int] = {}
        self.looks = 0
        self._thread = threading.Thread(target=self._watch, name="watcher")

    def open(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End; returns when it has."""
        self._over.set()
        self._thread.join()
        self._client.close()

    @contextlib.contextmanager
    def retrying(self, capture: str) -> Iterator[None]:
        """Its owner asks for another end. What is under way when the answer comes is not looked at: it is of before."""
        with self._lock:
            self._retried[capture] = sys.maxsize
            for key in [key for key in self._ends if key[0] == capture]:
                del self._ends[key]
        try:
            yield
        finally:
            with self._lock:
                self._retried[capture] = self.looks + 1

    def forget(self) -> None:
        """What has been seen so far: its traces are about to be deleted."""
        with self._lock:
            self._ends.clear()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            try:
                asked = capture_pb2.ListCapturesRequest(limit=_LISTED)
                found = self._client.captures("ListCaptures", asked).captures
            except (Refused, Unanswered) as error:
                self._told(f"captures cannot be listed: {error}")
                return
            self.look(found)

    def look(self, captures: Iterable[capture_pb2.Capture]) -> None:
        """At one answer."""
        with self._lock:
            self.looks += 1
            for capture in captures:
                if self._retried.get(capture.id, -1) < self.looks:
                    self._look_at(capture)

    def _look_at(self, capture: capture_pb2.Capture) -> None:
        for target in capture.targets:
            key, now = (capture.id, target.pid), _seen(target)
            before = self._ends.get(key)
            if before is not None and before != now:
                self._told(f"capture {capture.id} of pid {target.pid} had ended as {before} and is {now} now")
            if before is not None or target.state >= capture_pb2.STATE_STORED:
                self._ends[key] = now
        ended = all(target.state >= capture_pb2.STATE_STORED for target in capture.targets)
        if capture.HasField("finished_ns") != ended:
            self._told(f"capture {capture.id} says finished_ns={capture.finished_ns}, and ended is {ended}")


def _seen(target: capture_pb2.TargetStatus) -> Seen:
    return (capture_pb2.State.Name(target.state), capture_pb2.Reason.Name(target.reason), target.trace)
