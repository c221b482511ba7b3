"""The unit as systemd runs it: every confinement that it names, around a daemon whose every source is used."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from tests.support.systemd_host import systemd_host

pytestmark = pytest.mark.slow

SECONDS = 500.0


def test_everything_works_under_the_unit() -> None:
    port = free_port()
    with systemd_host(metrics=f"127.0.0.1:{port}") as host:
        started = host.run("systemctl", "start", "profd")
        assert started.returncode == 0, (started.stderr, host.log)
        inside = str(Path(__file__).with_name("inside.py"))
        # Its own cache would be written to the checkout, where another run may be at it.
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", inside]
        done = host.run("env", f"METRICS_PORT={port}", *command, seconds=SECONDS)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{host.log}"
        assert host.run("systemctl", "stop", "profd").returncode == 0
        assert '"level": "error"' not in host.log, host.log
        assert "ENOSYS" not in host.log, host.log


def free_port() -> int:
    """On loopback."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
