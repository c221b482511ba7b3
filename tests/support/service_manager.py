"""A service manager's part where descriptors are passed at the start: it executes a program that has them from 3 on."""

from __future__ import annotations

import sys
from typing import Final

# argv: how many it says, descriptors, their names in the store, and the program
_MANAGER: Final = """
import os, sys
given = [os.dup2(int(number), 50 + place) for place, number in enumerate(filter(None, sys.argv[2].split(",")))]
for place, number in enumerate(given):
    os.dup2(number, 3 + place)
os.closerange(3 + len(given), 200)
names = {"LISTEN_FDNAMES": sys.argv[3]} if sys.argv[3] else {}
said = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": sys.argv[1], **names}
os.execve(sys.argv[4], sys.argv[4:], {**os.environ, **said})
"""


def passing(*command: str, passed: tuple[int, ...] = (), names: str = "", count: str = "") -> list[str]:
    """What starts this command so: it is to be given `pass_fds`. `count`: said in place of how many there are."""
    return [sys.executable, "-c", _MANAGER, count or str(len(passed)), ",".join(map(str, passed)), names, *command]
