"""A real `profd --user` process for tests, in a directory of its own with short paths.

with running_daemon() as daemon:
    daemon.environ          # PROFD_ADDRESS and all else that profctl needs
    daemon.stub(CaptureServiceStub) / daemon.metadata()
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
import pytest

from tests.support import readable

READY_SECONDS = 120.0  # CI runs under load
ONE_WORKER: Final = {"PROFD_WORKERS": "1"}  # for tests that ask one thing at a time: each takes 0.3 s of CPU to start
STOP_SECONDS = 60.0

Stub = TypeVar("Stub")


def control_answer(control: Path) -> dict[str, Any]:
    """The message of a control socket, as a client sees it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(str(control))  # waits where others fill the queue
        sock.settimeout(READY_SECONDS)
        answer: dict[str, Any] = json.loads(sock.recv(65536))
    return answer


@dataclass
class RunningDaemon:
    """A started daemon. `stop` (graceful) or `kill`; leaving the context does the former."""

    directory: Path
    process: subprocess.Popen[bytes]
    _channels: list[grpc.Channel] = field(default_factory=list)

    @property
    def socket(self) -> Path:
        return self.directory / "profd.sock"

    @property
    def control(self) -> Path:
        return self.directory / "control.sock"

    @property
    def state_dir(self) -> Path:
        return self.directory / "state"

    @property
    def kineto_dir(self) -> Path:
        """KINETO_IPC_SOCKET_DIR for targets; the abstract name is off, so that daemons do not fight for it."""
        return self.directory / "kineto"

    @property
    def environ(self) -> dict[str, str]:
        """The environment for `profctl`."""
        return {**os.environ, "PROFD_ADDRESS": f"unix:{self.socket}"}

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    def token(self) -> str:
        return str(control_answer(self.control)["token"])

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Fresh credentials of this process, for one call."""
        return (("profd-token", self.token()),)

    def channel(self, *, apart: bool = False) -> grpc.Channel:
        """`apart`: on a connection of its own; others share one, which may be that of a server that stops."""
        options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", int(apart))]
        channel = grpc.insecure_channel(f"unix:{self.socket}", options=options)
        self._channels.append(channel)
        return channel

    def stub(self, kind: Callable[[grpc.Channel], Stub], *, apart: bool = False) -> Stub:
        return kind(self.channel(apart=apart))

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self._close_channels()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"profd did not stop; its log:\n{self.log}") from None

    def kill(self) -> None:
        """SIGKILL, as an operator or the kernel would."""
        self._close_channels()
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def _close_channels(self) -> None:
        for channel in self._channels:
            channel.close()
        self._channels.clear()


PROGRAM: Final = ("-m", "profd.main")

# As on a kernel without SO_PASSRIGHTS (before 6.16): there is no such option.
ON_AN_OLD_KERNEL: Final = (
    "-c",
    "import sys; from profd import main; from profd.kernel import passed; passed._SO_PASSRIGHTS = 1 << 20; main.main()",
)


def start_daemon(
    directory: Path,
    *flags: str,
    environ: Mapping[str, str] | None = None,
    user: bool = True,
    program: Sequence[str] = PROGRAM,
) -> RunningDaemon:
    """A daemon in this directory (again, after a `kill`); returns when it is ready. `program`: what Python runs.

    Skips the test of one for all users (not `user`) where there can be none. Raises AssertionError with its log when
    it ends instead.
    """
    if not user and (why := readable.why_not()):
        pytest.skip(why)
    command = [sys.executable, *program, "--state-dir", str(directory / "state")]
    command += ["--socket", str(directory / "profd.sock"), "--metrics", "off", "--no-kineto-abstract"]
    command = [*command, "--user"] if user else readable.command(*command)
    # Daemons for all users would share the switch in /etc: one test's would be seen by another's.
    switch = {} if user else {"PROFD_DISABLED_FILE": str(directory / "disabled")}
    notify = directory / "notify"
    notify.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, (directory / "log").open("ab") as log:
        ready.bind(str(notify))
        process = subprocess.Popen(
            [*command, *flags],
            stdin=subprocess.DEVNULL,
            stderr=log,
            # An observer of PyTorch takes a compiler 15 s: the tests of that ask for it.
            env={**os.environ, "PROFD_TORCH_BUILD": "off", **switch, **(environ or {}), "NOTIFY_SOCKET": str(notify)},
        )
        daemon = RunningDaemon(directory, process)
        try:
            _wait_until_ready(process, ready)
        except AssertionError as error:
            daemon.kill()
            raise AssertionError(f"{error}; its log:\n{daemon.log}") from None
    return daemon


@contextmanager
def running_daemon(
    *flags: str, environ: Mapping[str, str] | None = None, user: bool = True, program: Sequence[str] = PROGRAM
) -> Iterator[RunningDaemon]:
    """A daemon in a fresh directory, both gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="pd-", dir="/tmp"))  # socket paths hold 107 bytes
    if not user:
        directory.chmod(0o755)  # everybody may connect
    try:
        daemon = start_daemon(directory, *flags, environ=environ, user=user, program=program)
        try:
            yield daemon
        except BaseException as error:
            if (code := daemon.process.poll()) is not None:
                error.add_note(f"profd had ended with {code}; its log:\n{daemon.log}")
            raise
        finally:
            daemon.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _wait_until_ready(process: subprocess.Popen[bytes], ready: socket.socket) -> None:
    pidfd = os.pidfd_open(process.pid)
    try:
        watched: list[Any] = [ready, pidfd]
        found, _, _ = select.select(watched, [], [], READY_SECONDS)
    finally:
        os.close(pidfd)
    if ready in found:
        assert ready.recv(4096).startswith(b"READY=1")
        return
    if pidfd in found:
        raise AssertionError(f"profd ended with {process.wait()} instead of starting")
    raise AssertionError(f"profd was not ready within {READY_SECONDS} s")
