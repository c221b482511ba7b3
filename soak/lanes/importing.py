"""Imports of a file of known events: who was told of a trace finds all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import grpc
from profproto.v1 import trace_pb2

from soak.client import Client, Refused
from soak.rig import Rig
from soak.truth import Found, Promise, judged

SOURCE: Final = "import"
EVENTS: Final = 2000
_QUESTION: Final = """
select count(*), count(distinct start_ns), count(distinct start_ns), 0, count(distinct start_ns) - 1
from events where name = 'n'
"""


class Importing:
    """One lane: one file after the other."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    def run(self) -> None:
        """Until the round is over."""
        self._rig.keep_on(self._one)

    def _one(self, client: Client) -> None:
        daemons, before = self._rig.found.kills, len(self._rig.deaths)
        try:
            trace = client.traces("Import", _messages, once=True).trace
        except Refused as error:
            worker = "worker" in self._rig.deaths[before:]
            away = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED)
            if self._rig.found.kills == daemons and not worker and error.code not in away:
                self._rig.fault(f"an import failed, and nothing of it was killed: {error}")
            return
        with self._rig.lock:
            self._rig.traces[trace.id] = EVENTS
        [row] = client.sql(trace.id, _QUESTION)
        events = Found(*(int(value) for value in row))
        verdict = judged(Promise(0, EVENTS), events, 0)
        self._rig.judge(SOURCE, "stored", events.events, verdict, f"trace {trace.id} of {EVENTS} events: {events}")


def _messages() -> Iterator[Any]:
    events = [{"ph": "X", "name": "n", "pid": 1, "tid": 1, "ts": 1000 + 10 * n, "dur": 5} for n in range(EVENTS)]
    data = json.dumps({"traceEvents": events}).encode()
    half = len(data) // 2
    yield trace_pb2.ImportChunk(filename="soak.json", data=data[:half])
    yield trace_pb2.ImportChunk(data=data[half:])
