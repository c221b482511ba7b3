"""Nodes of one machine that see nothing of each other: pid, mount and uts namespaces, `/run` and a profd of their own.

A slurmd, or an sshd (`ssh_hosts`), is the first process of its node. The tasks of its steps, and what `inside` starts,
end with the node. Daemons listen at /run/profd, where everything on the node finds them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.support.daemon import PROGRAM
from tests.support.waiting import until

SOCKET: Final = "/run/profd/profd.sock"
PROFCTL: Final = (sys.executable, "-W", "ignore", "-c", "from profclient.cli import main; main()")
SECONDS: Final = 240
_UNSHARE: Final = ("unshare", "--pid", "--mount", "--uts", "--fork", "--kill-child", "--mount-proc")
_BEGIN: Final = 'hostname "$0" && mount -t tmpfs -o mode=755 none /run && exec "$@"'


@cache
def why_not(*, wired: bool = False) -> str:
    """Why there can be no such nodes here: a phrase, or empty. `wired`: with a network of their own."""
    lacking = [name for name in ("unshare", "nsenter", *(["ip"] if wired else [])) if shutil.which(name) is None]
    if lacking:
        return f"no {', '.join(lacking)} (util-linux, iproute2)"
    done = subprocess.run(apart("n1", ["true"], wired=wired), capture_output=True, text=True)
    return f"no namespaces: {done.stderr.strip()}" if done.returncode else ""


def apart(node: str, command: Sequence[str], *, wired: bool = False) -> list[str]:
    """The command as the first process of a node of this name; `wired`: with a network of its own, a loopback."""
    if wired:
        return [*_UNSHARE, "--net", "sh", "-c", f"ip link set lo up && {_BEGIN}", node, *command]
    return [*_UNSHARE, "sh", "-c", _BEGIN, node, *command]


class Node:
    """One whose first process was started by `apart`."""

    def __init__(self, name: str, started: subprocess.Popen[bytes], environ: Mapping[str, str]) -> None:
        """`environ`: of what runs there, such as Slurm's commands."""
        self.name = name
        self._started = started
        self._environ = {key: value for key, value in environ.items() if not key.startswith(("PROFD_", "XDG_"))}

    @property
    def first(self) -> int:
        """The pid of its first process, as seen from here."""
        return _child(self._started.pid)

    def pids(self) -> list[int]:
        """Its processes, as seen from here."""
        theirs = os.readlink(f"/proc/{self.first}/ns/pid")
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                found += [int(entry.name)] if os.readlink(entry / "ns" / "pid") == theirs else []
            except OSError:
                continue
        return found

    def inside(self, *command: str) -> list[str]:
        """The command, run on the node."""
        return ["nsenter", f"--target={self.first}", "--pid", "--mount", "--uts", "--net", "--", *command]

    @property
    def answers(self) -> bool:
        """Whether its daemon does."""
        return not self.profctl("ps").returncode

    @contextmanager
    def profd(self, folder: Path, **environ: str) -> Iterator[None]:
        """Its daemon; its state and its log are in this folder. AssertionError with the log where it does not start."""
        command = [sys.executable, *PROGRAM, "--user", "--socket", SOCKET, "--state-dir", str(folder / self.name)]
        said = folder / f"{self.name}.log"
        with said.open("wb") as log:
            process = subprocess.Popen(
                self.inside(*command, "--metrics", "off", "--no-kineto-abstract"),
                env={**self._environ, "PROFD_TORCH_BUILD": "off", **environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            until(
                lambda: process.poll() is not None or not self.profctl("ps").returncode, f"{self.name}'s profd answers"
            )
            assert process.poll() is None, said.read_text()
            yield
        finally:
            with suppress(OSError, IndexError):  # the node may be gone
                os.kill(_child(process.pid), signal.SIGTERM)
            process.wait(SECONDS)

    def profctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """As somebody on the node."""
        command = self.inside(*PROFCTL, *arguments)
        return subprocess.run(command, env=self._environ, capture_output=True, text=True, timeout=SECONDS)

    def answer(self, *arguments: str) -> Any:
        """The same with --json; AssertionError without an answer."""
        done = self.profctl(*arguments, "--json")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)


def _child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
