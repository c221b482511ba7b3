"""What is mounted where, as /proc/PID/mountinfo says (proc_pid_mountinfo(5))."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_OCTAL: Final = re.compile(r"\\([0-7]{3})")  # how it writes blanks, and the like, in names


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of it."""

    root: str  # what of the filesystem is there
    at: str
    kind: str  # of filesystem
    options: str  # of the filesystem, after commas


def mounts(mountinfo: bytes) -> Iterator[Mount]:
    """All of them, in their order; a line that is none is left out."""
    for line in mountinfo.decode(errors="surrogateescape").splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, more = rest.partition(" ")
        names = [_OCTAL.sub(lambda code: chr(int(code[1], 8)), field) for field in fields.split()[3:5]]
        if len(names) == 2:
            yield Mount(names[0], names[1], kind, more.rpartition(" ")[2])
