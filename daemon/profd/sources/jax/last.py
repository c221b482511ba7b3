"""The last seconds: a process records on and on, and its latest snapshots are kept.

The process holds what it has recorded until a snapshot fetches it, so they follow each other closely. A continuous
session outlives its client: a note in the journal lets the next daemon end what this one left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from profd.limits import JAX_LEFTOVERS_MAX, JAX_RECORDING_BYTES_MAX, MiB
from profd.model.capture import Cost, Phase, Reason, Recording, State
from profd.sources.jax.listeners import ListeningPort
from profd.sources.jax.planning import SECOND
from profd.sources.jax.recording import JaxRecorder
from profd.sources.jax.service import Failure, Service, ServiceFailed
from profd.targets.identity import Standing
from profd.targets.process import ProcessId

NOTE: Final = ".continuous.json"  # the journal takes names with a dot for unfinished
_START_SECONDS: Final = 10.0
_JUDGED: Final = 4  # snapshots before it is said that handing over takes too long

log = logging.getLogger("profd.jax")


class LastSeconds(JaxRecorder):
    """Records until it is stopped, its time is over or the process ends; keeps what covers the last seconds."""

    _taken = 0
    _recorded_ns = 0  # of all snapshots, kept or not
    _collecting_ns = 0
    _first_ns = 0

    async def _record(self, service: Service) -> Recording:
        request = self._request(f"profd-{secrets.token_hex(8)}", self._cut.one_ns)
        ours = True
        self._note()
        try:
            await self._check()
            await service.start_continuous(request, _START_SECONDS)
            return await self._follow(service)
        except ServiceFailed as error:
            ours = error.failure is not Failure.BUSY  # then it is somebody else's, and not ours to end
            return await self._failed(error)
        finally:
            if ours and self._accepted.standing() is not Standing.CHANGED:
                await service.stop_continuous()
            (self._session.directory / NOTE).unlink(missing_ok=True)

    def _note(self) -> None:
        (self._session.directory / NOTE).write_text(_told(self._server))

    async def _follow(self, service: Service) -> Recording:
        self._first_ns = began_ns = time.time_ns()
        over = False
        while not over:
            await self._until(began_ns + self._cut.one_ns)
            await self._paid(State.RECORDING)
            over = self._session.stop.is_set() or time.time_ns() - self._first_ns >= self._cut.total_ns
            began_ns = await self._snapshot(service, began_ns)
            if self._bytes > JAX_RECORDING_BYTES_MAX:
                return self._ended(
                    Reason.OVER_LIMIT,
                    f"the last {self._cut.last_ns / SECOND:g} s of {self._name} exceed "
                    f"{JAX_RECORDING_BYTES_MAX // MiB} MiB; ask for fewer",
                )
            if not over and self._taken >= _JUDGED and self._collecting_ns > self._recorded_ns and not self._forced:
                return self._ended(
                    Reason.OVER_LIMIT,
                    f"{self._name} records so much that handing it over takes longer than recording it; "
                    "capture single windows (--duration 500ms), or go on at its expense with --force",
                )
        return self._ended(Reason.NONE, "")

    @property
    def _forced(self) -> bool:
        return self._options.force

    async def _until(self, due_ns: int) -> None:
        shown = min(self._cut.last_ns, time.time_ns() - self._first_ns) / SECOND
        self._session.report(State.RECORDING, f"the last {shown:.1f} s are kept")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0, due_ns - time.time_ns()) / SECOND):
                await self._session.stop.wait()

    async def _snapshot(self, service: Service, began_ns: int) -> int:
        """Fetch what was recorded since; when that began anew. Of all snapshots those that are too old go."""
        self._taken += 1
        patience = self._cut.collect_seconds(self._cut.one_ns)
        async with self._gate:
            ended_ns = time.time_ns()
            call = asyncio.create_task(service.snapshot(patience), name="jax-snapshot")
            async with self._stoppable(call) as stop:
                answer = await self._collect(call, stop, "last seconds")
            window = await self._kept(began_ns, ended_ns, answer, f"snapshot-{self._taken:06}.xplane.pb")
        self._recorded_ns += ended_ns - began_ns
        self._collecting_ns += window.collected_ns - ended_ns
        self._windows.append(window)
        self._let_go(ended_ns - self._cut.last_ns)
        self._session.keep(self._files())
        return window.collected_ns

    def _let_go(self, before_ns: int) -> None:
        while self._windows[0].ended_ns <= before_ns:
            path = self._windows.pop(0).path
            if path is not None:
                self._bytes -= path.stat().st_size
                path.unlink()

    def _gap_before_ns(self) -> int:
        """The last seconds begin between two windows: the one before them has nothing of them, and is let go."""
        asked_ns = max(self._first_ns, self._windows[-1].ended_ns - self._cut.last_ns)
        return max(0, self._windows[0].began_ns - asked_ns)

    def _describe(self, recording: Recording, began_ns: int) -> None:
        super()._describe(recording, began_ns)
        if not self._windows:
            return
        recording.waterfall[0] = Phase("lead", max(0, self._first_ns - began_ns))
        recording.waterfall.insert(
            1, Phase("let go", max(0, self._windows[0].began_ns - self._gap_before_ns() - self._first_ns))
        )
        recording.cost = Cost(
            how="measured",
            seconds=self._collecting_ns / SECOND,
            detail=f"the process handed over {self._taken} snapshots for {self._collecting_ns / SECOND:.2f} s of "
            f"{(self._collecting_ns + self._recorded_ns) / SECOND:.2f} s",
        )


async def end_leftovers(journal: Path, still_listens: Callable[[ProcessId, ListeningPort], Awaitable[bool]]) -> int:
    """End the sessions that a daemon left behind which was killed; how many there were.

    `still_listens`: a process has these sockets to itself. Another program that answers at the port by now is told
    nothing.
    """
    notes = sorted(journal.glob(f"*/*/{NOTE}"))[:JAX_LEFTOVERS_MAX]
    return sum(await asyncio.gather(*(_end(note, still_listens) for note in notes)))


async def _end(note: Path, still_listens: Callable[[ProcessId, ListeningPort], Awaitable[bool]]) -> bool:
    process, server = _process(note.parent.name), _server(note)
    theirs = False
    if process is not None and server is not None and await still_listens(process, server):
        service = Service(server.address)
        with contextlib.suppress(ServiceFailed):
            await service.connect(_START_SECONDS)
            theirs = await still_listens(process, server)  # it is the one that we are connected to
            if theirs:
                await service.stop_continuous()
                log.warning("ended continuous profiling that was left behind", extra={"target": note.parent.name})
        await service.close()
    note.unlink(missing_ok=True)
    return theirs


def _process(name: str) -> ProcessId | None:
    pid, _, ticks = name.partition("-")
    return ProcessId(int(pid), int(ticks)) if pid.isdecimal() and ticks.isdecimal() else None


def _told(server: ListeningPort) -> str:
    return json.dumps({"address": server.address, "port": server.port, "sockets": sorted(server.sockets)})


def _server(note: Path) -> ListeningPort | None:
    try:
        said = json.loads(note.read_text())
        server = ListeningPort(int(said["port"]), str(said["address"]), frozenset(map(int, said["sockets"])))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return server if server.address.startswith(("ipv4:127.", "ipv6:[::1]:")) else None
