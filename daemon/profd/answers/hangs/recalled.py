"""What the processes of one job remember, in a file without a name, on its way from the daemon to a worker unread.

First the looks as JSON, without what is remembered; then dump behind dump.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from profd.answers.hangs.look import ProcessLook, Verdict
from profd.kernel.freeing import let_go

JUDGE_HANG: Final = "judge_hang"  # the name of the job that reads it


class Recalled:
    """The dumps of one job. Blocking; `close` at the end."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("recalled", os.MFD_CLOEXEC)

    def close(self) -> None:
        """Let go of the file."""
        let_go(self.fd)

    def write(
        self, looks: Sequence[ProcessLook], dumps: Sequence[bytes | None], now_ns: int, world: int | None
    ) -> dict[str, Any]:
        """Fill it; the arguments of the job. `dumps`: of each look, None where there is none."""
        said = msgspec.json.encode(looks)
        for part in (said, *(dump for dump in dumps if dump)):
            _write(self.fd, part)
        lengths = [None if dump is None else len(dump) for dump in dumps]
        return {"looks": len(said), "dumps": lengths, "now_ns": now_ns, "world": world}


def _write(fd: int, part: bytes) -> None:
    left = memoryview(part)
    while left:
        left = left[os.write(fd, left) :]


def looks_of(fd: int, length: int) -> list[ProcessLook]:
    """The looks that it begins with. The daemon has written them."""
    return msgspec.json.decode(os.pread(fd, length, 0), type=list[ProcessLook])


def verdict_of(said: Any) -> Verdict:
    """What the job has said. ValueError where that is no verdict: a dump may have taken its worker over."""
    return msgspec.convert(said, Verdict)
