"""A flight recorder's answer at the end of a window, to what is stored of it. In a worker: a target has written it."""

from __future__ import annotations

import os

from profd.answers.hangs.memory import memory_from_untrusted
from profd.errors import BadInput
from profd.limits import RECALL_AT_END_BYTES_MAX
from profd.model.remembered import CALLS_KEPT, Remembered, RememberedCall


def remembered_from_untrusted(fd: int) -> Remembered:
    """Raises BadInput where the file is no such answer, or one that is too long."""
    text = os.pread(fd, RECALL_AT_END_BYTES_MAX + 1, 0)
    if len(text) > RECALL_AT_END_BYTES_MAX:
        raise BadInput(f"its flight recorder said more than {RECALL_AT_END_BYTES_MAX} bytes")
    calls = [
        RememberedCall(
            _group(call.group, call.described), call.sequence, call.operation, call.elements, call.created_ns
        )
        for call in memory_from_untrusted(text).calls
        if not call.between_two and call.sequence >= 0
    ]
    if len(calls) > CALLS_KEPT:
        raise BadInput(f"its flight recorder remembers {len(calls)} collectives, {CALLS_KEPT} at most are taken")
    return Remembered(sorted(calls, key=lambda call: call.created_ns))


def _group(name: str, described: str) -> str:
    """As NCCL's groups are called: by number, then for people. Torch writes `undefined` where there is nothing."""
    return name if described in ("", "undefined") else f"{name} {described}"
