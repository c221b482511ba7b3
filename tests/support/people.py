"""Programs that are somebody else: what one user does to a daemon that serves others, too.

They begin as root, because the interpreter of a checkout may not be theirs to run, and become their uid before they
connect. Each says a line when what it does holds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

# Its arguments: a socket, and how often it connects there.
CONNECT_AND_GO = """
import os, socket, sys
os.setgid(4321); os.setuid(4321)
for _ in range(int(sys.argv[2])):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect(sys.argv[1])
"""


@contextmanager
def being(uid: int | None, groups: Sequence[int] = ()) -> Iterator[None]:
    """Who connects in the block is this user, and in these groups besides, for the kernel. None: who we are."""
    if uid is None:
        yield
        return
    before = os.getgroups()
    os.setgroups(groups)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setgroups(before)


_BECOME = """
import asyncio, ctypes, json, os, signal, socket, sys
import grpc, grpc.aio
from profproto.v1 import capture_pb2, capture_pb2_grpc, query_pb2, query_pb2_grpc, trace_pb2, trace_pb2_grpc
uid, control, address = int(sys.argv[1]), sys.argv[2], sys.argv[3]
rest = sys.argv[4:]
os.setgroups([]); os.setgid(uid); os.setuid(uid)
os.environ["PROFD_ADDRESS"] = address
OPTIONS = [("grpc.default_authority", "localhost")]

def token():
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(control)
        return (("profd-token", json.loads(sock.recv(65536))["token"]),)

def say(what):
    print(what, flush=True)

async def flood(ask, count, pause=1.0):
    # As many in flight as it may, for ever; one line when the first is refused.
    told = False
    async def one():
        nonlocal told
        while True:
            try:
                await ask()
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and not told:
                    told = True
                    say("refused")
            await asyncio.sleep(pause)
    await asyncio.gather(*(one() for _ in range(count)))

async def silent():
    await asyncio.Event().wait()
    yield b""
"""

IDLE_CALLS = """
async def main():
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        metadata = token()
        get = channel.stream_unary("/profd.v1.CaptureService/GetCapture")
        async def ask():
            await get(silent(), metadata=metadata)
        await flood(ask, int(rest[0]))
asyncio.run(main())
"""

WATCHES_WITHOUT_A_TOKEN = """
from grpc_health.v1 import health_pb2, health_pb2_grpc
async def main():
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        async def ask():
            async for _ in stub.Watch(health_pb2.HealthCheckRequest()):
                pass
        await flood(ask, int(rest[0]))
asyncio.run(main())
"""

TOPS = """
async def main():
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        stub, metadata = trace_pb2_grpc.TraceServiceStub(channel), token()
        async def ask():
            await stub.KeyAverages(trace_pb2.KeyAveragesRequest(id=rest[1]), metadata=metadata)
        await flood(ask, int(rest[0]))
asyncio.run(main())
"""

SQLS_THAT_NOBODY_READS = """
async def main():
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        stub, metadata = trace_pb2_grpc.TraceServiceStub(channel), token()
        asked = trace_pb2.SqlRequest(id=rest[1], sql="SELECT a.*, b.* FROM events a, events b", limit=1_000_000)
        async def ask():
            call = stub.Sql(asked, metadata=metadata)
            await call.read()
            await call.code()
            await call.read()
        await flood(ask, int(rest[0]))
asyncio.run(main())
"""

# The same two by Query.
QUERIED_TOPS = """
async def main():
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        stub, metadata = query_pb2_grpc.QueryServiceStub(channel), token()
        asked = query_pb2.QueryRequest(name="top", scope=query_pb2.Scope(trace=rest[1]))
        async def ask():
            async for _ in stub.Query(asked, metadata=metadata):
                pass
        await flood(ask, int(rest[0]))
asyncio.run(main())
"""

QUERIED_SQLS_THAT_NOBODY_READS = """
async def main():
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        stub, metadata = query_pb2_grpc.QueryServiceStub(channel), token()
        asked = query_pb2.QueryRequest(name="sql", scope=query_pb2.Scope(trace=rest[1]))
        asked.arguments.update({"sql": "SELECT a.*, b.* FROM events a, events b", "limit": "1000000"})
        async def ask():
            call = stub.Query(asked, metadata=metadata)
            await call.read()
            await call.read()
            await call.code()
            await call.read()
        await flood(ask, int(rest[0]))
asyncio.run(main())
"""

STARTS = """
async def main():
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        stub, metadata = capture_pb2_grpc.CaptureServiceStub(channel), token()
        start = capture_pb2.StartCaptureRequest(selector=capture_pb2.Selector(pids=[os.getpid()]))
        start.options.duration_ns = 10**9
        while True:
            asked = [stub.StartCapture(start, metadata=metadata) for _ in range(30)]
            await asyncio.gather(*asked, return_exceptions=True)
            say("again")
