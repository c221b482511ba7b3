"""What `profctl … --json` says of a capture of many hosts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def with_traces(answer: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each process that has a trace, with its host, in the answer's order."""
    for one in answer["hosts"]:
        for target in [] if one["capture"] is None else one["capture"]["targets"]:
            if target["trace"]:
                yield one["host"], target
