"""A server that takes events in, with everything behind it real: sockets, tokens, threads, files, streamers.

async with ingest_rig(folder) as rig:
    intake = await rig.ingest.expect(INCARNATION, EPOCH, os.getuid(), folder)
    drain = rig.streamers.drain(os.getuid(), INCARNATION, EPOCH, fd)
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import tempfile
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import grpc
from profd.attached.ingest.chunk import Chunk, split_untrusted
from profd.attached.ingest.intake import Ingest
from profd.attached.ingest.pushed import Pushed
from profd.attached.ingest.streamers import Streamers
from profd.disk.space import Claim, Space
from profd.model.capture import Loss
from profd.rpc.guard import Guard
from profd.rpc.ingest import IngestServicer
from profd.rpc.server import RpcServer
from profd.store.catalog import TraceRecord
from profd.telemetry.metrics import Metrics
from profd.trust.caller import Caller
from profd.trust.control import ControlServer
from profd.trust.token import Tokens
from profproto.v1 import ingest_pb2_grpc

from tests.support import arena_writer as writer

INCARNATION, EPOCH = 0xABCDEF, 7
LONG = 60.0  # a busy machine; nothing waits so long when all is well
HEADER = struct.Struct("<IHBBIIQIIQQQqIIIIIIQ")


def claim_of(free: Callable[[], int]) -> Claim:
    """A claim on a disk of which so much is free; all of it may be one user's."""
    return Space(Path("/"), uid_share=2.0, measure=lambda: (free(), 0)).claim(0, "the file")


class Audit:
    """Forgets everything."""

    def write(self, action: str, uid: int, **details: object) -> None:
        """Nothing."""


class Shelf:
    """Keeps what was pushed as it is."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, str, bytes, list[Loss], list[str]]] = []
        self._space = Space(Path(tempfile.gettempdir()))

    def spool(self) -> BinaryIO:
        return tempfile.TemporaryFile()

    def claim(self, caller: Caller, what: str) -> Claim:
        return self._space.claim(caller.uid, what)

    async def import_stream(
        self, caller: Caller, fd: int, label: str, lost: Sequence[Loss], warnings: Sequence[str]
    ) -> TraceRecord:
        data = os.pread(fd, os.fstat(fd).st_size, 0)
        self.kept.append((caller.uid, label, data, list(lost), list(warnings)))
        return TraceRecord(id=f"t{len(self.kept)}", owner_uid=caller.uid, title=label)


class IngestRig:
    """The daemon's side of ingest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "s"
        self.tokens = Tokens()
        self.ingest = Ingest()
        self.streamers = Streamers(self.socket, self.ingest.find, change_identity=False)
        self.shelf = Shelf()
        self.pushed = Pushed(self.ingest, self.shelf)
        self._channels: list[grpc.aio.Channel] = []
        self._open_server()

    def _open_server(self) -> None:
        guard = Guard(self.tokens, Audit(), Metrics())
        ours = IngestServicer(self.ingest, self.pushed)
        servicer = (ingest_pb2_grpc.add_IngestServiceServicer_to_server, ours)
        self.server = RpcServer(self.socket, guard, {"profd.v1.IngestService": servicer})

    async def open(self) -> None:
        self.ingest.open()
        await self.server.open(lambda file: file.chmod(0o600))
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(str(self.folder / "control.sock"))
        listener.listen()
        self.control = ControlServer(listener, self.tokens, self.socket)
        self.control.open()

    async def restart_server(self) -> None:
        """As if gRPC had broken down: all calls end, the socket goes and comes back."""
        await self.server.close(0)
        self._open_server()
        await self.server.open(lambda file: file.chmod(0o600))

    async def close(self) -> None:
        await self.streamers.close()
        for channel in self._channels:
            await channel.close(None)
        self.control.close()
        await self.server.close(0)
        self.pushed.close()
        self.ingest.close()

    def stub(self) -> ingest_pb2_grpc.IngestServiceStub:
        channel = grpc.aio.insecure_channel(f"unix:{self.socket}", options=[("grpc.default_authority", "localhost")])
        self._channels.append(channel)
        return ingest_pb2_grpc.IngestServiceStub(channel)

    def metadata(self, uid: int = 1000, *, admin: bool = False) -> tuple[tuple[str, str], ...]:
        caller = Caller(uid=uid, gid=100, user=str(uid), admin=admin, pid=0)
        return (("profd-token", self.tokens.issue(caller)),)


@contextlib.asynccontextmanager
async def ingest_rig(folder: Path) -> AsyncIterator[IngestRig]:
    rig = IngestRig(folder)
    await rig.open()
    try:
        yield rig
    finally:
        await rig.close()


def chunk_bytes(
    stream: int = 0,
    sequence: int = 0,
    events: int = 10,
    *,
    incarnation: int = INCARNATION,
    epoch: int = EPOCH,
    body: bytes = b"body",
    version: int = 1,
    codec: int = 0,
) -> bytes:
    """A chunk whose header is right; nothing of ingest looks into the body."""
    length = HEADER.size + len(body)
    fields = (incarnation, stream, 100, sequence, 1, 0, 0, 0, 4242, events, len(body), events, 0, epoch)
    rest = HEADER.pack(0x31434650, version, codec, 0, length, 0, *fields)[16:] + body
    return struct.pack("<IHBBII", 0x31434650, version, codec, 0, length, zlib.crc32(rest)) + rest


def stored(path: Path) -> list[Chunk]:
    """The chunks of a journal file, all of them sound."""
    chunks = list(split_untrusted(memoryview(path.read_bytes())))
    assert all(chunk.refusal is None for chunk in chunks)
    return chunks


def names_of(path: Path) -> list[tuple[int, int]]:
    """(stream, sequence) of the chunks of a journal file, as they lie in it."""
    return [(chunk.stream, chunk.sequence) for chunk in stored(path)]


def arena_chunks(streams: int, each: int, events: int = 8) -> Iterator[writer.Chunk]:
    """Sealed chunks of some threads."""
    for sequence in range(each):
        for stream in range(streams):
            slots = [writer.Slot(1000 + number, 1500 + number, name=0) for number in range(events)]
            yield writer.Chunk(slots, stream=stream, sequence=sequence, id_base=1 + 4096 * (each * stream + sequence))