asyncio.run(main())
"""

CONNECTIONS = """
from tests.support import http2
def is_answered(sock):
    # By gRPC, or by the door, as one connection too many.
    sock.settimeout(60)
    try:
        sock.sendall(http2.BEGIN + http2.call("/profd.v1.TraceService/ListTraces", 1, 5))
        answer = b""
        while b"grpc-status" not in answer and (piece := sock.recv(65536)):
            answer += piece
    except ConnectionError:
        return "closed"
    return "refused" if b"connections at once" in answer else "held" if answer else "closed"
sockets = [socket.socket(socket.AF_UNIX) for _ in range(int(rest[0]))]
for sock in sockets:
    sock.connect(address.removeprefix("unix:"))
ends = [is_answered(sock) for sock in sockets]
say(json.dumps({end: ends.count(end) for end in ("held", "refused", "closed")}))
signal.pause()
"""

# Hundreds of connections, hundreds of streams each, as fast as they are taken; nothing that comes back is looked at.
FLOOD = """
from tests.support import http2
import selectors
streams = b"".join(http2.call(rest[1], stream) for stream in range(1, 2 * int(rest[2]), 2))
waiting = selectors.DefaultSelector()
def connect():
    sock = socket.socket(socket.AF_UNIX)
    sock.setblocking(False)
    try:
        sock.connect(address.removeprefix("unix:"))
    except OSError:
        sock.close()
        return
    waiting.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE, memoryview(http2.BEGIN + streams))
for _ in range(int(rest[0])):
    connect()
say("flooding")
while True:
    ready = waiting.select()
    for key, events in ready:
        sock, left = key.fileobj, key.data
        try:
            if events & selectors.EVENT_READ and not sock.recv(1 << 16):
                raise ConnectionError
            if events & selectors.EVENT_WRITE:
                left = left[sock.send(left):]
                if left:
                    waiting.modify(sock, selectors.EVENT_READ | selectors.EVENT_WRITE, left)
                else:
                    waiting.modify(sock, selectors.EVENT_READ, left)
        except BlockingIOError:
            pass
        except OSError:
            waiting.unregister(sock)
            sock.close()
            connect()
    if not ready:
        connect()
"""

# A user who works: so many calls, one after the other, and how each ended.
CALLS = """
async def main():
    ends = {}
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        stub, metadata = trace_pb2_grpc.TraceServiceStub(channel), token()
        for _ in range(int(rest[0])):
            try:
                await stub.ListTraces(trace_pb2.ListTracesRequest(), metadata=metadata, timeout=60)
                end = "OK"
            except grpc.aio.AioRpcError as error:
                end = error.code().name
            ends[end] = ends.get(end, 0) + 1
            await asyncio.sleep(0.02)
    say(json.dumps(ends))
    await asyncio.Event().wait()
asyncio.run(main())
"""

CONNECTS_AND_GOES = """
say("begun")
while True:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.setblocking(False)
        try:
            sock.connect(rest[0])
        except BlockingIOError:
            pass
"""

PROFCTL = "app.main(rest)"
_LOAD_PROFCTL = """
import concurrent.futures.thread, importlib, unicodedata
from profclient.cli import app
for module, _, _ in app.COMMANDS.values():
    importlib.import_module(f"profclient.cli.commands.{module}")
"""

# Dumpable, as what its user has executed is: who has only become somebody else is nobody's to look into.
SPIN = """
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE
say(os.getpid())
while True:
    sum(range(1000))
"""


def command(uid: int, program: str, directory: Path, *arguments: object, first: str = "") -> list[str]:
    """To run a program of this module as that uid, at the daemon whose sockets are in this directory.

    `first`: what it does while it is still root, such as to import what others may not read.
    """
    where = (str(directory / "control.sock"), f"unix:{directory / 'profd.sock'}")
    # What it imports later it may not be able to read.
    text = (_LOAD_PROFCTL if program is PROFCTL else "") + first + _BECOME + program
    return [sys.executable, "-c", text, str(uid), *where, *map(str, arguments)]


def profctl(uid: int, directory: Path, *arguments: object, seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
    """`profctl` of that user, to its end."""
    asked = command(uid, PROFCTL, directory, *arguments)
    return subprocess.run(asked, capture_output=True, text=True, timeout=seconds, check=False)


@contextmanager
def doing(uid: int, program: str, directory: Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A program that runs, from its first line on, which is read with `readline`; killed with the block."""
    process = subprocess.Popen(command(uid, program, directory, *arguments), stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
