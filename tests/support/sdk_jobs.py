"""Attached programs in processes of their own, and a daemon of a page that they find.

def test_it(agents):                       # fixture of tests/integration/sdk_agent
    job = agents.job(BUSY)
    link = agents.daemon.accept()
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.support.agent_daemon import AgentDaemon
from tests.support.in_proc import descriptors
from tests.support.waiting import BEGIN_SECONDS, PATIENCE_SECONDS


def attaching(grace_ms: int, after_ms: int = 50) -> str:
    """Code that attaches with shorter times than the protocol's, so that tests need not wait for those."""
    tuning = {"retry_first_ms": 20, "retry_most_ms": 100, "grace_ms": grace_ms, "after_ms": after_ms}
    return f"\nfrom profclient import agent\nagent._attach(None, True, {tuning})\n"


READY = 'print("ready", flush=True)\n'

# Ends with exit code 0 when its standard input does.
WAIT = READY + "import sys\nsys.stdin.read()\n"

BUSY = (
    READY
    + """
import profclient, threading, sys, os
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
count = 0
while True:
    with profclient.record_function("work"):
        count += 1
"""
)


class Job:
    """A started program."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def line(self, seconds: float = PATIENCE_SECONDS) -> str:
        """The next line of its output; empty where it has ended, as one does that says nothing for so long."""
        assert self.process.stdout is not None
        silent = threading.Timer(seconds, self.process.kill)
        silent.start()
        try:
            return self.process.stdout.readline().rstrip("\n")
        finally:
            silent.cancel()
            silent.join()

    def say(self, text: str) -> None:
        """A line for its input."""
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def does(self, line: str) -> None:
        """A line for a program that executes each one, and then says "done"."""
        self.say(line)
        said = self.line()
        assert said == "done", said

    def end(self) -> int:
        """Close its input and wait; the exit code."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        return self.process.wait(PATIENCE_SECONDS)

    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def descriptors(self) -> list[str]:
        """What its descriptors are."""
        return descriptors(self.pid)

    def kill(self) -> None:
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        self.process.wait()


class Agents:
    """A daemon, and jobs that find it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.daemon = AgentDaemon(folder)
        # Another CPython may run the jobs: one that finds profclient, with its own _recorder, through PYTHONPATH.
        self._python = os.environ.get("PROFD_JOB_PYTHON", sys.executable)
        self._jobs: list[Job] = []

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "PROFD_ADDRESS": self.daemon.address, "PYTHONWARNINGS": "error"}

    def job(
        self,
        code: str,
        *arguments: str,
        attach: bool = True,
        grace_ms: int = 60_000,
        after_ms: int = 50,
        environ: Mapping[str, str] | None = None,
        ready: bool = True,
    ) -> Job:
        """A program; it has attached when this returns if it prints `ready`."""
        source = (attaching(grace_ms, after_ms) if attach else "") + code
        process = subprocess.Popen(
            [self._python, "-c", source, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self.environ, **(environ or {})},
        )
        job = Job(process)
        self._jobs.append(job)
        if ready:
            first = job.line(BEGIN_SECONDS)
            assert first == "ready", (
                f"{first!r}, with {process.poll()}: {process.stderr.read() if process.stderr else ''}"
            )
        return job

    def close(self) -> None:
        for job in self._jobs:
            job.kill()
        self.daemon.die()
