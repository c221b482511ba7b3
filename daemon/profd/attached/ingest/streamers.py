"""The streamer processes: one per uid, started when an arena is to be drained, started again when it dies.

All have a uid that is nobody's, so that no user may trace, signal or limit
theirs, and are known by their process: each may send what it was given to
drain, and nothing else, and uses up the shares of the user whom it serves.

The daemon keeps a descriptor of every arena until it is drained, so whatever
happens to a streamer, the next one goes on where the acks ended. A streamer
reads what targets write, so it is trusted with nothing: what it says here
only says when to stop waiting; what it sends is checked like any client's.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from profd.attached.ingest.arena import Counters, counters_untrusted
from profd.attached.ingest.intake import Intake
from profd.attached.ingest.leads import Lead, Leads, Room
from profd.attached.ingest.streamer_process import EXIT_SECONDS, NotStarted, Said, StreamerProcess
from profd.kernel import nobody
from profd.kernel.freeing import let_go
from profd.kernel.identity import unreadable
from profd.limits import STREAMER_RESTARTS_MAX
from profd.targets.process import ProcessId

_LOOK_AGAIN_SECONDS: Final = 60.0  # at whether an identity can run our Python: some 100 stat(2)
RESTART_SECONDS: Final = 0.2  # between two starts, times the starts before

log = logging.getLogger("profd.ingest")

Key = tuple[int, int]  # incarnation, epoch


class Drain:
    """One arena on its way. `close()` when done with it."""

    def __init__(self, owner: _Uid, key: Key, fd: int, intake: Intake, lead: Lead) -> None:
        self.key = key
        self.lead = lead
        self.fd = fd  # ours
        self.ended = asyncio.Event()
        self.problem = ""
        self.restarts = 0
        self.finishing: bool | None = None  # None: not asked for yet; else whether the target died
        self.may_be_written = False  # its target has not said that it is over, and is not known to be dead
        self._owner = owner
        self._intake = intake
        self._failures = 0  # since chunks last arrived
        self._chunks = 0

    def sent_by(self, streamer: ProcessId) -> None:
        """From now on it is drained by this process."""
        self._intake.sent_by(streamer)

    async def finish(self, *, target_died: bool) -> None:
        """Have the rest drained; returns when that is done, or cannot be: `problem` says why."""
        if self.finishing is None:
            self.finishing = target_died
            self._tell()  # until the streamer says it better
            self._owner.finish(self)
        await self.ended.wait()

    def close(self) -> None:
        """Let go of the arena, whatever is left in it. Safe to repeat."""
        if not self.ended.is_set():  # the next daemon may drain the rest
            self.may_be_written = True
            self._owner.drop(self)
            self.end("it was dropped before it was drained")
        if self.fd < 0:
            return
        if self.may_be_written:
            self.lead.abandon()
        else:
            self.lead.end(self.fd)
        let_go(self.fd)
        self.fd = -1

    def end(self, problem: str = "") -> None:
        """Nothing more will come."""
        self.problem = problem
        if problem and not self._intake.finished.is_set():
            self._tell()
        self.ended.set()

    def failed(self) -> bool:
        """Count a failure of its streamer; whether to try again."""
        self._failures = 1 if self._intake.chunks > self._chunks else self._failures + 1
        self._chunks = self._intake.chunks
        self.restarts += 1
        return self._failures <= STREAMER_RESTARTS_MAX

    def _tell(self) -> None:
        """Pass on the arena's own counts, so that events that never arrive are counted."""
        counters = counters_untrusted(self.fd) or Counters(0, ())
        self._intake.tell(counters.lost, counters.recorded)


