"""Answers about a capture: callers hear of an end only once it is on disk.

A caller that was told an end would hear another one from the next daemon if this one were killed before it had written
the end down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from profd.capture.records import CaptureRecord, TargetRecord
from profd.model.capture import Reason, State
from profd.targets.process import ProcessId

_DOING: Final = "writing down how it ended"


@dataclass(frozen=True, slots=True, eq=False)
class Unwritten:
    """One end of one target, which stood at `before`; two of one target are not the same."""

    before: State


class Told:
    """Ends that are not on disk yet."""

    def __init__(self) -> None:
        self._ends: dict[str, dict[ProcessId, Unwritten]] = {}

    def hold(self, record: CaptureRecord, target: TargetRecord, before: State) -> None:
        """It has just ended; for callers it stays `before` until `release`."""
        self._ends.setdefault(record.id, {})[target.process] = Unwritten(before)

    def held(self, record: CaptureRecord) -> Mapping[ProcessId, Unwritten]:
        """Processes to be released once the record, as it is now, has been written."""
        return dict(self._ends.get(record.id, {}))

    def release(self, record: CaptureRecord, written: Mapping[ProcessId, Unwritten]) -> None:
        """Let callers hear of these; of one that came meanwhile they do not."""
        ends = self._ends.get(record.id, {})
        for process, end in written.items():
            if ends.get(process) is end:
                del ends[process]
        if not ends:
            self._ends.pop(record.id, None)

    def of(self, record: CaptureRecord) -> CaptureRecord:
        """The record for callers: itself, or a copy in which what has no written end goes on."""
        ends = self._ends.get(record.id)
        if not ends:
            return record
        targets = [_living(target, ends.get(target.process)) for target in record.targets]
        return replace(record, finished_ns=None, targets=targets)


def _living(target: TargetRecord, end: Unwritten | None) -> TargetRecord:
    if end is None or not target.state.terminal:
        return target
    before = replace(target, state=end.before, reason=Reason.NONE, message="", doing=_DOING)
    return replace(before, trace="", events=None, gpu_events=None)
