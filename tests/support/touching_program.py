"""`touching`, run as a user while something else goes on."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PROGRAM = Path(__file__).with_name("touching.py")


class Found:
    """What came of it, afterwards."""

    said = ""

    def __getitem__(self, name: str) -> Any:
        return json.loads(self.said)[name]


@contextlib.contextmanager
def running(python: str, user: int) -> Iterator[Found]:
    """The user tries to get into every child of ours that is theirs."""
    found = Found()
    command = [python, "-I", "-c", _PROGRAM.read_text(), str(os.getpid()), "0", "1", "2"]
    program = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", user=user, group=user, extra_groups=[]
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == b"ready\n"
        yield found
        found.said = program.communicate()[0].decode()
    finally:
        program.kill()
        program.communicate()
