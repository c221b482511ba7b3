"""What one user may do to a daemon that serves others, each as a program that does it without end.

    subprocess.Popen(ATTACKS["metrics in a loop"].command(uid, directory, metrics=9477))

Whoever is refused asks again, at most after a second, and none of them ends: against a daemon, or a stub that refuses
everything (`tests.support.refusing`), the load is what such a user can make.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.support import people

_IMPORTS = """
import encodings.idna, threading, time, urllib.error, urllib.request
from pathlib import Path
from profproto.v1 import ingest_pb2, ingest_pb2_grpc
from profd.sources.kineto import wire
from tests.support.kineto_client import KinetoClient
"""

# What most of them begin with.
_AT_ONCE = """
mine = token()

def lasting(attack):
    async def main():
        async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
            await attack(channel)
    asyncio.run(main())

async def quietly(call):
    try:
        return await call
    except grpc.aio.AioRpcError:
        return None
"""

IDLE_IMPORTS = """
async def idle():
    yield trace_pb2.ImportChunk(filename="t.json", data=b"{")
    await asyncio.Event().wait()

async def attack(channel):
    stub = trace_pb2_grpc.TraceServiceStub(channel)
    async def ask():
        await stub.Import(idle(), metadata=mine)
    await flood(ask, 4)
lasting(attack)
"""

# A million planes of 13 bytes, each with nothing but a name.
XSPACES = """
async def chunks(data):
    for begin in range(0, len(data), 1 << 20):
        yield trace_pb2.ImportChunk(filename="t.xplane.pb" * (begin == 0), data=data[begin : begin + (1 << 20)])

async def attack(channel):
    stub, data = trace_pb2_grpc.TraceServiceStub(channel), b"".join(b"\\n\\v\\x12\\t%09d" % n for n in range(10**6))
    async def ask():
        await stub.Import(chunks(data), metadata=mine)
    await flood(ask, 2, 0.1)
lasting(attack)
"""

HEALTH_AND_REFLECTION = """
from grpc_health.v1 import health_pb2, health_pb2_grpc
async def attack(channel):
    stub = health_pb2_grpc.HealthStub(channel)
    reflect = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
    async def watch():
        async for _ in stub.Watch(health_pb2.HealthCheckRequest()):
            pass
    async def hold():
        async for _ in reflect(silent()):
            pass
    async def check():
        await stub.Check(health_pb2.HealthCheckRequest())
    await asyncio.gather(flood(watch, 600), flood(hold, 500), flood(check, 50, 0.0))
lasting(attack)
"""

WHOLE_DISK = """
async def endless():
    piece = os.urandom(1 << 20)
    while True:
        yield trace_pb2.ImportChunk(filename="t.json", data=piece)

async def attack(channel):
    stub = trace_pb2_grpc.TraceServiceStub(channel)
    async def ask():
        await stub.Import(endless(), metadata=mine)
    await flood(ask, 1, 0.1)
lasting(attack)
"""

# 32 GiB that hold nothing, at each config that it is given.
SPARSE_FILE = """
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE
os.umask(0)
def sparse(_, config):
    path = config["ACTIVITIES_LOG_FILE"]
    with open(path.removesuffix(".json") + f"_{os.getpid()}.json", "wb") as file:
        file.write(b"{")
        file.truncate(32 << 30)

async def attack(channel):
    stub = capture_pb2_grpc.CaptureServiceStub(channel)
    start = capture_pb2.StartCaptureRequest(selector=capture_pb2.Selector(pids=[os.getpid()]))
    start.options.duration_ns, start.options.source, start.options.force = 10**8, "kineto", True
    async def ask():
        await stub.StartCapture(start, metadata=mine)
    with KinetoClient(Path(os.path.dirname(control)) / "kineto") as client:
        await asyncio.gather(client.run(sparse), flood(ask, 1, 0.3))
lasting(attack)
"""

STARTS = """
async def attack(channel):
    stub, metadata = capture_pb2_grpc.CaptureServiceStub(channel), token()
    start = capture_pb2.StartCaptureRequest(selector=capture_pb2.Selector(pids=[os.getpid()]))
    start.options.duration_ns = 10**9
    async def ask():
        await stub.StartCapture(start, metadata=mine)
    await flood(ask, 29)
lasting(attack)
"""

DATAGRAMS = """
with KinetoClient(Path(os.path.dirname(control)) / "kineto") as client:
    while True:
        try:
            client.poll()
            client.read()
        except OSError:
            pass
