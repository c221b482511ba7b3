"""A real sshd on the loopback, which lets this user in by a key of its own.

with sshd(folder) as server:
    ["ssh", "-F", server.config, "any-name", "command"]
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.ports import free_port
from tests.support.waiting import until

STOP_SECONDS = 60.0
_SEPARATED = Path("/run/sshd")  # where sshd puts its children away; an init system makes it, where one runs
_PROGRAM = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/sbin")

# What people's shells print before a command has its turn is part of the test.
_SERVER = """
Port {port}
ListenAddress {listens}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
ForceCommand echo Welcome to this host; printf 'no end of line'; exec sh -c "$SSH_ORIGINAL_COMMAND"
"""

_CLIENT = """
{hosts}
Host *
    Port {port}
    User {user}
    IdentityFile {folder}/key
    IdentitiesOnly yes
    BatchMode yes
    UserKnownHostsFile {folder}/known_hosts
    StrictHostKeyChecking accept-new
    LogLevel ERROR
"""


@dataclass
class Server:
    """A running sshd: `config` is what `ssh -F` wants; every name of a host leads to it."""

    config: Path
    process: subprocess.Popen[bytes]


def missing() -> list[str]:
    """Programs that this machine lacks."""
    return [name for name, there in (("sshd", _PROGRAM), ("ssh", shutil.which("ssh"))) if there is None]


def configured(folder: Path, port: int, listens: str, hosts: Mapping[str, str]) -> list[str]:
    """The command of an sshd with keys in this folder; ssh_config, beside them, knows the address of each host."""
    for name in ("host_key", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    words = {"folder": folder, "port": port, "user": getpass.getuser(), "listens": listens}
    known = "".join(f"Host {name}\n    HostName {address}\n" for name, address in hosts.items())
    (folder / "sshd_config").write_text(_SERVER.format(**words))
    (folder / "ssh_config").write_text(_CLIENT.format(**words, hosts=known))
    return [str(_PROGRAM), "-D", "-e", "-f", str(folder / "sshd_config")]


@contextmanager
def sshd(folder: Path) -> Iterator[Server]:
    """One with keys in this folder, ended afterwards. Raises AssertionError with its log where it does not start."""
    port = free_port()
    command = configured(folder, port, "127.0.0.1", {"*": "127.0.0.1"})
    if os.geteuid() == 0:
        _SEPARATED.mkdir(mode=0o755, exist_ok=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        until(lambda: process.poll() is not None or _listens(port), "sshd listens or has ended")
        assert process.poll() is None, (folder / "log").read_text()
        yield Server(folder / "ssh_config", process)
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0
