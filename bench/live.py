"""A daemon and real training loops, for the benches that need them alive."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.measure import ROOT

BIN = Path(sys.executable).parent
WAIT_SECONDS = 180.0


def wait_until(what: str, holds: Callable[[], bool]) -> None:
    """Until a condition holds. Raises TimeoutError naming it."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.05)


@dataclass
class Live:
    """A running profd with a folder of its own."""

    folder: Path
    environment: dict[str, str]
    daemon: subprocess.Popen[bytes]
    stack: ExitStack = field(default_factory=ExitStack)

    def profctl(self, *arguments: str) -> Any:
        """What `profctl … --json` prints, parsed. Exit codes of captures that are not whole are no errors here."""
        command = [str(BIN / "profctl"), *arguments, "--json"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if not done.stdout:
            raise RuntimeError(f"{' '.join(arguments)}: {done.stderr}")
        return json.loads(done.stdout)

    def job(self, script: str, enabled: bool = True, *, alone: bool = False) -> subprocess.Popen[str]:
        """A Python process that runs `script`, with Kineto's daemon mode on or off; ended with the daemon.

        `alone`: the mode is on, and where it looks there is no daemon.
        """
        environment = {**self.environment, "OMP_NUM_THREADS": "1"}
        if enabled:
            environment["KINETO_USE_DAEMON"] = "1"
            environment["KINETO_IPC_SOCKET_DIR"] = str(self.folder / ("nobody" if alone else "k"))
            environment["KINETO_CONFIG"] = str(ROOT / "deploy" / "libkineto.conf")
        with (self.folder / "job.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", script],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.stack.callback(_end, process)
        return process

    def registered(self, pids: list[int]) -> bool:
        """All of them can be traced through kineto."""
        targets = self.profctl("ps")
        return set(pids) <= {target["pid"] for target in targets if "kineto" in target["sources"]}

    def attached(self) -> set[int]:
        """Pids of processes that record themselves when they are asked (`sdk`)."""
        return {target["pid"] for target in self.profctl("ps") if "sdk" in target["sources"]}


def say(job: subprocess.Popen[str], line: str) -> None:
    """Write a line to a job."""
    assert job.stdin is not None
    job.stdin.write(f"{line}\n")
    job.stdin.flush()


def hear(job: subprocess.Popen[str]) -> float:
    """The number that a job writes next."""
    assert job.stdout is not None
    return float(job.stdout.readline())


def ask(job: subprocess.Popen[str], line: str) -> float:
    """The number with which a job answers a line."""
    say(job, line)
    return hear(job)


def _end(process: subprocess.Popen[Any]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


@contextmanager
def profd() -> Iterator[Live]:
    """A profd of this uid that is ended with the block."""
    with tempfile.TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        socket = folder / "profd.sock"
        environment = {
            **os.environ,
            "PROFD_ADDRESS": f"unix:{socket}",
            "PROFD_KINETO_SOCKET_DIR": str(folder / "k"),
        }
        flags = ["--user", "--state-dir", str(folder / "s"), "--socket", str(socket), "--metrics", "off"]
        with (folder / "profd.log").open("wb") as log:
            daemon = subprocess.Popen([BIN / "profd", *flags], env=environment, stdout=log, stderr=log)
        live = Live(folder, environment, daemon)
        try:
            wait_until("profd listens", socket.exists)
            with live.stack:
                yield live
        finally:
            daemon.terminate()
            daemon.wait(60)
