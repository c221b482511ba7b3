"""Training steps by the optimizer: counted after each `step()` of a torch.optim.Optimizer while a recording wants them.

An optimizer that wraps another calls hooks for both: only the outermost counts. A loop that calls `profclient.step()`
is counted by that alone. What is raised in these hooks would reach the job, so nothing is.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from typing import Any

from profclient import _recorder


class _Counter:
    """Hooks on all optimizers."""

    def __init__(self) -> None:
        self._outermost = threading.local()
        self._handles: list[Any] = []

    def install(self) -> None:
        from torch.optim.optimizer import (  # it has been imported
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )

        self._handles = [
            register_optimizer_step_pre_hook(self._begin),
            register_optimizer_step_post_hook(self._end),
        ]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        _recorder.pause_steps()

    def _begin(self, optimizer: Any, *_: object) -> None:
        # The same one again: its last step() raised, and had no end.
        if getattr(self._outermost, "optimizer", None) in (None, id(optimizer)):
            self._outermost.optimizer = id(optimizer)

    def _end(self, optimizer: Any, *_: object) -> None:
        if getattr(self._outermost, "optimizer", None) != id(optimizer):
            return
        self._outermost.optimizer = None
        _recorder.note_step()


_counter: _Counter | None = None


def start(options: Mapping[str, str]) -> None:
    """Count from now on; the recorder knows how many are awaited. Without torch only profclient.step() counts."""
    global _counter
    if "torch.optim.optimizer" not in sys.modules:
        return
    _counter = _Counter()
    _counter.install()


def stop(options: Mapping[str, str]) -> None:
    """Take the hooks away."""
    global _counter
    if _counter is not None:
        _counter.remove()
    _counter = None
