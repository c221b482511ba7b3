"""Training steps by the optimizer: counted at the end of each outermost `step()` of a recording, and after it.

Nobody counts before it, so that nothing is in a process at rest: steps of the seconds after it are its measure. Only
where the process waits for a step of its own (PROFD_CAPTURE) they are counted, and numbered, from torch's import until
the capture is over or refused: step n begins once the optimizers have made n steps.

Nothing is registered with torch: its dictionaries of hooks are the program's, which may be walking them now. Each
step() of a torch.optim.Optimizer runs in a range of torch's; the method that ends ranges is another for as long as
steps are counted (native/recorder/optimizers_py.cpp). A loop that calls `profclient.step()` is counted by that alone.
A step() that torch.compile has compiled has no such range: `profclient.step()` counts there.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from profclient import _recorder

_WRAPPER = "wrapper"  # the function around each step(), in torch.optim.Optimizer.profile_hook_step


class _Counter:
    """The end of torch's ranges, watched."""

    def __init__(self, torch: Any) -> None:
        self._ranges = torch.autograd.profiler.record_function
        code = _code_around_steps(torch.optim.Optimizer.profile_hook_step)
        self._stand_in = _recorder.step_exit(self._ranges.__exit__, code)
        self._original = self._ranges.__exit__

    def put(self) -> None:
        self._ranges.__exit__ = self._stand_in  # the key is there already: the class's dictionary keeps its size

    @property
    def counts(self) -> bool:
        """Whether it still does: who wraps it calls it from a frame of its own."""
        return self._ranges.__exit__ is self._stand_in

    def remove(self) -> None:
        _recorder.step_exit_stop(self._stand_in)
        if self.counts:  # else somebody has wrapped it meanwhile
            self._ranges.__exit__ = self._original
        _recorder.pause_steps()


def _code_around_steps(decorator: Any) -> Any:
    """Raises RuntimeError: this torch has none, or another."""
    for constant in decorator.__code__.co_consts:
        if getattr(constant, "co_name", None) == _WRAPPER:
            return constant
    raise RuntimeError("this version of torch counts no optimizer steps; call profclient.step() in the loop")


_counter: _Counter | None = None


def start(options: Mapping[str, str]) -> None:
    """Count from now on; the recorder knows how many are awaited. Without torch only profclient.step() counts."""
    if _counter is not None and not _counter.counts:
        _remove()
    _put()


def number() -> str:
    """Number the steps, too, from now on: empty, or why that cannot be."""
    try:
        _put()
    except (AttributeError, RuntimeError) as error:
        return f"PROFD_CAPTURE: {error}"
    _recorder.number_steps()
    return ""


def rest() -> None:
    """Count no longer, unless a capture waits for a step."""
    if not _recorder.step_awaited():
        _remove()


def _put() -> None:
    global _counter
    if _counter is None and "torch.optim.optimizer" in sys.modules:
        _counter = _Counter(sys.modules["torch"])
        _counter.put()  # known by then: a child that is forked within this removes it


def _remove() -> None:
    global _counter
    if _counter is not None:
        _counter.remove()
    _counter = None
