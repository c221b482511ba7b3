"""Work that grows with what others have left, and may be done less often then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Sparing:
    """Says when the next piece is due, so that all pieces take a share of a core. From any thread."""

    def __init__(
        self,
        cores: float,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        """`cores`: the share, above 0; `spent`: seconds of CPU time of the thread that does a piece."""
        self._cores = cores
        self._clock = clock
        self._spent = spent
        self._due = clock()

    @property
    def due(self) -> bool:
        """Whether one may be done now."""
        return self._clock() >= self._due

    @contextmanager
    def piece(self) -> Iterator[None]:
        """One, in one thread."""
        before = self._spent()
        try:
            yield
        finally:
            self._due = self._clock() + (self._spent() - before) / self._cores
