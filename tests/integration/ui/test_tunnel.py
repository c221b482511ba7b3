"""The `ssh -L` line of `profctl ui`, through a real sshd: its process at this end is the user's."""

from __future__ import annotations

import http.client
import subprocess
import threading
from contextlib import closing
from pathlib import Path

import pytest
from profclient.ui.asking import Library
from profclient.ui.server import PageServer

from tests.support import ssh
from tests.support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.skipif(bool(ssh.missing()), reason=f"this machine has no {', '.join(ssh.missing())}")
NEAR = "127.0.0.2"  # stands for the machine with the browser, where the same port is free


def status(port: int, host: str) -> int:
    """Of the page, asked for at the near end of the tunnel; 0 where nothing listens."""
    with closing(http.client.HTTPConnection(NEAR, port, timeout=PATIENCE_SECONDS)) as connection:
        try:
            connection.request("GET", "/", headers={"Host": host})
        except ConnectionError:
            return 0
        return connection.getresponse().status


def test_a_tunnel_of_the_same_port_leads_to_the_page(tmp_path: Path) -> None:
    with ssh.sshd(tmp_path) as sshd, PageServer(Library()) as server:
        serving = threading.Thread(target=server.serve)
        serving.start()
        way = f"{NEAR}:{server.port}:{server.address}:{server.port}"
        tunnel = subprocess.Popen(["ssh", "-F", str(sshd.config), "-N", "-L", way, "the-host"])
        try:
            until(lambda: status(server.port, f"localhost:{server.port}") == 200, "the tunnel leads to the page")
            assert status(server.port, "127.0.0.1:9") == 421  # a tunnel that begins at another port
        finally:
            tunnel.terminate()
            tunnel.wait()
            server.stop()
            serving.join()
