"""Programs on trial: how they are started, and what counts as harm to them."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

BIN: Final = Path(sys.executable).parent
STALLED_SECONDS: Final = 120.0  # beyond the time that a program was given: it does not get on any more
_OURS: Final = r"^profctl run: no profd listens here"  # said of a daemon that has just been killed, and no harm
_TELLING: Final = r"(\w+\.)*\w*(Error|Exception|Warning)\b"  # the last line of a traceback
_numbers = itertools.count(1)


@dataclass
class Job:
    """One running program. It is harmed unless it ends with 0, prints a line that begins with `ok`, and says no more.

    `quiet`: a pattern of lines that it may write to stderr all the same.
    """

    program: str
    popen: subprocess.Popen[bytes]
    log: Path  # its stderr; `.out` beside it is its stdout
    ends_by: float  # of time.monotonic()
    quiet: str = r"(?!)"
    cpu_seconds: float = 0.0  # once it has ended: its own and that of children that it waited for
    begun: float = field(default_factory=time.monotonic)
    _reaping: threading.Lock = field(default_factory=threading.Lock)  # its end is heard once, by whoever comes first

    @property
    def pid(self) -> int:
        """Of the program itself: `profctl run` becomes it."""
        return self.popen.pid

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self.begun

    def over(self) -> bool:
        """Whether it has ended. One that is far beyond its time is looked into, then killed."""
        if self._reaped(os.WNOHANG):
            return True
        if time.monotonic() > self.ends_by + STALLED_SECONDS:
            self.look_into()
            self.end()
            self._note("kindness: it was stalled and has been killed")
            return True
        return False

    def _reaped(self, options: int) -> bool:
        """Whether it has ended; `options` of wait4(2)."""
        with self._reaping:
            if self.popen.returncode is None:
                pid, status, usage = os.wait4(self.pid, options)
                if pid:
                    self.popen.returncode = os.waitstatus_to_exitcode(status)
                    self.cpu_seconds = usage.ru_utime + usage.ru_stime
            return self.popen.returncode is not None

    def kill(self) -> bool:
        """Whether SIGKILL has met it: once it was reaped, its pid may be another's."""
        with self._reaping:
            if self.popen.returncode is not None:
                return False
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                return False
            return True

    def tell(self) -> None:
        """Tell it to end."""
        if self.popen.stdin is not None:
            self.popen.stdin.close()

    def ready(self) -> bool:
        """Whether it has said so; programs that are told when to end do."""
        return self.log.with_suffix(".out").read_bytes().startswith(b"ready")

    def end(self) -> None:
        """Kill it and its session; for the end of a run."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._reaped(0)
        self.tell()  # nobody reads that any more

    def harm(self) -> str:
        """What was wrong with a job that has ended, empty if nothing. Its log is kept in that case only."""
        found = self._harm()
        if not found:
            self.forget()
        return found

    def forget(self) -> None:
        """Remove what it said."""
        for path in (self.log, self.log.with_suffix(".out")):
            path.unlink(missing_ok=True)

    def _harm(self) -> str:
        said = self.log.read_text(errors="replace")
        lines = [line for line in said.splitlines() if line.strip() and not re.search(f"{_OURS}|{self.quiet}", line)]
        if "it was stalled and has been killed" in said:
            return "stalled"
        code = self.popen.returncode
        if code:
            what = signal.Signals(-code).name if -65 < code < 0 else f"exit code {code}"
            # One that was killed may have ended with a dump of faulthandler, whose last line tells nothing.
            telling = [line for line in lines if code > 0 or re.match(_TELLING, line)]
            return f"{what}: {telling[-1][:120]}" if telling else what
        out = self.log.with_suffix(".out").read_text(errors="replace").strip()
        if not re.search(r"^ok\b", out, re.MULTILINE):
            return f"no ok: {out[-120:]!r}"
        return f"stderr: {lines[0][:120]}" if lines else ""

    def look_into(self, *others: int) -> None:
        """Where it hangs, and where these pids are, for whoever reads its log."""
        with self.log.open("ab") as log:
            for pid in (self.pid, *others):
                command = [str(BIN / "py-spy"), "dump", "--pid", str(pid)]
                with contextlib.suppress(subprocess.TimeoutExpired, OSError):
                    subprocess.run(command, stdout=log, stderr=log, timeout=30, check=False)

    def _note(self, sentence: str) -> None:
        with self.log.open("a") as log:
            log.write(sentence + "\n")


def start(
    program: str,
    command: Sequence[str | Path],
    folder: Path,
    environment: Mapping[str, str],
    *,
    seconds: float,
    quiet: str = r"(?!)",
    told: bool = False,
) -> Job:
    """Start a command that ends by itself within `seconds`. What it says goes to files in `folder`.

    `told`: it is told when to end, by the end of its standard input (`Job.tell`).
    """
    stem = f"{re.sub(r'[^A-Za-z0-9.]+', '-', program)}-{os.getpid()}-{next(_numbers)}"
    log = folder / f"{stem}.log"
    with log.open("wb") as err, log.with_suffix(".out").open("wb") as out:
        popen = subprocess.Popen(
            [str(part) for part in command],
            env=dict(environment),
            stdin=subprocess.PIPE if told else subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    return Job(program, popen, log, time.monotonic() + seconds, quiet)


def attached(command: Sequence[str | Path]) -> list[str | Path]:
    """The same command under `profctl run`."""
    return [BIN / "profctl", "run", "--", *command]
