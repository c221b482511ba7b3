"""The least that a call of grpc.aio costs: one that is empty and answers with the time when its handler ran.

`python -m bench.floors.empty_call SOCKET` serves it; `EmptyCall` is its client.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import grpc

from bench.floors.bare_call import BareCall

_METHOD = "/bench.Floor/Now"
_GRPC, _BARE = "bench.floors.empty_call", "bench.floors.bare_call"


class EmptyCall:
    """A server in a process of its own, and a connection to it. Close it.

    Either end may be a bare one, which shows what gRPC's other end takes of the way.
    """

    def __init__(self, folder: Path, *, bare_client: bool = False, bare_server: bool = False) -> None:
        socket = folder / f"floor-{bare_client:d}{bare_server:d}.sock"
        command = [sys.executable, "-m", _BARE if bare_server else _GRPC, str(socket)]
        self._server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if self._server.stdout is None or self._server.stdout.readline() != "ready\n":
            raise RuntimeError("the floor's server did not start")
        self._call: Callable[[bytes], bytes]
        if bare_client:
            bare = BareCall(socket, _METHOD)
            self._call, self._disconnect = bare, bare.close
        else:
            channel = grpc.insecure_channel(f"unix:{socket}", options=[("grpc.default_authority", "localhost")])
            self._call, self._disconnect = channel.unary_unary(_METHOD, None, None), channel.close

    def way_ms(self) -> float:
        """From the call to the first line of its handler, ms; both on CLOCK_REALTIME."""
        sent_ns = time.time_ns()
        return float(int(self._call(b"")) - sent_ns) / 1e6

    def close(self) -> None:
        """End both."""
        self._disconnect()
        self._server.kill()
        self._server.communicate()


async def _serve(socket: str) -> None:
    async def now(request: bytes, context: object) -> bytes:
        return str(time.time_ns()).encode()

    server = grpc.aio.server()
    handlers = {_METHOD.rpartition("/")[2]: grpc.unary_unary_rpc_method_handler(now)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Floor", handlers),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    print("ready", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    try:
        import uvloop

        uvloop.run(_serve(sys.argv[1]))
    except ImportError:
        asyncio.run(_serve(sys.argv[1]))
