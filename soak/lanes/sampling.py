"""Captures by py-spy of a program that attaches to nothing: what was sampled is the program's, and each has an end."""

from __future__ import annotations

from typing import Final

from profproto.v1 import capture_pb2 as pb

from kindness.jobs import Job
from soak.client import Client
from soak.lanes import capturing
from soak.rig import Follow, Rig
from soak.truth import Promise, Verdict

SOURCE: Final = "pyspy"
_UNHARMED: Final = ("daemon", "worker", "sampler", "target")  # without these dead a capture is whole
_QUESTION: Final = "select count(*), count(*) filter (name like '%soak_%') from events"


class Sampling:
    """One lane: one program after the other."""

    def __init__(self, rig: Rig, uid: int) -> None:
        self._rig, self._uid = rig, uid
        self._chance = rig.chance_of("sampling")
        self._job: Job | None = None

    def run(self) -> None:
        """Until the round is over."""
        self._rig.keep_on(self._one)

    def _one(self, client: Client) -> None:
        if self._job is None or self._job.over():
            if self._job is not None:
                self._rig.forget(self._job)
            self._job = self._rig.start("spin", uid=self._uid)
        window = self._chance.choice((0.3, 0.5, 1.0, 2.0))
        options = pb.Options(source=SOURCE, duration_ns=int(window * 1e9), sample_hz=50)
        with self._rig.follow(Promise(), lambda: 0) as follow:
            if capturing.begun(self._rig, client, follow, self._job.pid, options):
                self._judge(client, follow, capturing.ended(self._rig, client, follow))

    def _judge(self, client: Client, follow: Follow, found: pb.TargetStatus) -> None:
        said, events = capturing.told(found, follow), 0
        if found.trace:
            [[events, ours]] = client.sql(found.trace, _QUESTION)
            if found.state == pb.STATE_STORED and not ours:
                self._rig.fault(f"none of {events} samples is of the program's own functions: {said}")
        elif not follow.daemons and not follow.hits.intersection(_UNHARMED) and found.state != pb.STATE_BUSY:
            self._rig.fault(f"nothing was stored, and nothing of it was killed: {said}")
        self._rig.judge(SOURCE, capturing.outcome(found), int(events), Verdict(), said)
