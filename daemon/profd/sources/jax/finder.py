"""Which processes run a profiler server, and where: each listening socket is asked once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from profd.fairness.few import Few
from profd.fairness.shares import Holder
from profd.fairness.threads import in_thread
from profd.limits import JAX_PROBES_AT_ONCE, JAX_PROBES_AT_ONCE_PER_UID
from profd.sources.jax.listeners import Listening, ListeningPort, listening
from profd.sources.jax.service import Service, ServiceFailed
from profd.targets.process import Process, ProcessId

PROBE_SECONDS: Final = 5.0
ASK_AGAIN_SECONDS: Final = 15.0  # a server that was silent may just have been starved
_HISTORY: Final = 1024  # processes


class SocketAnswer(Enum):
    """The answer of a socket to the question."""

    PROFILER = auto()
    OTHER = auto()  # something else lives there
    SILENT = auto()  # it accepts and does not answer


@dataclass(frozen=True, slots=True)
class ServersFound:
    """The facts about one process."""

    servers: tuple[ListeningPort, ...] = ()  # by port
    silent: tuple[int, ...] = ()  # ports
    shared: tuple[int, ...] = ()  # ports that other processes listen on as well
    other_network: bool = False

    @property
    def server(self) -> ListeningPort | None:
        """The first one."""
        return self.servers[0] if self.servers else None

    def at(self, port: int) -> ListeningPort | None:
        """The server at a port; the first one for port 0."""
        return next((one for one in self.servers if port in (0, one.port)), None)


class Finder:
    """Keeps the answers, by process and socket. For one event loop.

    `probe` and `look` are the outside world: what a socket says, where a process listens.
    """

    def __init__(
        self,
        probe: Callable[[str], Awaitable[SocketAnswer]] | None = None,
        look: Callable[[Process], Listening] = listening,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._probe = probe or _probe
        self._look = look
        self._clock = clock
        self._few = Few(JAX_PROBES_AT_ONCE_PER_UID, JAX_PROBES_AT_ONCE)
        self._answers: dict[ProcessId, dict[ListeningPort, tuple[SocketAnswer, float]]] = {}
        self._found: dict[ProcessId, ServersFound] = {}
        self._looking: dict[ProcessId, asyncio.Task[ServersFound]] = {}

    def known(self, process: ProcessId) -> ServersFound | None:
        """The result of the last look; None before the first."""
        return self._found.get(process)

    def servers(self) -> int:
        """Processes with a server, of those that were looked at."""
        return sum(found.server is not None for found in self._found.values())

    async def find(self, process: Process) -> ServersFound:
        """Look now. A caller that asks during a look waits for its answer; bounded by PROBE_SECONDS a socket."""
        task = self._looking.get(process.id)
        if task is None:
            task = asyncio.create_task(self._find(process), name="jax-finder")
            self._looking[process.id] = task
            task.add_done_callback(lambda _: self._looking.pop(process.id, None))
        return await asyncio.shield(task)

    async def listeners(self, process: Process) -> tuple[ListeningPort, ...]:
        """Where it listens now; nothing is asked, and nothing kept."""
        return (await self._looked(process)).listeners

    async def close(self) -> None:
        """End every look."""
        tasks = list(self._looking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _looked(self, process: Process) -> Listening:
        return await in_thread(Holder.of_user(process.uid), self._look, process)

    async def _find(self, process: Process) -> ServersFound:
        where = await self._looked(process)
        before = self._answers.get(process.id, {})
        now = self._clock()
        answers = {listener: before[listener] for listener in where.listeners if listener in before}
        new = [one for one in where.listeners if one not in answers or _worth_asking_again(answers[one], now)]
        for listener, answer in zip(
            new, await asyncio.gather(*(self._ask(process.uid, one) for one in new)), strict=True
        ):
            answers[listener] = answer, self._clock()
        servers = sorted(listener for listener, (answer, _) in answers.items() if answer is SocketAnswer.PROFILER)
        silent = sorted(listener.port for listener, (answer, _) in answers.items() if answer is SocketAnswer.SILENT)
        found = ServersFound(tuple(servers), tuple(silent), where.shared, where.other_network)
        self._keep(process.id, answers, found)
        return found

    async def _ask(self, uid: int, listener: ListeningPort) -> SocketAnswer:
        async with self._few.place(uid):
            return await self._probe(listener.address)

    def _keep(
        self, process: ProcessId, answers: dict[ListeningPort, tuple[SocketAnswer, float]], found: ServersFound
    ) -> None:
        for table in (self._answers, self._found):
            table.pop(process, None)
        while len(self._found) >= _HISTORY:
            oldest = next(iter(self._found))
            del self._found[oldest], self._answers[oldest]
        self._answers[process], self._found[process] = answers, found


def _worth_asking_again(answer: tuple[SocketAnswer, float], now: float) -> bool:
    return answer[0] is SocketAnswer.SILENT and now - answer[1] > ASK_AGAIN_SECONDS


async def _probe(address: str) -> SocketAnswer:
    service = Service(address)
    try:
        return SocketAnswer.PROFILER if await service.is_profiler(PROBE_SECONDS) else SocketAnswer.OTHER
    except ServiceFailed:
        return SocketAnswer.SILENT
    finally:
        await service.close()
