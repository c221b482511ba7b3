"""Sends the chunks of a file from number FROM on as a stream of its own, one a message, and prints what was acked.

Arguments: SOCKET FILE INCARNATION EPOCH LABEL FROM EVENTS
"""

import json
import pathlib
import queue
import socket
import sys
import time

import grpc
from profproto.v1 import ingest_pb2 as pb
from profproto.v1 import ingest_pb2_grpc

SECONDS = 180  # more than the rig waits, which looks at who keeps us waiting
path, file, incarnation, epoch, label, begin, events = sys.argv[1:]
data, chunks = pathlib.Path(file).read_bytes(), []
while data:
    length = int.from_bytes(data[8:12], "little")
    chunks.append(data[:length])
    data = data[length:]
try:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        control.settimeout(SECONDS)
        control.connect(str(pathlib.Path(path).with_name("control.sock")))
        token = json.loads(control.recv(65536))["token"]
except TimeoutError:
    raise SystemExit(f"control.sock said nothing for {SECONDS} s") from None
except (OSError, ValueError) as error:
    print("ready", f"refused UNAVAILABLE {error}", "ok", sep="\n", flush=True)
    raise SystemExit from None
waiting = queue.SimpleQueue()
waiting.put(
    pb.IngestRequest(
        open=pb.IngestOpen(version_min=1, version_max=1, incarnation=int(incarnation), epoch=int(epoch), label=label)
    )
)
channel = grpc.insecure_channel(f"unix:{path}", options=[("grpc.default_authority", "localhost")])
stub = ingest_pb2_grpc.IngestServiceStub(channel)
at = int(begin)
base, finishing = at, False
print("ready", flush=True)
try:
    for reply in stub.Stream(iter(waiting.get, None), metadata=(("profd-token", token),), timeout=SECONDS):
        if reply.finished:
            print("trace", reply.trace, flush=True)
            break
        if reply.acked or at == base:
            print("acked", base + reply.acked, "rejected", *[each.reason for each in reply.rejected], flush=True)
            time.sleep(0.03)
            if base + reply.acked == len(chunks) and not finishing:
                finishing = True
                waiting.put(pb.IngestRequest(finish=pb.IngestFinish(recorded=int(events))))
            elif base + reply.acked == at and at < len(chunks):
                at += 1
                waiting.put(pb.IngestRequest(chunks=pb.IngestChunks(message=at - base, data=chunks[at - 1])))
except grpc.RpcError as error:
    print("refused", error.code().name, error.details(), flush=True)
print("ok", flush=True)
