"""Following a capture until it is over: live lines on stderr."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Self

from profproto.v1 import capture_pb2
from rich.live import Live
from rich.text import Text

from profclient.cli import capture_view
from profclient.cli.output import console, printable
from profclient.connection import Daemon
from profclient.errors import TimeoutExpired, UnreachableError


def until_over(
    daemon: Daemon,
    capture: capture_pb2.Capture,
    quiet: bool = False,
    lease: bool = False,
    timeout: float | None = None,
) -> capture_pb2.Capture:
    """Watch until every target is terminal. Raises TimeoutExpired; the capture then goes on."""
    deadline = None if timeout is None else time.monotonic() + timeout
    latest = capture
    with CaptureProgress(quiet) as watch:
        for latest in _states(daemon, capture, lease, deadline):
            watch.show(latest)
    return latest


def _states(
    daemon: Daemon, capture: capture_pb2.Capture, lease: bool, deadline: float | None
) -> Iterator[capture_pb2.Capture]:
    yield capture
    while capture_view.live(capture):
        request = capture_pb2.WatchCaptureRequest(id=capture.id, lease=lease)
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            for capture in daemon.stream(daemon.captures.WatchCapture, request, timeout=left):
                yield capture
        except TimeoutExpired as error:
            raise TimeoutExpired(
                f"capture {capture.id} goes on. `profctl wait {capture.id}` waits for its end."
            ) from error
        except UnreachableError as error:
            raise UnreachableError(
                f"{error}\nOnce profd is back, `profctl wait {capture.id}` prints the result of the capture."
            ) from error


class Progress:
    """Lines about a capture on stderr: on a terminal they replace each other, elsewhere they follow each other."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self._console = console(err=True)
        in_place = not quiet and self._console.is_terminal
        self.live = Live(console=self._console, transient=True, refresh_per_second=8) if in_place else None

    def __enter__(self) -> Self:
        if self.live is not None:
            self.live.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.live is not None:
            self.live.__exit__(None, None, None)

    def line(self, text: str) -> None:
        """Print one more line, where lines follow each other."""
        self._console.print(text, markup=False, soft_wrap=True)


class CaptureProgress(Progress):
    """The targets of a capture; where lines follow each other, a line for each change."""

    def __init__(self, quiet: bool) -> None:
        super().__init__(quiet)
        self._said: dict[int, str] = {}

    def show(self, capture: capture_pb2.Capture) -> None:
        """Show the state that has just come in."""
        if self.quiet:
            return
        lines = {target.pid: printable(capture_view.target_line(target)) for target in capture.targets}
        if self.live is not None:
            self.live.update(Text(f"capture {capture.id}\n" + "\n".join(lines.values())))
            return
        if not capture_view.live(capture):
            return  # the answer that follows says how each ended
        for pid, line in lines.items():
            if self._said.get(pid) != line:
                self._said[pid] = line
                self.line(line)