class Streamers:
    """All streamers of the daemon."""

    def __init__(
        self,
        socket: Path,
        find: Callable[[int, int], Intake],
        *,
        change_identity: bool,
        room: Room = lambda: None,
    ) -> None:
        """`socket`: of gRPC. `find`: the intake of (incarnation, epoch). `change_identity`: to a uid that is nobody's.
        `room`: memory that the daemon may still take.
        """
        self.leads = Leads(room)
        self._socket = socket
        self._find = find
        self._change_identity = change_identity
        self._past_cpu_seconds = 0.0
        self._uids: dict[int, _Uid] = {}
        self._unreadable = (0.0, "")  # good until, and a path

    def drain(self, uid: int, incarnation: int, epoch: int, fd: int) -> Drain:
        """Have an arena drained by the streamer of this uid. Raises NotFound, or OSError without descriptors."""
        intake = self._find(incarnation, epoch)
        owner = self._uids.get(uid)
        if owner is None:
            owner = self._uids[uid] = _Uid(self._socket, self._identity, lambda: self._forget(uid))
        drain = Drain(owner, (incarnation, epoch), os.dup(fd), intake, self.leads.begin(uid, fd))
        owner.add(drain)
        return drain

    def why_not(self) -> str:
        """A sentence when no streamer can run here, else empty."""
        if not self._change_identity:
            return ""
        if self._unreadable[0] < time.monotonic():
            found = unreadable(nobody.STREAMER, nobody.STREAMER)
            self._unreadable = (time.monotonic() + _LOOK_AGAIN_SECONDS, found)
        path = self._unreadable[1]
        return f"uid {nobody.STREAMER} cannot read {path}, which streamers need to run" if path else ""

    def payer(self, uid: int, pid: int) -> int:
        """The uid whose share a caller of this uid and pid uses up: for a streamer of ours, its user's.

        That of root's processes has its own: what comes of them is bounded all the same.
        """
        if uid != nobody.STREAMER:
            return uid
        return next((owner for owner, one in self._uids.items() if one.pid == pid), 0) or uid

    @property
    def _identity(self) -> int | None:
        """The uid and gid that a streamer takes; None: the daemon's own."""
        return nobody.STREAMER if self._change_identity else None

    def cpu_seconds(self) -> float:
        """CPU time of all streamers so far: what sending costs the host, outside of the jobs' processes."""
        return self._past_cpu_seconds + sum(owner.cpu_seconds() for owner in self._uids.values())

    def _forget(self, uid: int) -> None:
        owner = self._uids.pop(uid, None)
        if owner is not None:
            self._past_cpu_seconds += owner.cpu_seconds()

    @property
    def pids(self) -> list[int]:
        """Pids of the streamers that live now."""
        return sorted(owner.pid for owner in self._uids.values() if owner.pid)

    def renew(self) -> None:
        """Another group may connect now: others that are in it take the places of those that run."""
        for owner in self._uids.values():
            owner.renew()

    async def close(self) -> None:
        """End all of them at once; drains that are not finished end with a problem."""
        await asyncio.gather(*(owner.close() for owner in list(self._uids.values())))
        self.leads.close()


