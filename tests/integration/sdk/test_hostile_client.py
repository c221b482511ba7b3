"""A client of the same user that sends whatever it likes into a recording that is under way, beside its streamer."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from profd.attached.ingest.chunk import split_untrusted
from profd.limits import INGEST_CHUNK_BYTES_MAX
from profproto.v1 import capture_pb2 as pb
from profproto.v1 import ingest_pb2
from profproto.v1.ingest_pb2_grpc import IngestServiceStub

from tests.support.attached import WAIT_SECONDS, Captures, assert_covers, attached, lost, values
from tests.support.daemon import RunningDaemon
from tests.support.waiting import until

pytestmark = pytest.mark.slow


class Intruder:
    """Opens the stream of the recording that runs, as its note in the journal names it."""

    def __init__(self, daemon: RunningDaemon) -> None:
        self._daemon = daemon
        [note] = daemon.state_dir.glob("journal/*/*/.recording.json")
        self._key = json.loads(note.read_text())
        self.file: Path = note.with_name("chunks.pfc")

    def chunks(self) -> list[bytes]:
        """What has arrived so far."""
        data = self.file.read_bytes()
        return [data[chunk.start : chunk.end] for chunk in split_untrusted(memoryview(data)) if chunk.refusal is None]

    def send(self, *messages: bytes) -> list[list[str]]:
        """What was refused of each message; shorter where the call was ended. Tries until the daemon listens."""
        opened = ingest_pb2.IngestOpen(
            incarnation=self._key["incarnation"], epoch=self._key["epoch"], version_min=1, version_max=2
        )
        answered = threading.Semaphore(0)

        def requests() -> Iterator[ingest_pb2.IngestRequest]:
            yield ingest_pb2.IngestRequest(open=opened)
            for number, data in enumerate(messages, 1):
                answered.acquire()  # never more than its credit
                yield ingest_pb2.IngestRequest(chunks=ingest_pb2.IngestChunks(message=number, data=data))
            answered.acquire()

        refused: list[list[str]] = []
        stub = self._daemon.stub(IngestServiceStub)
        with contextlib.suppress(grpc.RpcError):  # too much of something, or the streamer is back and ends this one
            for reply in stub.Stream(requests(), metadata=self._daemon.metadata(), timeout=WAIT_SECONDS):
                if reply.acked:
                    refused.append([each.reason for each in reply.rejected])
                answered.release()
                if len(refused) == len(messages):
                    break
        answered.release()
        return refused


def broken(chunk: bytes) -> bytes:
    """The same with one bit of its body turned."""
    return chunk[:-1] + bytes([chunk[-1] ^ 1])


def test_what_a_hostile_client_sends_is_refused_or_known(daemon: RunningDaemon, tmp_path: Path) -> None:
    captures = Captures(daemon)
    with attached(daemon, tmp_path) as job:
        capture = captures.recording(job.pid)
        before = job.count
        intruder = Intruder(daemon)
        until(lambda: len(intruder.chunks()) >= 3, "chunks have arrived")
        for message in (
            b"".join(reversed(intruder.chunks())),  # replayed, and the other way round
            broken(intruder.chunks()[0]),
            bytes(INGEST_CHUNK_BYTES_MAX + 1),
            b"noise" * 1000,
        ):
            intruder.send(message)
            job.counts_on()
        refused: list[list[str]] = []
        while not refused:  # the streamer may have taken its stream back first
            refused = intruder.send(broken(intruder.chunks()[0]))
        assert refused == [["crc"]]
        job.counts_on()
        after = job.count
        [target] = captures.stop(capture).targets
        # THEN everything is there, once, and what was refused is told
        assert (target.state, target.reason) == (pb.STATE_PARTIAL, pb.REASON_LOSSES), target.message
        assert lost(target).keys() <= {"crc", "header"}
        assert_covers(values(daemon, target.trace), before, after)
        job.check_results()
