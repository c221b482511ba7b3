"""Which columns of traces are read."""

from __future__ import annotations

from typing import Any

import pytest
from profd.segments.reader import TraceReader


def noted(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of those that are read from now on, as they are; `*` for all."""
    read: set[str] = set()
    iterate = TraceReader.iterate

    def iterated(self: TraceReader, columns: Any = None, **more: Any) -> Any:
        read.update(columns or ["*"])
        return iterate(self, columns, **more)

    monkeypatch.setattr(TraceReader, "iterate", iterated)
    return read
