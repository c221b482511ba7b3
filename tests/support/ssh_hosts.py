"""Hosts of one machine that reach each other by a network alone, each with a real sshd, and a login host.

with ssh_hosts(folder, "n1", "n2") as network:
    network.login.inside("ssh", "-F", str(network.config), "n1", "command")

Each has a network namespace, beside those of `slurm_nodes`. A bridge on the login host joins them by veth pairs, `eth0`
on the hosts. All of it goes with the first processes.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support import ssh
from tests.support.slurm_nodes import SECONDS, Node, apart
from tests.support.waiting import until

_ADDRESS = "10.77.0.{}"
_LOGIN = 254  # its number in the network
_BEGIN = ("sh", "-c", 'mkdir -m 755 /run/sshd /run/begun && exec "$@"', "sh")
_IDLE = ("tail", "-f", "/dev/null")


@dataclass
class Network:
    """`config` is what `ssh -F` wants on the login host; `addresses` are those of `hosts`, by name."""

    login: Node
    hosts: list[Node]
    addresses: dict[str, str]
    config: Path


@contextmanager
def ssh_hosts(folder: Path, *names: str) -> Iterator[Network]:
    """Hosts that answer; keys and logs are in the folder."""
    addresses = {name: _ADDRESS.format(number) for number, name in enumerate(names, 1)}
    serve = ssh.configured(folder, 22, "0.0.0.0", addresses)
    with ExitStack() as stack:
        login = stack.enter_context(_host("login", _IDLE, folder))
        _inside(login, "ip link add br0 type bridge; ip link set br0 up", f"ip addr add {_on_wire(_LOGIN)} dev br0")
        hosts = []
        for number, name in enumerate(names, 1):
            host = stack.enter_context(_host(name, serve, folder))
            _inside(login, f"ip link add {name} type veth peer name eth0 netns {host.first}")
            _inside(login, f"ip link set {name} master br0 up")
            _inside(host, f"ip addr add {_on_wire(number)} dev eth0; ip link set eth0 up")
            hosts.append(host)
        network = Network(login, hosts, addresses, folder / "ssh_config")
        for name in names:
            asked = login.inside("ssh", "-F", str(network.config), name, "hostname")
            until(lambda asked=asked: not subprocess.run(asked, capture_output=True).returncode, f"{name} lets us in")
        yield network


@contextmanager
def _host(name: str, command: Sequence[str], folder: Path) -> Iterator[Node]:
    begun = apart(name, [*_BEGIN, *command], wired=True)
    with (folder / f"{name}.first").open("wb") as log:
        process = subprocess.Popen(begun, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        host = Node(name, process, os.environ)
        until(lambda: process.poll() is not None or _has_begun(host), f"{name} runs")
        assert process.poll() is None, (folder / f"{name}.first").read_text()
        yield host
    finally:
        process.kill()  # its first process goes with it, and all others with that
        process.wait(SECONDS)


def _has_begun(host: Node) -> bool:
    with suppress(OSError, IndexError):  # unshare has not forked
        return not subprocess.run(host.inside("test", "-d", "/run/begun"), stderr=subprocess.DEVNULL).returncode
    return False


def _on_wire(number: int) -> str:
    return f"{_ADDRESS.format(number)}/24"


def _inside(host: Node, *commands: str) -> None:
    """In its network alone: pids in the commands are those of here."""
    wire = ["nsenter", f"--target={host.first}", "--net", "sh", "-ec", "; ".join(commands)]
    done = subprocess.run(wire, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
