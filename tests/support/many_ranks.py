"""A capture of several ranks: traces of their own, from a few events, as one thing to ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from profd.events import Kind
from profd.model.question import Scope
from profd.query.captured import Captured
from profd.questions.table import QUESTIONS

from tests.support.tables import Event, store, table_of

CAPTURE = "c0123456789ab"


def training(rank: int, steps: int = 4, slower_ns: int = 0) -> list[Event]:
    """Steps of 1000 ns, the last one longer by so much; in each an op of the rank's own length, a launch, a kernel."""
    events = []
    for step in range(steps):
        at = step * 1000 + rank
        end = at + 1000 + (slower_ns if step == steps - 1 else 0)
        launched = len(events) + 2
        device = {"correlation": step + 1, "device": rank, "stream": 7, "linked": launched}
        events += [
            Event(f"ProfilerStep#{step}", at, end, Kind.USER_ANNOTATION),
            Event("aten::mm", at + 10, at + 200 + rank * 10, fields={"parent": len(events), "self_time": 180}),
            Event("cudaLaunchKernel", at + 20, at + 30, Kind.RUNTIME, fields={"correlation": step + 1}),
            Event("gemm", at + 300, at + 500, Kind.KERNEL, 20, fields=device),
        ]
    return events


def member(folder: Path, rank: int | None, events: list[Event], name: str = "", **meta: Any) -> Path:
    """One trace of CAPTURE; its id is the name of its directory."""
    name = name or f"rank{rank}"
    own = {"trace": name, "capture": CAPTURE, "rank": rank, "host": "node0", "source": "sdk", **meta}
    return store(table_of(events), folder / name, **own)


def ask(name: str, directories: list[Path], *others: list[Path], **given: Any) -> Any:
    """The answer of a question to a capture, with defaults for the other arguments."""
    from profd.workers.jobs import imported

    question = QUESTIONS[name]
    arguments = question.checked(given, Scope.CAPTURE)
    for other in question.others:
        del arguments[other.name]
    captures = [Captured(some) for some in (directories, *others)]
    return imported(question.of_capture)(*captures, **arguments)
