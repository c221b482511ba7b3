"""Real PyTorch processes that ask for kineto: what captures are tested against.

The module is also the program that runs in them:

    python tests/support/torch_jobs.py train|inference|idle|profiling

`train` steps an optimizer for ever, `inference` runs forward only, `idle` has
only imported torch, `profiling` keeps torch.profiler of its own running after
it read the line `profile`. All print `ready` after the import (and, if they
work, their first step), and leave through the interpreter's own exit when they
read the line `exit`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

READY_SECONDS = 300.0  # importing torch took more than 120 s at load 30


@dataclass
class TorchJob:
    """A running job. `kineto` is what it and the daemon share."""

    popen: subprocess.Popen[str]
    trace_dir: Path

    @property
    def pid(self) -> int:
        return self.popen.pid

    def say(self, line: str) -> None:
        """One line on its standard input."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(line + "\n")
        self.popen.stdin.flush()

    def exit(self) -> None:
        """Ask it to leave through the interpreter's own exit; does not wait."""
        self.say("exit")

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()


@contextmanager
def torch_job(
    kind: str,
    folder: Path,
    *,
    socket_dir: Path | None = None,
    daemon: bool = True,
    poll_seconds: int = 1,
    environ: Mapping[str, str] | None = None,
    uid: int | None = None,
) -> Iterator[TorchJob]:
    """Start a job, as another user if told, and wait until it says `ready`; it is killed at the end.

    `folder` (any existing directory) gets its libkineto.conf and its traces.
    `socket_dir` must be short (54 bytes); None is libkineto's abstract mode.
    """
    config = folder / "libkineto.conf"
    config.write_text(f"ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS={poll_seconds}\n")
    traces = folder / "traces"
    traces.mkdir(exist_ok=True)
    who: dict[str, Any] = {}
    if uid is not None:
        os.chown(traces, uid, uid)
        who = {"user": uid, "group": uid, "extra_groups": []}
    env = {**os.environ, "OMP_NUM_THREADS": "1", "KINETO_CONFIG": str(config)}
    env.pop("KINETO_USE_DAEMON", None)
    if daemon:
        env["KINETO_USE_DAEMON"] = "1"
        env["KINETO_ONDEMAND_TRACE_DIR"] = str(traces)
    if socket_dir is not None:
        env["KINETO_IPC_SOCKET_DIR"] = str(socket_dir)
    env.update(environ or {})
    with (folder / f"{kind}.log").open("w") as log:
        popen = subprocess.Popen(
            [sys.executable, str(Path(__file__)), kind],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            **who,
        )
    job = TorchJob(popen, traces)
    try:
        assert popen.stdout is not None
        _expect_ready(popen.stdout, log.name)
        yield job
    finally:
        job.kill()
        for pipe in (popen.stdin, popen.stdout):
            if pipe is not None:
                _close(pipe)


def _expect_ready(output: IO[str], log: str) -> None:
    if not select.select([output], [], [], READY_SECONDS)[0]:
        raise TimeoutError(f"the job did not get ready in {READY_SECONDS} s; see {log}")
    line = output.readline().strip()
    if line != "ready":
        raise RuntimeError(f"the job said {line!r} instead of ready: {Path(log).read_text()[-2000:]}")


def _close(pipe: IO[str]) -> None:
    with contextlib.suppress(BrokenPipeError):  # it was gone before it read its last line
        pipe.close()


def _commanded(wait: float) -> str:
    """The next line on standard input, empty if none came."""
    if select.select([sys.stdin], [], [], wait)[0]:
        return sys.stdin.readline().strip() or "exit"
    return ""


def _main(kind: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch, wanted = torch.randn(32, 64), torch.randn(32, 8)

    def step() -> None:
        if kind == "inference":
            with torch.no_grad():
                model(batch)
        elif kind != "idle":
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(batch), wanted).backward()
            optimizer.step()

    step()
    print("ready", flush=True)
    profiler = None
    while (command := _commanded(wait=0.005)) != "exit":
        if command == "profile" and kind == "profiling":
            profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
            profiler.start()
            print("profiling", flush=True)
        elif command == "stop" and profiler is not None:
            profiler.stop()
            profiler = None
            print("stopped", flush=True)
        step()


if __name__ == "__main__":
    _main(sys.argv[1])
