"""Daemons of many hosts, played by one process: `python -m bench.played_hosts FOLDER NAME …`.

Each host is a folder with the sockets of a profd. Eight ranks are on each, and every capture is armed at once and
stored at the end of its window. What is real is all between `profctl` and these sockets: relays, tokens and gRPC.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import grpc
from profproto.v1 import capture_pb2 as pb

RANKS: Final = 8  # of a host
_SERVICE: Final = "profd.v1.CaptureService"
_BACKLOG: Final = 64


class Hosts:
    """The answers. A token is the number of its host, which so comes with each call."""

    def __init__(self) -> None:
        self._captures: dict[str, pb.Capture] = {}
        self._ends_ns: dict[str, int] = {}

    async def estimate(self, request: bytes, context: Any) -> bytes:
        """Eight processes that could be recorded."""
        del request
        targets = [pb.TargetEstimate(source="sdk", target=one) for one in self._targets(context, pb.STATE_REQUESTED)]
        return bytes(pb.EstimateCaptureResponse(targets=targets).SerializeToString())

    async def start(self, request: bytes, context: Any) -> bytes:
        """Armed now."""
        asked = pb.StartCaptureRequest.FromString(request)
        targets = self._targets(context, pb.STATE_ARMED)
        capture = pb.Capture(id=f"c{asked.fleet.host}", fleet=asked.fleet, targets=targets, created_ns=time.time_ns())
        host = _host(context)
        self._captures[host] = capture
        self._ends_ns[host] = asked.options.start_at_ns + asked.options.duration_ns
        return bytes(capture.SerializeToString())

    async def watch(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        """Now, and once more at the end."""
        del request
        host = _host(context)
        capture = self._captures[host]
        yield capture.SerializeToString()
        await asyncio.sleep(max(0.0, (self._ends_ns[host] - time.time_ns()) / 1e9))
        for target in capture.targets:
            target.state = pb.STATE_STORED
        yield capture.SerializeToString()

    def _targets(self, context: Any, state: Any) -> list[pb.TargetStatus]:
        first = int(_host(context)) * RANKS
        return [pb.TargetStatus(pid=1000 + rank, rank=rank, state=state) for rank in range(first, first + RANKS)]


def _host(context: Any) -> str:
    return dict(context.invocation_metadata())["profd-token"]


async def _serve(folder: Path, names: list[str]) -> None:
    server, hosts = grpc.aio.server(), Hosts()
    handlers = {
        "EstimateCapture": grpc.unary_unary_rpc_method_handler(hosts.estimate),
        "StartCapture": grpc.unary_unary_rpc_method_handler(hosts.start),
        "WatchCapture": grpc.unary_stream_rpc_method_handler(hosts.watch),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
    loop = asyncio.get_running_loop()
    for name in names:
        place = folder / name
        place.mkdir()
        server.add_insecure_port(f"unix:{place / 'profd.sock'}")
        control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.bind(str(place / "control.sock"))
        control.listen(_BACKLOG)
        loop.add_reader(control, _token, control, str(int(name[1:])))
    await server.start()
    print("ready", flush=True)
    await server.wait_for_termination()


def _token(control: socket.socket, host: str) -> None:
    connection, _ = control.accept()
    with connection:
        connection.send(json.dumps({"token": host, "expires_s": 300}).encode())


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2:]))
