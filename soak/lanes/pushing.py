"""Streams of known chunks from programs that are killed, and whose successors go on and send some of it again."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from profclient.streamer.arena import Arena
from profclient.streamer.compress import compressor
from profproto.v1 import trace_pb2

from kindness.jobs import Job
from soak.client import Client
from soak.rig import Rig, until
from soak.truth import Found, Promise, judged
from tests.support import arena_writer as writer

SOURCE: Final = "pushed"
CHUNKS: Final = 20
EVENTS: Final = 100  # of a chunk
_AGAIN: Final = 3  # chunks that a successor sends once more
_LEFT: Final = 0.2  # of streams whose sender is killed have no successor: what has come is stored after 15 s
_QUESTION: Final = """
select count(*), count(distinct value), count(distinct value) filter (value < {0}),
  coalesce(min(value), 0), coalesce(max(value), -1) from events where name = 'n'
"""


class Pushing:
    """One lane: one stream after the other."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._chance = rig.chance_of("pushing")
        self._file = rig.found.directory / "chunks"
        self._number = 0

    def run(self) -> None:
        """Until the round is over."""
        self._rig.keep_on(self._one)

    def _one(self, client: Client) -> None:
        self._number += 1
        incarnation = self._chance.randrange(1, 1 << 60)
        self._file.write_bytes(chunks(incarnation))
        daemons, acked, trace = self._rig.found.kills, 0, ""
        label = f"pushed {incarnation}"
        while not trace:
            job = self._rig.start("push", self._rig.found.socket, self._file, incarnation, 7, label,
                                  max(0, acked - _AGAIN), CHUNKS * EVENTS)  # fmt: skip
            self._rig.wait(job, job.over, f"pid {job.pid} has sent its chunks")
            was_killed = job.pid in self._rig.killed
            said = _said(job)
            acked = max(acked, said.acked)
            self._rig.forget(job)
            if self._rig.found.kills > daemons or "UNAVAILABLE" in said.refused:
                if not said.trace:
                    return  # these do not outlive the daemon, and promise nothing until they are stored
            elif said.refused and "RESOURCE_EXHAUSTED" not in said.refused:
                self._rig.fault(f"a stream was refused: {said.refused}")
                return
            trace = said.trace
            if said.finished and not trace:
                self._rig.fault(f"{label} has finished, and its sender is not told the trace")
                return
            # Of a stream of which nothing was acknowledged nothing is promised, and nothing may come.
            if was_killed and acked and not trace and self._chance.random() < _LEFT:
                trace = self._left_alone(client, label, daemons)
                if not trace:
                    return
        self._judge(client, trace, acked * EVENTS)

    def _left_alone(self, client: Client, label: str, daemons: int) -> str:
        """Its sender stays away: the trace that comes of it by itself, empty where the daemon is killed first."""

        def found() -> str:
            listed = client.traces("ListTraces", trace_pb2.ListTracesRequest(limit=100)).traces
            return next((trace.id for trace in listed if trace.title == label), "")

        until(lambda: found() or self._rig.found.kills > daemons, f"what has come of {label} is stored", 120.0)
        return found()

    def _judge(self, client: Client, trace: str, acked: int) -> None:
        with self._rig.lock:
            self._rig.traces[trace] = -1
        [row] = client.sql(trace, _QUESTION.format(acked))
        events = Found(*(int(value) for value in row))
        verdict = judged(Promise(0, acked), events, 0)
        self._rig.judge(SOURCE, "stored", events.events, verdict, f"trace {trace} of {acked} events acked: {events}")


@dataclass(slots=True)
class _Said:
    """What a sender was told: how many chunks are written, that all is over, the trace, why it was refused."""

    acked: int = 0
    finished: bool = False
    trace: str = ""
    refused: str = ""


def _said(job: Job) -> _Said:
    said = _Said()
    for line in job.log.with_suffix(".out").read_text().splitlines():
        word, _, rest = line.partition(" ")
        match word:
            case "acked":
                said.acked = int(rest.split()[0])
            case "trace":
                said.finished, said.trace = True, rest
            case "refused":
                said.refused = rest
    return said


def chunks(incarnation: int) -> bytes:
    """A stream of counters, in chunks of one thread."""
    strings, made = writer.Strings(), []
    name = strings.id("n")
    for sequence in range(CHUNKS):
        begin = 1_000_000 * (sequence + 1)
        values = range(sequence * EVENTS, (sequence + 1) * EVENTS)
        slots = [writer.Slot(begin + 100 * (value % EVENTS), _bits(value), name, writer.COUNTER) for value in values]
        opened, sealed = _anchor(begin), _anchor(begin + 100 * EVENTS)
        made.append(writer.Chunk(slots, sequence=sequence, id_base=1 + 4096 * sequence, opened=opened, sealed=sealed))
    latest = _anchor(1_000_000 * (CHUNKS + 2))
    fd = writer.arena_fd(made, strings, armed=_anchor(1), latest=latest, incarnation=incarnation, epoch=7)
    arena = Arena(fd, compressor())
    try:
        batch = arena.batch(1 << 20, last=True)
        return b"" if batch is None else batch.data
    finally:
        arena.close()


def _anchor(ticks: int) -> writer.Anchor:
    return ticks, ticks, 10**18 + ticks


def _bits(value: int) -> int:
    return int.from_bytes(struct.pack("<d", value), "little")
