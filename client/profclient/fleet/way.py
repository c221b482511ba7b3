"""The way to hosts: a command for each, or one for several of them, which carries a relay."""

from __future__ import annotations

import asyncio
import os
import resource
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from profclient import temporary
from profclient.errors import ClientError, UnreachableError, UsageError
from profclient.fleet import slurm
from profclient.fleet.carrier import Alone, Carrier
from profclient.fleet.host import Host
from profclient.fleet.step import Steps

PLACE: Final = "{host}"
PLACES: Final = "{hosts}"  # of a command that carries the relays of several; {count}: of how many
RELAY_MODULE: Final = ("-P", "-m", "profclient.relay")
SHARED_RELAY: Final = ("--shared", "SLURMD_NODENAME")  # where srun tells a task which node it is on
FANOUT: Final = 64  # hosts that are spoken to at once
FANOUT_MAX: Final = 512
_SOCKET_PATH_MAX: Final = 107
_DESCRIPTORS: Final = 8  # of a host: three pipes, a socket that listens, a connection's two ends, and room
_DESCRIPTORS_OF_OURS: Final = 128
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Way:
    """Hosts, and what carries a relay to each."""

    hosts: tuple[str, ...]
    via: str  # a command line with {host} in it, or {hosts}; no shell reads it here
    python: str = ""  # on the hosts; empty: the path of this one
    fanout: int = FANOUT
    others: tuple[tuple[str, tuple[str, ...]], ...] = ()  # command lines of hosts that have another one
    absent: Mapping[str, str] = field(default_factory=dict)  # hosts that are known to be out of reach, and why
    left_s: int | None = None  # until the hosts' job is out of time, when it was asked; None: not known

    def __post_init__(self) -> None:
        """Raises UsageError for a command that would reach the same place for all."""
        if PLACE not in self.via and PLACES not in self.via:
            raise UsageError(f"--via needs {PLACE} where the name of the host belongs: --via 'ssh {PLACE}'")
        self.command(self.hosts[0])

    @property
    def shared(self) -> bool:
        """Whether one process carries the relays of several hosts."""
        return PLACES in self.via

    def via_of(self, host: str) -> str:
        """The command line that reaches this host."""
        return next((via for via, hosts in self.others if host in hosts), self.via)

    def command(self, *hosts: str) -> list[str]:
        """The words that start a relay on each of these hosts, which have one command line. Raises UsageError."""
        via = self.via_of(hosts[0])
        places = {PLACES: ",".join(hosts), "{count}": str(len(hosts))} if PLACES in via else {PLACE: hosts[0]}
        try:
            words = shlex.split(via)
        except ValueError as error:
            raise UsageError(f"--via {via!r} cannot be read: {error}.") from error
        for place, value in places.items():
            words = [word.replace(place, value) for word in words]
        shared = SHARED_RELAY if PLACES in via else ()
        return [*words, self.python or sys.executable, *RELAY_MODULE, *shared]

    def to(self, hosts: tuple[str, ...]) -> Way:
        """The same way to some of the hosts."""
        some = set(hosts)
        others = tuple(
            (via, left) for via, names in self.others if (left := tuple(one for one in names if one in some))
        )
        return replace(self, hosts=hosts, others=others, absent={})


@asynccontextmanager
async def reachable(way: Way) -> AsyncIterator[dict[str, Host]]:
    """The hosts, none of them reached yet; all are left at the end."""
    _make_room(len(way.hosts))
    steps: dict[str, Steps] = {}
    with _folder() as folder:
        longest = Path(folder, str(len(way.hosts)))
        if len(str(longest).encode()) > _SOCKET_PATH_MAX:
            raise UsageError(f"TMPDIR is too long for sockets in it: {folder}. Set it to another, such as /tmp.")
        found = {
            name: Host(name, partial(_carrier, way, steps, name), Path(folder, str(at)))
            for at, name in enumerate(way.hosts)
        }
        try:
            yield found
        finally:
            await asyncio.gather(*(host.leave() for host in found.values()))
            await asyncio.gather(*(one.close() for one in steps.values()))


def _folder() -> tempfile.TemporaryDirectory[str]:
    """For the sockets that lead to daemons: who listens in their place would be given our tokens. Raises UsageError."""
    try:
        return tempfile.TemporaryDirectory(prefix="pf-", dir=temporary.place())
    except OSError as error:
        raise UsageError(f"{error.filename} is no place for sockets: {error.strerror}.") from error


async def _carrier(way: Way, steps: dict[str, Steps], name: str) -> Carrier:
    """For a conversation with this host. Raises ClientError."""
    if why := way.absent.get(name):
        raise UnreachableError(why)
    via = way.via_of(name)
    if PLACES not in via:
        return await Alone.started(way.command(name))
    if via not in steps:
        there = sum(way.via_of(host) == via and host not in way.absent for host in way.hosts)
        environ = slurm.environment(os.environ)
        steps[via] = Steps(lambda hosts: way.command(*hosts), environ, slurm.unfit, min(there, way.fanout))
    return await steps[via].seat(name)


async def each(
    way: Way,
    do: Callable[[Host], Awaitable[T]],
    done: Callable[[str], None] = lambda name: None,
    at_once: int = FANOUT_MAX,
) -> dict[str, T | ClientError]:
    """The result of a function on each host, in the hosts' order; a few at once, each with a connection of its own."""
    working = asyncio.Semaphore(at_once)
    # Hosts that share a process are reached together: a step for each few of them would be asked of the controller.
    turns = asyncio.Semaphore(way.fanout if way.shared else min(way.fanout, at_once))

    async def one(host: Host) -> T | ClientError:
        async with turns:
            try:
                await host.reach()
                async with working:
                    return await do(host)
            except ClientError as error:
                return error
            except Exception as error:  # whatever a host has answered, it is that one's
                return ClientError(f"profctl could not go on here: {error!r}")
            finally:
                await host.leave()
                done(host.name)

    async with reachable(way) as hosts:
        answers: Sequence[T | ClientError] = await asyncio.gather(*(one(host) for host in hosts.values()))
        return dict(zip(hosts, answers, strict=True))


def _make_room(hosts: int) -> None:
    """Let this process have the descriptors that so many hosts need. Raises UsageError where it may not."""
    needed = _DESCRIPTORS_OF_OURS + _DESCRIPTORS * hosts
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise UsageError(f"{hosts:,} hosts need {needed:,} open files, and this shell allows {hard:,} (ulimit -Hn).")
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
