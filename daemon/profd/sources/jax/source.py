"""The source `jax`: the profiler server that a JAX or TensorFlow process runs, found by pid."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from profd.fairness.few import Few
from profd.fairness.rates import Rate, Rates
from profd.fairness.shares import Holder
from profd.limits import (
    JAX_HANDED_BYTES_BURST,
    JAX_HANDED_BYTES_PER_SECOND,
    JAX_LOOK_SECONDS,
    JAX_REQUESTS_AT_ONCE,
    JAX_REQUESTS_AT_ONCE_PER_UID,
)
from profd.model.capture import Options, Reason, Recording, State
from profd.model.newest import Newest
from profd.sources.base import Offer, Plan, Session, Source
from profd.sources.declaration import Declaration
from profd.sources.jax import planning
from profd.sources.jax.finder import Finder, ServersFound
from profd.sources.jax.last import LastSeconds, end_leftovers
from profd.sources.jax.listeners import ListeningPort
from profd.sources.jax.recording import JaxRecorder
from profd.targets.identity import Accepted
from profd.targets.process import Process, ProcessId
from profd.targets.table import ProcessTable

_START: Final = (
    "call jax.profiler.start_server(9999) in it (tf.profiler.experimental.server.start(9999) with TensorFlow)"
)
_HISTORY: Final = 1024
_LEFTOVERS_SECONDS: Final = 1.0  # of the start of a daemon
_HANDED: Final = Rate("jax_handed", "bytes of profiler servers", JAX_HANDED_BYTES_PER_SECOND, JAX_HANDED_BYTES_BURST)


class JaxSource(Source):
    """Traces of JAX and TensorFlow processes that have called `start_server`."""

    declaration: ClassVar[Declaration] = planning.DECLARATION

    def __init__(
        self, finder: Finder | None = None, table: ProcessTable | None = None, journal: Path | None = None
    ) -> None:
        self._finder = finder or Finder()
        self._table = table or ProcessTable()
        self._journal = journal
        self._few = Few(JAX_REQUESTS_AT_ONCE_PER_UID, JAX_REQUESTS_AT_ONCE)
        self._handed = Rates(_HANDED)
        self._ending: asyncio.Task[int] | None = None
        self._running: dict[ProcessId, str] = {}  # to the capture
        self._rates = Newest[ProcessId, float](_HISTORY)  # bytes of XSpace per ns recorded, last seen

    async def open(self) -> None:
        """End what an earlier daemon left recording. The daemon does not wait for servers that do not answer."""
        if self._journal is not None:
            self._ending = asyncio.create_task(end_leftovers(self._journal, self._still_listens), name="jax-leftovers")
            await asyncio.wait({self._ending}, timeout=_LEFTOVERS_SECONDS)

    async def close(self) -> None:
        """End what still looks for servers."""
        if self._ending is not None:
            self._ending.cancel()
            await asyncio.gather(self._ending, return_exceptions=True)
        await self._finder.close()

    async def prepare(self, processes: Sequence[Process]) -> None:
        """Look for the servers of those that may have one; see Source.

        Looks that take longer go on, and the next list knows more: a user may have thousands of silent ports, and who
        lists the processes of all users waits for none of them.
        """
        looks = [asyncio.ensure_future(self._finder.find(one)) for one in processes if _may_have_one(one)]
        if not looks:
            return
        try:
            done, _ = await asyncio.wait(looks, timeout=JAX_LOOK_SECONDS)
        finally:
            for look in looks:  # what is done takes no notice
                look.cancel()
        for look in done:
            look.result()

    def offer(self, process: Process) -> Offer:
        """Whether a server was found; `prepare` looks."""
        capture = self._running.get(process.id)
        if capture:
            return Offer.recording(capture, process.id.pid)
        if not process.xla:
            return Offer(False, "it is neither a JAX nor a TensorFlow process", concerns=False)
        if os.geteuid() not in (0, process.uid):
            return Offer(
                False,
                f"where it listens is not for this daemon to see: it belongs to uid {process.uid}",
                "run profd as root, or as that user (profd --user)",
                Reason.NOT_PERMITTED,
            )
        if process.stopped:
            return Offer(False, "the process is stopped (state T)", "continue it: kill -CONT", Reason.TARGET_SILENT)
        found = self._finder.known(process.id)
        if found is None:
            return Offer(False, "nobody has looked yet whether it runs a profiler server", "ask again")
        return Offer(True) if found.server else _without_server(found)

    def plan(self, process: Process, options: Options) -> Plan:
        """The cost of the windows; from an earlier trace of the process, or at worst."""
        found = self._finder.known(process.id)
        if found is not None and found.server is not None and found.at(options.port) is None:
            return Plan(False, _not_there(found, options.port), Reason.NO_SOURCE)
        return planning.plan(options, self._rates.get(process.id), _ahead_ns(options))

    async def record(self, process: Process, options: Options, session: Session) -> Recording:
        """One trace of one process; see Source."""
        if self._ending is not None and not self._ending.done():  # or the session that is ended is this one's
            await asyncio.wait({self._ending})
        plan = self.plan(process, options)
        if not plan.serves:
            return Recording(State.REFUSED, plan.refusal_code, plan.refusal)
        with contextlib.closing(Accepted(process.id, process.uid)) as accepted:
            return await self._record(process, options, session, plan, accepted)

    async def _record(
        self, process: Process, options: Options, session: Session, plan: Plan, accepted: Accepted
    ) -> Recording:
        why = await asyncio.to_thread(accepted.hold)
        if why:
            return Recording(State.REFUSED, Reason.NOT_PERMITTED, why)
        # Looked up again: its ports may have become another's since.
        found = await self._finder.find(process)
        if not accepted.same:
            return Recording(State.FAILED, Reason.TARGET_ENDED, accepted.moved_on())
        offer = self.offer(process)
        if not offer.can or found.server is None:
            return self._refused(process, offer)
        server = found.at(options.port)
        if server is None:
            return Recording(State.REFUSED, Reason.NO_SOURCE, _not_there(found, options.port))
        self._running[process.id] = session.capture
        try:
            recorder = (LastSeconds if options.last_ns else JaxRecorder)(
                process,
                server,
                options,
                planning.windows(options),
                session,
                accepted,
                self._few.of(process.uid),
                partial(self._handed.owe, Holder.of_user(process.uid)),
                partial(self._listens, process, server),
            )
            recording = await recorder.run()
        finally:
            del self._running[process.id]
        self._learn(process.id, recording)
        return recording

    def status(self) -> tuple[bool, str, int]:
        """For `doctor`: those that were looked at."""
        return True, "asks the listening ports of JAX and TensorFlow processes", self._finder.servers()

    async def _listens(self, process: Process, server: ListeningPort) -> bool:
        return server in await self._finder.listeners(process)

    async def _still_listens(self, process: ProcessId, server: ListeningPort) -> bool:
        """Whether these very sockets are that process's alone: while no daemon ran a port may have become another's."""
        found = await asyncio.to_thread(self._table.get, process.pid)
        if found is None or found.id != process:
            return False
        with contextlib.closing(Accepted(process, found.uid)) as accepted:
            unheld = await asyncio.to_thread(accepted.hold)
            return not unheld and await self._listens(found, server) and accepted.same

    def _refused(self, process: Process, offer: Offer) -> Recording:
        if not self._table.alive(process.id):
            return Recording(State.FAILED, Reason.TARGET_ENDED, f"pid {process.id.pid} has ended")
        if offer.busy:
            return Recording(State.BUSY, offer.why_code, f"{offer.reason}; {offer.fix}")
        return Recording(State.REFUSED, offer.why_code, f"{offer.reason}; {offer.fix}")

    def _learn(self, process: ProcessId, recording: Recording) -> None:
        recorded_ns = sum(phase.duration_ns for phase in recording.waterfall if phase.name == "window")
        if not recording.files or recorded_ns <= 0:
            return
        with contextlib.suppress(OSError):
            self._rates[process] = sum(Path(file.path).stat().st_size for file in recording.files) / recorded_ns


def _not_there(found: ServersFound, port: int) -> str:
    ports = ", ".join(str(server.port) for server in found.servers)
    return f"no profiler server of the process answers at port {port}; one does at {ports}"


def _may_have_one(process: Process) -> bool:
    """Its libraries are there, and its descriptors are ours to read."""
    return process.xla and not process.zombie and not process.stopped and os.geteuid() in (0, process.uid)


def _ahead_ns(options: Options) -> int:
    return max(0, options.start_at_ns - time.time_ns()) if options.start_at_ns is not None else 0


def _without_server(found: ServersFound) -> Offer:
    if found.other_network:
        return Offer(
            False,
            "it is in another network namespace, whose ports the daemon does not reach",
            "run the daemon in that namespace (in Kubernetes: hostNetwork for the pod)",
        )
    if found.shared:
        ports = ", ".join(map(str, found.shared))
        return Offer(
            False,
            f"it shares port {ports} with another process, and nobody knows which of them would answer",
            "give each process a profiler port of its own",
        )
    if found.silent:
        ports = ", ".join(map(str, found.silent))
        return Offer(
            False,
            f"it runs no profiler server that answers (port {ports} accepts and says nothing)",
            _START,
            Reason.TARGET_SILENT,
        )
    return Offer(False, "it runs no profiler server", _START)
