"""Durable records of captures, as the capture manager keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from profd.store.records import Records


class CaptureRecords:
    """One JSON object per capture, in `records/captures/`. Blocking: a write is synced when it returns."""

    def __init__(self, root: Path) -> None:
        self._records = Records(root / "records" / "captures")
        self._records.sweep()

    def put(self, capture: str, record: dict[str, Any]) -> None:
        """Write or replace one, crash-safe. Exhausted when the disk refuses it."""
        self._records.put(capture, record)

    def get(self, capture: str) -> dict[str, Any]:
        """One of them. NotFound, or BadInput if it is damaged."""
        return self._records.get(capture)

    def all(self) -> list[dict[str, Any]]:
        """All of them, oldest first; damaged ones are left out and logged."""
        return [record for _, record in sorted(self._records.items(), key=lambda item: _created(item[1]))]

    def names(self) -> list[str]:
        """The captures that have one, also a damaged one."""
        return self._records.names()

    def size(self, capture: str) -> int:
        """Bytes of one on the disk; 0 if there is none."""
        return self._records.size(capture)

    def remove(self, capture: str) -> None:
        """Forget one; unknown ids are no error."""
        self._records.remove(capture)


def _created(record: dict[str, Any]) -> int:
    value = record.get("created_ns")
    return value if isinstance(value, int) else 0
