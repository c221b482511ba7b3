"""Floods of datagrams by a program in C, which outruns whoever receives them.

with flood(socket_file, uid=5321, processes=3) as flooder:
    ...
    taken = flooder.end()  # datagrams that the kernel took
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from profd._host import SenderFilter

PATIENCE = 60.0


def _why_not() -> str:
    """Why there is no filter on senders here."""
    try:
        SenderFilter(of_process=1, of_user=1, remembered=16)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return ""


needs_filter = pytest.mark.skipif(bool(why := _why_not()), reason=f"this host loads no filter on senders ({why})")
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here (apt-get install gcc)")


class Flooder:
    """One that runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def end(self) -> int:
        """How many datagrams the kernel took of it."""
        said, _ = self._process.communicate(timeout=PATIENCE)
        return int(said.split()[-1])


@functools.cache
def _program() -> Path:
    made = Path(tempfile.mkdtemp(prefix="flood-", dir="/tmp")) / "flood"
    made.parent.chmod(0o755)
    subprocess.run(["cc", "-O2", "-o", str(made), str(Path(__file__).with_name("datagram_flood.c"))], check=True)
    return made


@contextmanager
def flood(to: Path | str, uid: int, processes: int = 1, each: int = 0) -> Iterator[Flooder]:
    """`processes` of them at a time send without pause; each is followed by another after `each` tries (0: never)."""
    command = [str(_program()), str(to), str(uid), str(processes), str(each)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "began\n"
        try:
            yield Flooder(process)
        finally:
            process.kill()
