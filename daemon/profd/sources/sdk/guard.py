"""`--max-overhead`: what is left out, and when recording must end, so that the job is not slowed more than allowed.

Pure: STATUS in, a decision out. Two measures: the seconds that recording took
per second of wall time, an upper estimate from counted events, and steady; and
the steps, which are what the user cares about, and noisy: they must be slow
three times running.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from profd.agents.protocol import Hello, Status
from profd.capture.model import Options

ABORT: Final = "abort"
_SLOW_RUNNING: Final = 3  # statuses, one a second


@dataclass(frozen=True, slots=True)
class Dropped:
    """A kind of events that was left out from some moment on."""

    kind: str
    after_s: float  # since recording began
    share: float  # what it cost then


class Guard:
    """Decides after each STATUS. `limit` is a share of the wall time (0.02 is 2 %)."""

    def __init__(self, limit: float, kinds: Sequence[str]) -> None:
        """`kinds`: what may be left out, first to last."""
        self.dropped: list[Dropped] = []
        self.worst = 0.0  # the highest share that was seen
        self._limit = limit
        self._left = list(kinds)
        self._before = Status()
        self._before_s = 0.0
        self._slow = 0
        self._settling = False

    def judge(self, status: Status, elapsed_s: float) -> str:
        """A kind to be left out from now on, ABORT, or empty: all is well. `elapsed_s`: since recording began."""
        share = self._share(status, elapsed_s)
        self.worst = max(self.worst, share)
        slow = self._slower(status)
        self._before, self._before_s = status, elapsed_s
        if self._settling:  # the second in which something was dropped says nothing yet
            self._settling, self._slow = False, 0
            return ""
        self._slow = self._slow + 1 if slow > self._limit else 0
        if share <= self._limit and self._slow < _SLOW_RUNNING:
            return ""
        if not self._left:
            return ABORT
        self._settling, self._slow = True, 0
        kind = self._left.pop(0)
        self.dropped.append(Dropped(kind, elapsed_s, max(share, slow)))
        return kind

    def sentences(self) -> list[str]:
        """What was left out, each beginning with the option's name."""
        return [
            f"{each.kind}: left out from {each.after_s:.1f} s on, because recording took about "
            f"{each.share * 100:.1f} % and --max-overhead is {self._limit * 100:g} %"
            for each in self.dropped
        ]

    def _share(self, status: Status, elapsed_s: float) -> float:
        passed = elapsed_s - self._before_s
        return max(0.0, status.seconds - self._before.seconds) / passed if passed > 0 else 0.0

    def _slower(self, status: Status) -> float:
        if not status.step_ns or not status.step_ns_before:
            return 0.0
        return status.step_ns / status.step_ns_before - 1


def kinds(options: Options, hello: Hello) -> tuple[str, ...]:
    """What may be left out, that with the most events first. Ranges are what the user put there: never."""
    operators = hello.framework.startswith("torch") and bool(hello.can & {"torch", "observer"})
    wanted = (
        ("c_calls", options.c_calls),
        ("stacks", options.stacks or options.modules),
        ("memory", options.memory),
        ("ops", operators),
    )
    return tuple(kind for kind, on in wanted if on)
