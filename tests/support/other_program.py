"""A process of nobody's that becomes a setuid program: with a real exec, and root's rights in the end.

The setuid program runs one script of root's, whatever it is told.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from profd.targets.process import Process

from tests.support.python_jobs import seen

NOBODY = 65534
_PIDFD_GETFD = 438
PYTHON = shutil.which("python3", path="/usr/bin:/bin")  # one that nobody may run
needs_setuid = pytest.mark.skipif(
    os.geteuid() != 0 or PYTHON is None or shutil.which("cc") is None,
    reason="making a setuid program takes root, a C compiler, and a Python for everybody",
)

SECRET = """
def secret(n):
    return sum(i * i for i in range(n))

def secrets():
    print("ready", flush=True)
    while True:
        secret(200)

secrets()
"""

_SETUID = """
#include <unistd.h>
int main(void) {
    char *const arguments[] = {"python3", "-I", SCRIPT, 0};
    char *const nothing[] = {0};
    return setresgid(0, 0, 0) || setresuid(0, 0, 0) || execve(PYTHON, arguments, nothing);
}
"""

# A process that shares the memory of its maker and outlives the maker's exec, as one made with vfork does.
_SIBLING = """
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <unistd.h>
static char stack[65536] __attribute__((aligned(16)));
static int stay(void *unused) { for (;;) pause(); return 0; }
int sibling(void) { return clone(stay, stack + sizeof stack, CLONE_VM | SIGCHLD, 0); }
"""

_TARGET = """
import ctypes, os, socket, sys

def connected(kind, path):
    made.append(socket.socket(socket.AF_UNIX, kind))
    made[-1].connect(path)
    return made[-1]

made = []

def own():
    print("ready", flush=True)
    for line in sys.stdin:
        word = line.strip()
        if word == "sibling":
            print(ctypes.CDLL(sys.argv[2]).sibling(), flush=True)
        elif word.startswith("print("):
            exec(word)
        elif word == "setuid":
            os.execv(sys.argv[1], sys.argv[1:2])
        elif word == "exec":
            os.execv(sys.executable, [sys.executable, "-c", "print('ready', flush=True); input()"])

own()
"""


@dataclass
class Target:
    """Nobody's, and attached to nothing."""

    job: subprocess.Popen[bytes]
    siblings: list[int] = field(default_factory=list)

    def process(self) -> Process:
        """As the daemon sees it now."""
        return seen(self.job.pid)

    def say(self, word: str) -> bytes:
        """`setuid`, `exec`, `sibling`, or a `print(…)` of its own; what it answers when that is done."""
        assert self.job.stdin is not None
        assert self.job.stdout is not None
        self.job.stdin.write(f"{word}\n".encode())
        self.job.stdin.flush()
        answer = self.job.stdout.readline().strip()
        if word == "sibling":
            self.siblings.append(int(answer))
        elif word in ("setuid", "exec"):
            assert answer == b"ready"
        return answer

    def connect(self, path: Path) -> socket.socket:
        """A connection that it has made, and that stays when it execs, as with a child of it that keeps it."""
        number = int(self.say(f"print(connected(socket.SOCK_SEQPACKET, {str(path)!r}).fileno(), flush=True)"))
        with open(os.pidfd_open(self.job.pid), "rb", 0) as pidfd:
            fd = ctypes.CDLL(None).syscall(_PIDFD_GETFD, pidfd.fileno(), number, 0)
        assert fd >= 0
        return socket.socket(fileno=fd)


@contextlib.contextmanager
def target(script: str = SECRET) -> Iterator[Target]:
    """One that has begun. `script` is what it runs as root when it is told `setuid`."""
    with tempfile.TemporaryDirectory(prefix="profd-setuid-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o711)
        (folder / "script.py").write_text(script)
        _compile(folder / "program", _SETUID, f'-DPYTHON="{PYTHON}"', f'-DSCRIPT="{folder}/script.py"')
        _compile(folder / "sibling.so", _SIBLING, "-shared", "-fPIC")
        (folder / "program").chmod(0o4711)
        arguments = [str(PYTHON), "-I", "-c", _TARGET, str(folder / "program"), str(folder / "sibling.so")]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        found = Target(subprocess.Popen(arguments, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", **pipes))
        try:
            assert found.job.stdout is not None
            assert found.job.stdout.readline() == b"ready\n"
            yield found
        finally:
            for sibling in found.siblings:  # they keep its pipes open
                os.kill(sibling, signal.SIGKILL)
            found.job.kill()
            found.job.communicate()


def _compile(made: Path, source: str, *options: str) -> None:
    subprocess.run(["cc", *options, "-x", "c", "-", "-o", str(made)], input=source.encode(), check=True)
    made.chmod(0o711 if made.suffix == "" else 0o644)
