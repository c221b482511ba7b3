"""Where a process listens, from /proc: what could be its profiler server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profd.limits import JAX_PORTS_MAX
from profd.targets import procfs
from profd.targets.process import Process

_TABLE_BYTES: Final = 4 << 20  # listening sockets come first, however many connections follow
_LISTENING: Final = b"0A"
_FIELDS: Final = 10
_ANY_4: Final = b"00000000"
_ANY_6: Final = b"0" * 32
_LOOPBACK_6: Final = b"0" * 24 + b"01000000"
_MAPPED_LOOPBACK: Final = b"0000000000000000FFFF00000100007F"
_LOOPBACK_6_NAME: Final = b"0" * 31 + b"1"  # in if_inet6
_DESCRIPTORS_READ: Final = 16384


@dataclass(frozen=True, slots=True, order=True)
class ListeningPort:
    """One TCP port of a process that this host's loopback reaches."""

    port: int
    address: str  # as grpc names it: "ipv4:127.0.0.1:9999"
    sockets: frozenset[int]  # inodes: a server that comes later at the same port has others


@dataclass(frozen=True, slots=True)
class Listening:
    """All of them. `shared` are ports that others listen on as well, or may, so that nobody knows who answers."""

    listeners: tuple[ListeningPort, ...] = ()
    shared: tuple[int, ...] = ()
    other_network: bool = False  # in another network namespace, which the daemon does not reach


@dataclass(frozen=True, slots=True)
class _Row:
    port: int
    address: str
    inode: int
    uid: int


def listening(process: Process, root: Path = Path("/proc")) -> Listening:
    """Look; blocks on the process's locks for a moment. Empty for what is gone or not ours to read."""
    folder = root / str(process.id.pid)
    if _network(folder) != _network(root / "self"):
        return Listening(other_network=True)
    mine = _sockets(folder)
    # A fork keeps its parent's listening sockets, and it is the parent that answers.
    mine -= _sockets(root / str(process.ppid))
    rows, whole = _rows(folder)
    by_port: dict[int, list[_Row]] = {}
    for row in rows:
        by_port.setdefault(row.port, []).append(row)
    found: list[ListeningPort] = []
    shared: list[int] = []
    for port, rows in sorted(by_port.items()):
        # Inodes of sockets come round after 2^32 of them, and who makes as many in hours gets any that another has.
        own = [row for row in rows if row.inode in mine and row.uid == process.uid]
        if own and (len(own) < len(rows) or not whole):
            shared.append(port)
        elif own:
            address = min(row.address for row in own)
            found.append(ListeningPort(port, address, frozenset(row.inode for row in own)))
    return Listening(tuple(found[:JAX_PORTS_MAX]), tuple(shared))


def _network(folder: Path) -> str:
    return procfs.link(folder / "ns" / "net")


def _sockets(folder: Path) -> set[int]:
    """Inodes of the sockets that a process holds open."""
    held = set()
    for _, name in procfs.links(folder / "fd", _DESCRIPTORS_READ):
        if name.startswith("socket:[") and name[8:-1].isdecimal():
            held.add(int(name[8:-1]))
    return held


def _rows(folder: Path) -> tuple[list[_Row], bool]:
    """Listening sockets of the process's network, whoever owns them, that loopback reaches; whether they are all."""
    # A host without IPv6 on its loopback still has sockets that listen on "::".
    six = _LOOPBACK_6_NAME in (procfs.read(folder / "net" / "if_inet6", _TABLE_BYTES) or b"")
    found, whole = [], True
    for table in ("tcp", "tcp6"):
        raw = procfs.read(folder / "net" / table, _TABLE_BYTES) or b""
        state = b""
        for line in raw.splitlines()[1:]:
            fields = line.split()
            if len(fields) < _FIELDS:
                continue
            state = fields[3]
            if state == _LISTENING and (row := _row(fields[1], fields[9], fields[7], six)) is not None:
                found.append(row)
        # Somebody who listens 28,000 times leaves no room for others' rows.
        whole = whole and not (len(raw) >= _TABLE_BYTES and state == _LISTENING)
    return found, whole


def _row(local: bytes, inode: bytes, uid: bytes, six: bool) -> _Row | None:
    where, _, port = local.partition(b":")
    try:
        number = int(port, 16)
        if where in (_ANY_4, _MAPPED_LOOPBACK) or (where == _ANY_6 and not six):
            return _Row(number, f"ipv4:127.0.0.1:{number}", int(inode), int(uid))
        if len(where) == 8 and where.endswith(b"7F"):  # 127.x.y.z, last byte first
            octets = ".".join(str(byte) for byte in reversed(bytes.fromhex(where.decode("ascii"))))
            return _Row(number, f"ipv4:{octets}:{number}", int(inode), int(uid))
        if where in (_ANY_6, _LOOPBACK_6):
            return _Row(number, f"ipv6:[::1]:{number}", int(inode), int(uid))
    except ValueError:
        pass
    return None
