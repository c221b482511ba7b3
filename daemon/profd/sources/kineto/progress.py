"""Sentences for a user while an accepted window runs."""

from __future__ import annotations

from dataclasses import dataclass

from profd.model.capture import Options, State
from profd.sources.base import Session
from profd.sources.kineto.planning import SECOND


@dataclass(frozen=True, slots=True)
class Window:
    """When libkineto records, monotonic ns. Iterations have no `end_ns`."""

    handed_ns: int
    start_ns: int
    end_ns: int | None
    idle_from_ns: int  # from here on "not tracing" means that it is over


class Progress:
    """Reports the states of a window that was accepted, each once."""

    def __init__(self, session: Session, window: Window, options: Options) -> None:
        self._session = session
        self._window = window
        self._iterations = options.iterations
        self._said: State | None = None
        self._said_stop = False

    def tell(self, now_ns: int, accepted: bool) -> None:
        """Say what is new."""
        state, detail = self._now(now_ns, accepted)
        if state is not self._said:
            self._said = state
            self._session.report(state, detail)
        if self._session.stop.is_set() and not self._said_stop:
            self._said_stop = True
            self._session.report(state, "kineto cannot be stopped once it accepted; this ends with its window")

    def _now(self, now_ns: int, accepted: bool) -> tuple[State, str]:
        window = self._window
        if self._iterations:
            if accepted:
                return State.RECORDING, f"recording {self._iterations} iterations, then kineto writes them"
            return State.ARMED, "accepted; begins with the next optimizer step"
        if now_ns < window.start_ns:
            return State.ARMED, f"accepted; window opens in {(window.start_ns - now_ns) / SECOND:.1f} s"
        if window.end_ns is not None and now_ns < window.end_ns:
            return State.RECORDING, f"window of {(window.end_ns - window.start_ns) / SECOND:.1f} s"
        return State.DRAINING, "kineto is writing the trace"
