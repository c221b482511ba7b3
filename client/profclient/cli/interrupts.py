"""Ctrl-C as a wish, not as an exception.

An exception in the middle of gRPC's Python code can leave a lock of its channel held, and every later call hangs. So
the signal raises nothing: a thread does what was wished for, and whoever follows the daemon sees it happen.
"""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from profclient.cli.output import say
from profclient.errors import ClientError


class Interrupts:
    """The meaning of Ctrl-C from now on; the first one is kept until `ask` says what to do."""

    def __init__(self) -> None:
        self._wishes: queue.SimpleQueue[None] = queue.SimpleQueue()  # its put() may interrupt itself
        self._wished = False

    def ask(self, do: Callable[[], object]) -> None:
        """Call this in a thread when Ctrl-C comes, or has come. A ClientError is said, and the next one tries again."""
        threading.Thread(target=self._serve, args=(do,), name="interrupts", daemon=True).start()

    def note(self, number: int, frame: FrameType | None) -> None:
        """The signal. A second one ends the program, unless what the first asked for has failed."""
        if self._wished:
            signal.default_int_handler(number, frame)
        self._wished = True
        self._wishes.put(None)

    def _serve(self, do: Callable[[], object]) -> None:
        while True:
            self._wishes.get()
            try:
                do()
                return
            except ClientError as error:
                say(str(error))
                self._wished = False


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Within it Ctrl-C raises nothing, and is heard also where SIGINT was inherited ignored, as by a script's `&`."""
    found = Interrupts()
    before = signal.signal(signal.SIGINT, found.note)
    try:
        yield found
    finally:
        signal.signal(signal.SIGINT, before)
