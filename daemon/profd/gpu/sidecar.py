"""A recording beside a source, outside of the target: samples of its GPUs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from profd.model.capture import Options, Recording
from profd.targets.process import Process


class Sidecar(Protocol):
    """Something that runs beside one recording."""

    def finish(self, recording: Recording, directory: Path) -> None:
        """End, and add what fell into the recording to its files. Called in a thread; never raises."""
        ...

    def drop(self) -> None:
        """End, whatever becomes of the recording; harmless after `finish`."""
        ...


BeginSidecar = Callable[[Process, Options], Sidecar | None]
"""None where there is nothing to be recorded of this process, or that is not wanted. Cheap, never waits."""
