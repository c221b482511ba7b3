"""`--max-overhead`: what is left out, and when recording must end, so that the job is not slowed more than allowed.

Pure: STATUS in, a decision out. Two measures: the seconds that recording took
per second of wall time, an upper estimate from counted events, and steady; and
the steps, which are what the user cares about, and noisy: they must be slow
three times running. A guarded process tells five times a second, so that a window of half a second is judged, too.
On a busy host its words come late and several at once, so they say when they were true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from profd.attached.agents.protocol import Hello, Status
from profd.model.capture import Options

ABORT: Final = "abort"
_SLOW_RUNNING: Final = 3  # statuses with steps in them
_SLOW_SECONDS: Final = 2.0  # that they lie apart, at least


@dataclass(frozen=True, slots=True)
class Dropped:
    """A kind of events that was left out from some moment on."""

    kind: str
    after_s: float  # since recording began
    share: float  # what it cost then


class OverheadGuard:
    """Decides after each STATUS. `limit` is a share of the wall time (0.02 is 2 %)."""

    def __init__(self, limit: float, kinds: Sequence[str]) -> None:
        """`kinds`: what may be left out, first to last."""
        self.dropped: list[Dropped] = []
        self._limit = limit
        self._left = list(kinds)
        self._before = Status()
        self._before_s = 0.0
        self._slow: list[float] = []  # when steps were slow, since they last were not
        self._settling = False

    def judge(self, status: Status, elapsed_s: float) -> str:
        """A kind to be left out from now on, ABORT, or empty: all is well.

        `elapsed_s`: since recording began, as the daemon sees it; for agents that do not tell it themselves.
        """
        if status.lasted_s is not None:
            elapsed_s = status.lasted_s
        share = self._share(status, elapsed_s)
        slow = self._slower(status)
        self._before, self._before_s = status, elapsed_s
        if self._settling:  # what passed while something was dropped says nothing yet
            self._settling, self._slow = not self._obeyed(status), []
            return ""
        if status.step_ns:
            self._slow = [*self._slow, elapsed_s] if slow > self._limit else []
        if share <= self._limit and not self._are_slow():
            return ""
        if not self._left:
            return ABORT
        self._settling, self._slow = True, []
        kind = self._left.pop(0)
        self.dropped.append(Dropped(kind, elapsed_s, max(share, slow)))
        return kind

    def sentences(self) -> list[str]:
        """A sentence for each kind that was left out, beginning with the option's name."""
        return [
            f"{each.kind}: left out from {each.after_s:.1f} s on, because recording took about "
            f"{each.share * 100:.1f} % and --max-overhead is {self._limit * 100:g} %"
            for each in self.dropped
        ]

    def missed(self, status: Status, seconds: float) -> str:
        """A sentence if all of it cost more than allowed and nothing was done: the window was over before.

        `status`: the last one; `seconds`: that recording took.
        """
        share = status.seconds / seconds if seconds > 0 else 0.0
        if self.dropped or share <= self._limit:
            return ""
        return (
            f"recording took about {share * 100:.1f} % of the time and --max-overhead is {self._limit * 100:g} %: "
            "the window was too short to leave anything out"
        )

    def _share(self, status: Status, elapsed_s: float) -> float:
        passed = elapsed_s - self._before_s
        return max(0.0, status.seconds - self._before.seconds) / passed if passed > 0 else 0.0

    def _obeyed(self, status: Status) -> bool:
        """Whether all that was dropped was, by the time of this status; of an agent that does not tell: by the next."""
        return status.limits is None or status.limits >= len(self.dropped)

    def _are_slow(self) -> bool:
        return len(self._slow) >= _SLOW_RUNNING and self._slow[-1] - self._slow[0] >= _SLOW_SECONDS

    def _slower(self, status: Status) -> float:
        if not status.step_ns or not status.step_ns_before:
            return 0.0
        return status.step_ns / status.step_ns_before - 1


def kinds(options: Options, hello: Hello) -> tuple[str, ...]:
    """Kinds that may be left out, the one with the most events first. Ranges are what the user put there: never."""
    operators = hello.framework.startswith("torch") and bool(hello.can & {"torch", "observer"})
    wanted = (
        ("c_calls", options.c_calls),
        ("stacks", options.stacks or options.modules),
        ("memory", options.memory),
        ("ops", operators),
    )
    return tuple(kind for kind, on in wanted if on)