class _Uid:
    """The streamer of one uid, and what it drains."""

    def __init__(self, socket: Path, identity: int | None, forget: Callable[[], object]) -> None:
        self._socket = socket
        self._identity = identity
        self._forget = forget
        self._drains: dict[Key, Drain] = {}
        self._process: StreamerProcess | None = None
        self._starts = 0  # in a row that did not live to be useful
        self._renewals = 0
        self._past_cpu_seconds = 0.0  # of processes that have ended
        self._task = asyncio.create_task(self._supervise())

    @property
    def pid(self) -> int:
        """Of the streamer; 0 while there is none."""
        return self._process.pid if self._process is not None else 0

    def cpu_seconds(self) -> float:
        """Of all its processes."""
        return self._past_cpu_seconds + (self._process.cpu_seconds() if self._process is not None else 0.0)

    def add(self, drain: Drain) -> None:
        """One more arena."""
        self._drains[drain.key] = drain
        self._order(drain)

    def finish(self, drain: Drain) -> None:
        """Its target writes no more."""
        if self._process is not None and drain.finishing is not None:
            self._process.finish(drain.key, target_died=drain.finishing)

    def drop(self, drain: Drain) -> None:
        """Nobody wants it any more."""
        if self._drains.get(drain.key) is drain:
            del self._drains[drain.key]
            if self._process is not None:
                self._process.drop(drain.key)
                if self._process.waits():
                    self._give_up(self._process)

    def renew(self) -> None:
        """Have another process take the place of this one, and of one that is about to be."""
        self._renewals += 1
        if self._process is not None:
            self._process.give_up()

    async def close(self) -> None:
        """End the process and the supervision."""
        self._task.cancel()
        await asyncio.wait([self._task])
        for drain in list(self._drains.values()):
            drain.may_be_written = True
            drain.end("profd is shutting down")

    async def _supervise(self) -> None:
        """Keep a process running as long as there is something to drain."""
        try:
            while self._drains:
                await self._one_life()
                await asyncio.sleep(RESTART_SECONDS * min(self._starts, STREAMER_RESTARTS_MAX))
        finally:
            self._forget()

    async def _one_life(self) -> None:
        """One process, from its start to its end."""
        renewals = self._renewals
        try:
            self._process = await StreamerProcess.start(self._socket, self._identity)
        except NotStarted as error:
            self._starts += 1
            self._count_failure(str(error))
            return
        used, words = 0.0, ""
        if renewals != self._renewals:
            self._process.give_up()
        try:
            for drain in list(self._drains.values()):
                self._order(drain)
            while (said := await self._process.said()) is not None:
                self._hear(said)
            used = self._process.cpu_seconds()  # before it is reaped
            how = await self._process.exited()
            words = self._process.last_words()
        finally:
            process, self._process = self._process, None
            self._past_cpu_seconds += used or process.cpu_seconds()
            await process.kill()
        if self._drains:
            self._starts += 1
            log.warning(
                "a streamer ended", extra={"pid": process.pid, "how": how, "arenas": len(self._drains), "said": words}
            )
            self._count_failure(f"its streamer {how}")

    def _give_up(self, process: StreamerProcess) -> None:
        """None takes its place before it has ended: one such process for each user. Where it cannot, drains end."""
        if not process.given_up:
            log.warning("a streamer waits for what a target holds, and is given up", extra={"pid": process.pid})
            process.give_up()
            asyncio.get_running_loop().call_later(EXIT_SECONDS, self._refuse_all, process)

    def _refuse_all(self, process: StreamerProcess) -> None:
        if self._process is process:
            for drain in list(self._drains.values()):
                self._refuse(drain)

    def _refuse(self, drain: Drain) -> None:
        del self._drains[drain.key]
        drain.may_be_written = True
        drain.end(
            "what was recorded could not be taken over: a process of its user keeps an arena locked, and the streamer "
            "of that user waits for it, for every one"
        )

    def _order(self, drain: Drain) -> None:
        if self._process is None:  # when it starts, it gets everything there is
            return
        if self._process.given_up:  # it ends in a moment, and a successor gets everything there is; or it cannot
            if self._process.is_stuck:
                self._refuse(drain)
            return
        drain.sent_by(self._process.id)
        self._process.drain(drain.key, drain.fd, drain.lead.bytes)
        self.finish(drain)

    def _hear(self, said: Said) -> None:
        drain = self._drains.get(said.key)
        if drain is None:
            return
        self._starts = 0
        if said.word == "lead":
            if drain.lead.grow() and self._process is not None:
                self._process.lead(drain.key, drain.lead.bytes)
        elif said.word == "finished":
            del self._drains[said.key]
            drain.end()
        elif said.word == "failed" and drain.failed():
            log.warning("an arena is drained anew", extra={"why": said.why})
            self._order(drain)
        else:
            del self._drains[said.key]
            drain.end(f"what was recorded could not be taken over: {said.why}")

    def _count_failure(self, why: str) -> None:
        for key, drain in list(self._drains.items()):
            if not drain.failed():
                del self._drains[key]
                drain.end(f"what was recorded could not be taken over: {why}")
