"""PyTorch's operators of a process that told of no observer: what brings one, and what stands in for them meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from profd.attached.agents.protocol import Hello
from profd.attached.sdk import planning
from profd.model.capture import Reason, Recording
from profd.model.shortfall import NO_OPERATORS, OBSERVER_FIX
from profd.observers.observers import Observers
from profd.targets.process import Process


class Operators:
    """Knowledge of observers. Without `observers` nothing is built, and people are told to."""

    def __init__(self, observers: Observers | None) -> None:
        self._observers = observers

    async def look(self, processes: Iterable[tuple[Process, Hello]]) -> None:
        """Which torch those have that have no observer of it. Bounded."""
        if self._observers is None:
            return
        if wanting := [process for process, hello in processes if _wants_observer(hello)]:
            await self._observers.look(wanting)

    def hello(self, process: Process, hello: Hello) -> Hello:
        """Its HELLO, with an observer that has been built since: it looks for one again when it is armed."""
        if self._observers is None or not _wants_observer(hello) or not self._observers.usable(process):
            return hello
        return replace(hello, can=hello.can | {"observer"})

    def fix(self, process: Process, hello: Hello) -> str:
        """The way to an observer, where there is none; has it built, where it can be."""
        if self._observers is None or not _wants_observer(hello):
            return OBSERVER_FIX
        return self._observers.fix(process)

    def explain(self, recording: Recording, process: Process, hello: Hello) -> None:
        """The first line of the answer says that operators are missing, and what brings them."""
        missing = next((said for said in recording.not_honoured if said.startswith(NO_OPERATORS)), "")
        if missing and "observer" in hello.can and self._observers is not None:
            self._observers.not_loaded(process)
        if missing and recording.reason is Reason.NONE and not recording.message:
            recording.message = missing.removeprefix("torch: ")


def _wants_observer(hello: Hello) -> bool:
    return planning.has_torch(hello) and "observer" not in hello.can
