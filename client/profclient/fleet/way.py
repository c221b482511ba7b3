"""The way to hosts: a command for each, which carries a relay."""

from __future__ import annotations

import asyncio
import resource
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from profclient.errors import ClientError, UsageError
from profclient.fleet.host import Host

PLACE: Final = "{host}"
RELAY_MODULE: Final = ("-P", "-m", "profclient.relay")
FANOUT: Final = 64  # hosts that are spoken to at once
_SOCKET_PATH_MAX: Final = 107
_DESCRIPTORS: Final = 8  # of a host: three pipes, a socket that listens, a connection's two ends, and room
_DESCRIPTORS_OF_OURS: Final = 128
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Way:
    """Hosts, and what carries a relay to each."""

    hosts: tuple[str, ...]
    via: str  # a command line with {host} in it; no shell reads it here
    python: str = ""  # on the hosts; empty: the path of this one
    fanout: int = FANOUT

    def __post_init__(self) -> None:
        """Raises UsageError for a command that would reach the same place for all."""
        if PLACE not in self.via:
            raise UsageError(f"--via needs {PLACE} where the name of the host belongs: --via 'ssh {PLACE}'")
        self.command(self.hosts[0])

    def command(self, host: str) -> list[str]:
        """The words that start a relay on this host. Raises UsageError."""
        try:
            words = [word.replace(PLACE, host) for word in shlex.split(self.via)]
        except ValueError as error:
            raise UsageError(f"--via {self.via!r} cannot be read: {error}.") from error
        return [*words, self.python or sys.executable, *RELAY_MODULE]


@asynccontextmanager
async def reachable(way: Way) -> AsyncIterator[dict[str, Host]]:
    """The hosts, none of them reached yet; all are left at the end."""
    _make_room(len(way.hosts))
    with tempfile.TemporaryDirectory(prefix="pf-") as folder:
        longest = Path(folder, str(len(way.hosts)))
        if len(str(longest).encode()) > _SOCKET_PATH_MAX:
            raise UsageError(f"TMPDIR is too long for sockets in it: {folder}. Set it to another, such as /tmp.")
        found = {name: Host(name, way.command(name), Path(folder, str(at))) for at, name in enumerate(way.hosts)}
        try:
            yield found
        finally:
            await asyncio.gather(*(host.leave() for host in found.values()))


async def each(
    way: Way, do: Callable[[Host], Awaitable[T]], done: Callable[[str], None] = lambda name: None
) -> dict[str, T | ClientError]:
    """The result of a function on each host, in the hosts' order; a few at once, each with a connection of its own."""
    turns = asyncio.Semaphore(way.fanout)

    async def one(host: Host) -> T | ClientError:
        async with turns:
            try:
                await host.reach()
                return await do(host)
            except ClientError as error:
                return error
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
