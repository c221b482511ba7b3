"""Processes and threads of a trace: what its meta.json and its events have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Tracks:
    """Processes and threads of a trace. Ids are kept as they came: numbers or strings."""

    # index = track number
    processes: list[dict[str, Any]] = field(default_factory=list)  # id, name, labels, sort_index
    # id, process (track number), name, sort_index, node (of a distributed job, where the source tells them apart)
    threads: list[dict[str, Any]] = field(default_factory=list)
