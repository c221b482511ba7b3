"""Lines of a program, out of the stacks of its threads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from profd.model.frame import Frame
from profd.sources.pyspy.stack import ThreadStack

# Not the program's own: packages, Python's library, frames that are in no file.
_OF_OTHERS: Final = re.compile(r"/(site|dist)-packages/|/lib/python\d|^<frozen ")
_COLLECTIVES: Final = re.compile(r"/torch/distributed/")


def own_line(threads: Sequence[ThreadStack]) -> Frame | None:
    """The line of its own that the main thread is at; of the library where it has none of its own."""
    frames = threads[0].frames if threads else ()
    return _first_own(frames) or (frames[0] if frames else None)


def collective_line(threads: Sequence[ThreadStack]) -> Frame | None:
    """The line that called a collective which has not returned."""
    for thread in threads:
        inside = [number for number, frame in enumerate(thread.frames) if _COLLECTIVES.search(frame.file)]
        # What starts ranks is in that folder, too, and outermost.
        if inside and (place := _first_own(thread.frames[inside[0] :])):
            return place
    return None


def hangs_with_gil(threads: Iterable[ThreadStack]) -> bool:
    """A thread has the GIL and does not run."""
    return any(thread.owns_gil and not thread.active for thread in threads)


def _first_own(frames: Sequence[Frame]) -> Frame | None:
    return next((frame for frame in frames if not _OF_OTHERS.search(frame.file)), None)
