"""Lines of the audit log: ASCII JSON, so that nothing in them ends a line or moves a cursor, and bounded.

Details come from callers. What is cut says so where it was cut.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Final, Protocol

from profd.limits import AUDIT_FIELD_BYTES_MAX, AUDIT_LINE_BYTES_MAX

_SEPARATOR_BYTES: Final = 2


class Audit(Protocol):
    """The durable log of who did what: `trust/audit.py`, or what stands before it."""

    def write(self, action: str, uid: int, **details: object) -> None:
        """One line. Never raises."""
        ...


def line(facts: Mapping[str, object], details: Mapping[str, object]) -> bytes:
    """The line with its end. No detail poses as one of the facts, which are ours and small."""
    entry = {**facts, **{name: _bounded(value) for name, value in details.items() if name not in facts}}
    text = json.dumps(entry)
    cut: list[str] = []
    while len(text) >= AUDIT_LINE_BYTES_MAX and len(entry) > len(facts) + bool(cut):
        entry.pop("cut", None)
        cut.append(entry.popitem()[0])
        entry["cut"] = cut
        text = json.dumps(entry)
    return f"{text}\n".encode("ascii")


def _bounded(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Collection) and not isinstance(value, str | bytes):
        return _bounded_items(value)
    return _bounded_text(str(value))


def _bounded_text(text: str) -> str:
    kept = text[:AUDIT_FIELD_BYTES_MAX]
    while len(encoded := json.dumps(kept)) > AUDIT_FIELD_BYTES_MAX:
        kept = kept[: len(kept) * AUDIT_FIELD_BYTES_MAX // len(encoded)]
    return kept if kept == text else f"{kept}...(+{len(text) - len(kept)} characters)"


def _bounded_items(items: Collection[object]) -> list[object]:
    kept: list[object] = []
    room = AUDIT_FIELD_BYTES_MAX
    for item in items:
        bounded = item if isinstance(item, int) else _bounded_text(str(item))
        room -= len(json.dumps(bounded)) + _SEPARATOR_BYTES
        if room < 0:
            return [*kept, f"...(+{len(items) - len(kept)} more)"]
        kept.append(bounded)
    return kept
