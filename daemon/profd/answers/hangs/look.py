"""What was seen of one rank, and what is said of all of them: values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from profd.answers.hangs.memory import Call, Memory, Numbers
from profd.model.frame import Frame


@dataclass(frozen=True, slots=True)
class ProcessLook:
    """One process of a job at two moments. `at`: the line of its own that the main thread is at, `calls_at`: the one
    that called a collective which has not returned; both of the moment between, None where stacks do not tell.
    """

    pid: int
    rank: int | None
    before: Mapping[str, Numbers] | None  # None: it was asked, and did not say; `why` has the reason
    after: Mapping[str, Numbers] | None
    memory: Memory | None = None  # None: not asked for, or not had
    at: Frame | None = None
    calls_at: Frame | None = None
    holds_gil: bool = False  # a thread of it was seen with the GIL, and not on a CPU
    why: str = ""

    @property
    def name(self) -> str:
        """As people name it."""
        return f"pid {self.pid}" if self.rank is None else f"rank {self.rank}"

    @property
    def told(self) -> bool:
        """It said twice how far it is."""
        return self.before is not None and self.after is not None

    @property
    def stands(self) -> bool:
        """It waits in a collective, and did so at both moments without a step further."""
        if self.before is None or self.after is None:
            return False
        return any(now.waits and self.before.get(group) == now for group, now in self.after.items())

    @property
    def still(self) -> bool:
        """None of its numbers has changed: nothing of it advances that a question could hold up."""
        return self.told and self.before == self.after

    def open_calls(self) -> list[Call]:
        """The first collective of each group that is not over, in the order in which they were called."""
        first: dict[str, Call] = {}
        for call in self.memory.calls if self.memory else ():
            if not (call.over or call.between_two) and (
                call.group not in first or call.sequence < first[call.group].sequence
            ):
                first[call.group] = call
        return sorted(first.values(), key=lambda call: call.created_ns)


class State(StrEnum):
    """What is said of a job."""

    HEALTHY = "healthy"
    HANG = "hang"
    MISMATCH = "mismatch"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Missing:
    """A rank that others wait for."""

    name: str  # "rank 2"
    last: int | None = None  # the last sequence of the group that it called; None: not known
    at: Frame | None = None
    what: str = ""  # of it: a sentence without its subject, such as "waits in all_reduce 4 of group 1"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of a job; `sentences` say all of it, the first the most."""

    state: State
    sentences: tuple[str, ...]
    group: str = ""
    sequence: int | None = None
    operation: str = ""
    waited_ns: int | None = None
    missing: tuple[Missing, ...] = ()
    waiting: tuple[str, ...] = ()
    waits_at: Frame | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)  # what could not be asked, and why
