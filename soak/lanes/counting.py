"""Captures of attached programs that count: each value exactly once, or counted as lost."""

from __future__ import annotations

import mmap
import random
import time
from pathlib import Path
from typing import Final

from profproto.v1 import capture_pb2 as pb

from kindness.jobs import Job
from soak.client import Client, Refused
from soak.lanes import capturing
from soak.rig import Follow, Rig, until
from soak.truth import Found, Promise, judged

SOURCE: Final = "sdk"
_QUESTION: Final = """
select count(*), count(distinct value), count(distinct value) filter (value >= {0} and value < {1}),
  coalesce(min(value), 0), coalesce(max(value), -1) from events where name = 'n'
"""


class Counting:
    """One lane: one program after the other, as one user."""

    def __init__(self, rig: Rig, uid: int) -> None:
        self._rig, self._uid = rig, uid
        self._chance = rig.chance_of(f"counting {uid}")
        self._job: Job | None = None
        self._count = Path()

    def run(self) -> None:
        """Until the round is over."""
        self._rig.keep_on(self._one)

    def _one(self, client: Client) -> None:
        job, promise = self._running(client), Promise()
        options = _options(self._chance)
        with self._rig.follow(promise, self._counted) as follow:
            if not capturing.begun(self._rig, client, follow, job.pid, options):
                return
            self._record(client, follow, open_ended=not options.duration_ns)
            found = capturing.ended(self._rig, client, follow)
            self._judge(client, follow, found, job)
        if found.state in (pb.STATE_BUSY, pb.STATE_REFUSED):  # held by the last one, or not attached yet
            time.sleep(0.2)

    def _record(self, client: Client, follow: Follow, *, open_ended: bool) -> None:
        """From its begin to its stop. Of one that ends by itself nobody can tell what fell into its window."""
        state = capturing.reached(client, follow, pb.STATE_RECORDING).state
        with self._rig.lock:
            if open_ended and state == pb.STATE_RECORDING and not follow.daemons:
                follow.promise.first = self._counted()
        if not open_ended:
            return
        time.sleep(self._chance.choice((0.02, 0.2, 1.0, 2.0)) * self._chance.random())
        with self._rig.lock:
            follow.promise.ends(self._counted())
        client.captures("StopCapture", pb.CaptureRef(id=follow.capture))

    def _judge(self, client: Client, follow: Follow, found: pb.TargetStatus, job: Job) -> None:
        with self._rig.lock:
            if follow.daemons and job.pid in self._rig.killed:
                follow.promise.first = None  # what nobody had acknowledged has died with both who held it
        events = Found()
        if found.trace:
            [row] = client.sql(found.trace, _QUESTION.format(*follow.promise.window))
            events = Found(*(int(value) for value in row))
        counted = sum(loss.count for loss in found.lost)
        verdict = judged(follow.promise, events, counted)
        self._rig.judge(
            SOURCE, capturing.outcome(found), events.events, verdict, f"{capturing.told(found, follow)}; {events}"
        )

    def _running(self, client: Client) -> Job:
        """Our program, or another one where it has been killed."""
        if self._job is not None and not self._job.over():
            return self._job
        if self._job is not None:
            self._rig.forget(self._job)
        self._count = Path(self._rig.found.directory, f"count-{self._uid}")
        self._count.write_bytes(bytes(8))
        self._count.chmod(0o666)
        self._job = self._rig.start("count", self._count, uid=self._uid)
        self._attached(client, self._job)
        return self._job

    def _attached(self, client: Client, job: Job) -> None:
        """Wait until it could be recorded; its lane may have killed it by then."""

        def there() -> bool:
            asked = pb.ListTargetsRequest(selector=pb.Selector(pids=[job.pid]))
            try:
                targets = client.captures("ListTargets", asked).targets
            except Refused:  # it has been killed
                return job.over()
            return job.over() or any(SOURCE in target.sources for target in targets)

        until(there, f"pid {job.pid} is attached")

    def _counted(self) -> int:
        """Values below this one have been recorded, if they were being recorded."""
        with self._count.open("rb") as file, mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ) as shared:
            return int.from_bytes(shared[:8], "little")


def _options(chance: random.Random) -> pb.Options:
    """Open-ended mostly: of these it is known what must be in them."""
    return pb.Options(source=SOURCE, duration_ns=int(chance.choice((0, 0, 0, 0.02, 0.5)) * 1e9))
