"""A daemon of a run's own, which may be killed at any moment and comes back."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.daemon import RunningDaemon, start_daemon

_STORE: Final = ("--store-bytes", "2GiB", "--log-level", "warning")
_QUIET: Final = {"PROFD_TORCH_BUILD": "off"}  # jobs without an observer are to stay without


class Daemons:
    """One daemon at a time, always in the same directory: its successor takes over what it left."""

    def __init__(
        self, directory: Path, user: bool, flags: Sequence[str] = _STORE, environ: Mapping[str, str] = _QUIET
    ) -> None:
        """`flags` and `environ` are each daemon's."""
        self.directory, self._user, self._flags, self._environ = directory, user, flags, environ
        self.running = self._start()
        self.kills = 0

    @property
    def socket(self) -> Path:
        """Where whichever of them runs listens."""
        return self.directory / "profd.sock"

    def environment(self, **more: str) -> dict[str, str]:
        """For jobs and clients: they meet these daemons alone, and nothing of the user's is read or written."""
        kept = {key: os.environ[key] for key in ("PATH", "LANG", "LC_ALL", "TERM") if key in os.environ}
        home = self.directory / "home"
        home.mkdir(mode=0o700, exist_ok=True)
        own = {"HOME": str(home), "PROFD_ADDRESS": f"unix:{self.socket}", "OMP_NUM_THREADS": "1"}
        return {**kept, **own, "PYTHONFAULTHANDLER": "1", **more}

    def kill(self, away_seconds: float, between: Callable[[], object] = lambda: None) -> None:
        """SIGKILL, and after so long the next one. `between` them what the killed one left is looked at."""
        self.running.kill()
        self.kills += 1
        between()
        time.sleep(away_seconds)
        self.running = self._start()

    def _start(self) -> RunningDaemon:
        return start_daemon(self.directory, *self._flags, environ=self._environ, user=self._user)


@contextmanager
def daemons(user: bool = True) -> Iterator[Daemons]:
    """Daemons in a fresh directory, all gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))  # socket paths hold 107 bytes
    directory.chmod(0o755)  # jobs of other users go there
    try:
        found = Daemons(directory, user)
        try:
            yield found
        finally:
            found.running.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def killing(
    found: Daemons,
    chance: random.Random,
    every: tuple[int, int],
    recorded: Callable[[], int],
    over: threading.Event,
    told: Callable[[], None],
) -> threading.Thread:
    """A thread that kills the daemon each time so many captures have recorded, until `over` is set; started.

    By captures, not by the clock: on a busy machine a daemon takes long to come back.
    """

    def kill() -> None:
        due = chance.randint(*every)
        while not over.wait(0.05):
            if recorded() >= due:
                due = recorded() + chance.randint(*every)
                found.kill(chance.choice((0.0, 0.0, 0.5, 2.0)))
                told()

    thread = threading.Thread(target=kill, name="kills")
    thread.start()
    return thread
