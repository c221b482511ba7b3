"""Standard streams that the caller has closed: cron, `>&-` in a script, some supervisors."""

from __future__ import annotations

import os
import sys

_STDERR = 2


def open_all() -> None:
    """/dev/null stands in for each closed one: the next file or socket would take its number.

    libuv ends the process where one of its own is below 3.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
