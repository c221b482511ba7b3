"""Holders of CUPTI in a process, or of the counters of a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from profd.limits import GPU_HOLDER_CHARS_MAX


class HolderKind(StrEnum):
    """A closed set: it is a label of metrics. A tool's own name goes into sentences only."""

    PROFD = "profd"
    KINETO = "kineto"
    NSIGHT = "nsight"
    DCGM = "dcgm"
    OTHER = "other"


_WORDS: Final = {
    HolderKind.NSIGHT: ("nsight", "nsys", "ncu"),
    HolderKind.KINETO: ("kineto", "pytorch", "torch"),
    HolderKind.DCGM: ("dcgm",),
    HolderKind.PROFD: ("profd",),
}


@dataclass(frozen=True, slots=True)
class Holder:
    """`capture` of ours, or the `name` that cuptiSubscribe_v2 reports of another tool (empty: CUPTI gives none)."""

    kind: HolderKind
    capture: str = ""
    name: str = ""

    def __str__(self) -> str:
        if self.capture:
            return f"capture {self.capture}" + (" (kineto)" if self.kind is HolderKind.KINETO else "")
        return f"“{self.name}”" if self.name else "a tool that does not give its name"

    @property
    def fix(self) -> str:
        """The next action for a refused caller."""
        if self.capture:
            return f"wait for it: profctl wait {self.capture}"
        if self.kind is HolderKind.DCGM:
            return "free the counters: dcgmi profile --pause (and --resume afterwards)"
        return "stop that tool, or start the process without it"


def foreign(name_untrusted: str) -> Holder:
    """The holder that a tool's own name means; any text."""
    name = name_untrusted[:GPU_HOLDER_CHARS_MAX]
    lowered = name.lower()
    for kind, words in _WORDS.items():
        if any(word in lowered for word in words):
            return Holder(kind, name=name)
    return Holder(HolderKind.OTHER, name=name)
