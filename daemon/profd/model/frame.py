"""A frame of a stack, as a sampler reads it and as answers name it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Frame:
    """A function of a program; `line` is the line of `file` that it is at, 0 where it is not known."""

    function: str
    file: str
    line: int