"""

UNADMITTED_STREAMS = """
async def main():
    apart = [*OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
    async def one():
        async with grpc.aio.insecure_channel(address, options=apart) as channel:
            get = channel.stream_unary("/profd.v1.CaptureService/GetCapture")
            async def ask():
                await get(silent())
            await flood(ask, int(rest[1]), 0.0)
    await asyncio.gather(*(one() for _ in range(int(rest[0]))))
asyncio.run(main())
"""

CONNECTS = """
folder = os.path.dirname(control)
while True:
    for name in ("control.sock", "agent.sock"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.setblocking(False)
            try:
                sock.connect(os.path.join(folder, name))
            except OSError:
                pass
"""

PUSHED_STREAMS = """
async def attack(channel):
    stub = ingest_pb2_grpc.IngestServiceStub(channel)
    numbers = iter(range(1, 1 << 30))
    async def opened():
        opening = ingest_pb2.IngestOpen(version_min=1, version_max=1, incarnation=next(numbers), epoch=1, label="idle")
        yield ingest_pb2.IngestRequest(open=opening)
        await asyncio.Event().wait()
    async def ask():
        async for _ in stub.Stream(opened(), metadata=mine):
            pass
    await flood(ask, 16)
lasting(attack)
"""

# First as many traces as it may have in a while, then lists of them all.
LISTS = """
async def attack(channel):
    stub = trace_pb2_grpc.TraceServiceStub(channel)
    events = b'{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1}]}'
    ends = time.monotonic() + float(rest[0])
    async def fill():
        while time.monotonic() < ends and len(kept) < 1000:
            chunk = trace_pb2.ImportChunk(filename="t.json", data=events)
            if await quietly(stub.Import(iter([chunk]), metadata=mine)):
                kept.append(chunk)
            else:
                await asyncio.sleep(0.05)
    kept = []
    await asyncio.gather(*(fill() for _ in range(4)))
    async def ask():
        await stub.ListTraces(trace_pb2.ListTracesRequest(limit=1000), metadata=mine)
    say(f"{len(kept)} traces")
    await flood(ask, 12, 0.0)
lasting(attack)
"""

METRICS = """
untold = threading.Lock()
def ask():
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{rest[0]}/metrics", timeout=60).read()
        except urllib.error.HTTPError:
            if untold.acquire(blocking=False):
                say("refused")
        except OSError:
            pass
for _ in range(4):
    threading.Thread(target=ask).start()
"""


@dataclass(frozen=True)
class Attack:
    """One program. `arguments` may name `{trace}`, one that everybody may read, and `{metrics}`, a port."""

    program: str
    arguments: tuple[str, ...] = ()
    small_disk: bool = False  # it is about the filesystem of the state directory
    prepares: bool = False  # it says a line when it begins

    def command(self, uid: int, directory: Path, **places: object) -> list[str]:
        """To run it as that uid at the daemon whose sockets are in this directory."""
        arguments = [argument.format(**places) for argument in self.arguments]
        return people.command(uid, _AT_ONCE + self.program, directory, *arguments, first=_IMPORTS)


ATTACKS = {
    "1,100 idle calls": Attack(people.IDLE_CALLS, ("1100",)),
    "4 idle imports": Attack(IDLE_IMPORTS),
    "300 `top`s at once": Attack(people.TOPS, ("300", "{trace}")),
    "two XSpaces of 10^6 empty planes": Attack(XSPACES),
    "100 `sql`s that nobody reads": Attack(people.SQLS_THAT_NOBODY_READS, ("100", "{trace}")),
    "health and reflection": Attack(HEALTH_AND_REFLECTION),
    "an import that fills the disk": Attack(WHOLE_DISK, small_disk=True),
    "sparse Kineto files of 32 GiB": Attack(SPARSE_FILE, small_disk=True),
    "29 starts a second": Attack(STARTS),
    "a flood of datagrams": Attack(DATAGRAMS),
    "200 connections, 50 streams each, no token": Attack(UNADMITTED_STREAMS, ("200", "50")),
    "connects to control.sock and agent.sock": Attack(CONNECTS),
    "pushed streams that idle": Attack(PUSHED_STREAMS),
    "lists of 1,000 traces, twelve at once": Attack(LISTS, ("20",), prepares=True),
    "metrics in a loop": Attack(METRICS, ("{metrics}",)),
}
