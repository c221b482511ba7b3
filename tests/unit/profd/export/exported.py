"""Runs the export job of a trace or a capture, and gives back what it wrote."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from profd.questions.jobs import find


def exported(trace_dir: Path | Sequence[Path], format_: str, **args: Any) -> tuple[int, bytes]:
    """(events, bytes) of an export; of several directories, as those of a capture."""
    place = str(trace_dir) if isinstance(trace_dir, Path) else [*map(str, trace_dir)]
    fd = os.memfd_create("export", os.MFD_CLOEXEC)
    with os.fdopen(fd, "r+b") as file:
        result = find("export")({"trace_dir": place, "format": format_, **args}, [fd], lambda what, share: None)
        file.seek(0)
        return int(result["events"]), file.read()
