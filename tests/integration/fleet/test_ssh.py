"""The same through a real sshd, whose login prints what is no line of ours."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.fleet.conftest import TwoHosts, stored
from tests.support import ssh
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(bool(ssh.missing()), reason=f"this machine has no {', '.join(ssh.missing())}")


@pytest.fixture(scope="module")
def server() -> Iterator[ssh.Server]:
    with tempfile.TemporaryDirectory(prefix="ps-", dir="/tmp") as folder, ssh.sshd(Path(folder)) as server:
        yield server


def via(two: TwoHosts, server: ssh.Server) -> str:
    """Every name leads to this machine, and there to the daemon of that name."""
    return f"ssh -F {server.config} {{host}} env PROFD_ADDRESS=unix:{two.folder}/{{host}}/profd.sock"


def test_a_capture_of_two_hosts(two: TwoHosts, server: ssh.Server, tmp_path: Path):
    asked = ("start", "--hosts", "n[1-2]", "--via", via(two, server), "--job", two.job, "--source", "sdk")
    done = two.profctl(*asked, "--duration", "200ms", "--json")
    # Each daemon sees the other's rank, too, and could not record that.
    assert [(host, rank) for host, rank, _ in stored(done.json)] == [("n1", 0), ("n2", 1)]
    done = two.profctl("collect", done.json["capture"], "--to", str(tmp_path))
    assert done.code == 6, done
    assert {path.parent.parent.parent.name for path in tmp_path.rglob("meta.json")} == {"host=n1", "host=n2"}
    assert until(lambda: not two.relays(), "the relays end")


def test_who_is_not_let_in_is_told_in_ssh_s_words(two: TwoHosts, server: ssh.Server, tmp_path: Path):
    bad = tmp_path / "config"
    bad.write_text(server.config.read_text().replace("IdentityFile ", "IdentityFile /nowhere"))
    command = f"ssh -F {bad} {{host}}"
    done = two.profctl("start", "--hosts", "n1", "--via", command, "--job", two.job, "--duration", "1s")
    assert done.code == 7
    assert "exit code 255" in done.out
    assert "Permission denied (publickey" in done.out


def test_a_host_without_profd_s_python(two: TwoHosts, server: ssh.Server):
    done = two.profctl(
        *("start", "--hosts", "n1", "--via", via(two, server), "--remote-python", "/opt/none/python"),
        *("--job", two.job, "--duration", "1s"),
    )
    assert done.code == 7
    assert "--remote-python" in done.out
