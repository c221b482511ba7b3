"""`python -m profclient.drain FD FILE`: empties one arena into a file of event chunks, in a process of its own.

For `profclient.profile` where no daemon is: memory stays bounded however long the block takes. Ends when the target
records no more, or is gone (its end of standard input closes); prints what was lost, as JSON.
"""

from __future__ import annotations

import json
import select
import sys
from typing import BinaryIO

from profclient._recorder import Drainer

PAUSE_SECONDS = 0.02
AHEAD_BYTES = 1 << 20  # of memory: the block then meets chunks that are there


def drain(arena: Drainer, file: BinaryIO, pause: float = PAUSE_SECONDS) -> None:
    """Read until nothing more can come."""
    over = False
    while not over:
        over = _gone(pause) or not arena.recording  # asked before the last look, so that none is missed
        arena.keep_ahead(AHEAD_BYTES, sys.maxsize)
        for index, _, _ in arena.sealed():
            arena.keep_ahead(AHEAD_BYTES, sys.maxsize)
            _take(arena, index, file, is_open=False)
    for index, _, _ in arena.open_chunks():
        _take(arena, index, file, is_open=True)


def _take(arena: Drainer, index: int, file: BinaryIO, *, is_open: bool) -> None:
    chunk = arena.encode(index, is_open)
    if chunk is not None:
        file.write(chunk)
    arena.free(index)


def _gone(pause: float) -> bool:
    """Whether the target has ended; waits for that, a moment."""
    return bool(select.select([sys.stdin], [], [], pause)[0])


def main() -> None:
    """The process."""
    arena = Drainer(int(sys.argv[1]))
    with open(sys.argv[2], "wb") as file:
        drain(arena, file)
    print(json.dumps(arena.losses()))


if __name__ == "__main__":
    main()
