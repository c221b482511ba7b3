"""Paths of raw files, as a record on disk has them: below the directory of their target, so that state can be moved.

Records of earlier builds have absolute ones, which may be those of a place that it was moved from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from profd.capture.records import CaptureRecord
from profd.targets.process import ProcessId

Where = Callable[[str, ProcessId], Path]
"""The directory of one target in the journal."""


def relative(record: CaptureRecord, where: Where) -> dict[str, Any]:
    """The record as JSON, with names below that directory; a file that lies elsewhere keeps its path."""
    value = record.to_json()
    for target, written in zip(record.targets, value["targets"], strict=True):
        directory = where(record.id, target.process) if target.files else Path()
        for file in written["files"]:
            path = Path(file["path"])
            if path.is_relative_to(directory):
                file["path"] = str(path.relative_to(directory))
    return value


def resolved(record: CaptureRecord, where: Where) -> None:
    """Give a record that was read the paths of now. BadInput where its id is none."""
    for target in record.targets:
        if target.files:
            directory = where(record.id, target.process)
            target.files = [replace(file, path=str(_resolved(file.path, directory))) for file in target.files]


def _resolved(noted: str, directory: Path) -> Path:
    path = PurePosixPath(noted)
    tail = path.parts
    if path.is_absolute():
        session = directory.parts[-2:]
        ends = [at for at in range(2, len(tail)) if tail[at - 2 : at] == session]
        if not ends:
            return Path(noted)
        tail = tail[ends[-1] :]
    # Nobody writes `..` here; what is damaged leads nowhere else.
    return directory.joinpath(*(part for part in tail if part != ".."))
