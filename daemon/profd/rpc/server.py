"""The gRPC server on the Unix socket: our services, health and reflection."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from profd.errors import BadInput
from profd.instance import clear_socket, remove_socket
from profd.limits import RPC_MESSAGE_BYTES_MAX
from profd.rpc.guard import Guard

_STREAMS_MAX: Final = 1024  # of one connection: more than a user may have, so that who asks for more is told so
_CALL_SECONDS_MAX: Final = 3600.0  # no client waits for longer
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", RPC_MESSAGE_BYTES_MAX),
    ("grpc.max_metadata_size", 32 * 1024),  # a token of a caller in many groups
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", _STREAMS_MAX),
    # Calls that the event loop has not seen yet: gRPC would refuse anybody's beyond a thousand.
    ("grpc.server.max_pending_requests", 8 * _STREAMS_MAX),
    ("grpc.server.max_pending_requests_hard_limit", 8 * _STREAMS_MAX),
    # Watches idle for long; a client that vanished without a word is noticed.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)

Add = Callable[[Any, Any], None]


class RpcServer:
    """Serves a set of servicers on one Unix socket."""

    def __init__(self, path: Path, guard: Guard, servicers: Mapping[str, tuple[Add, Any]]) -> None:
        """`servicers`: full service name -> (generated add function, servicer)."""
        self.path = path
        self.guard = guard
        self._servicers = servicers
        self._names = tuple(servicers)
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # behind a version check
        self._server: grpc.aio.Server | None = None
        self._bound = 0  # times
        self._leaving: dict[grpc.aio.Server, asyncio.Task[None]] = {}  # servers of files that were removed

    async def open(self, permit: Callable[[Path], None]) -> None:
        """Bind, serve, and say so in health. `permit` says on the file who may connect, before it has its name.

        Raises ProfdError, and what `permit` raises; nothing is left of it then. Once more where the file is gone: gRPC
        binds a server before it starts, and never again. Calls of the one before go on; it takes no new ones and is
        let go of with the last.
        """
        server = self._built()
        # A server that stops unlinks the name that it was bound to: it must not be that of the next one. Shorter than
        # that of control.sock, which is known to fit into an address.
        bound = self.path.with_name(f"rpc.{self._bound}")
        self._bound += 1
        _bind(server, bound)
        starting = asyncio.ensure_future(server.start())
        try:
            await asyncio.shield(starting)
            permit(bound)
            _move(bound, self.path)
        except BaseException:
            await asyncio.wait({starting})  # gRPC crashes where a server is stopped that has begun to start
            await server.stop(None)
            bound.unlink(missing_ok=True)
            raise
        before, self._server = self._server, server
        if before is not None:
            self._leave(before)
        for service in ("", *self._names):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)

    async def refuse(self) -> None:
        """Say NOT_SERVING in health for good and start no more work; calls go on."""
        self.guard.draining = True
        await self._health.enter_graceful_shutdown()

    async def close(self, grace_seconds: float) -> None:
        """No new calls; those that run have this long, then they are cancelled."""
        servers = [*self._leaving, *([self._server] if self._server is not None else [])]
        # All at once: the grace is theirs together.
        await asyncio.gather(*(server.stop(grace_seconds) for server in servers))
        await asyncio.gather(*self._leaving.values())
        remove_socket(self.path)

    def _leave(self, server: grpc.aio.Server) -> None:
        """Stop a server when its calls are over."""
        leaving = asyncio.get_running_loop().create_task(server.stop(_CALL_SECONDS_MAX))
        self._leaving[server] = leaving
        leaving.add_done_callback(lambda _done: self._leaving.pop(server))

    def _built(self) -> grpc.aio.Server:
        # Without maximum_concurrent_rpcs, which counts everybody's calls together: the guard admits them.
        server = grpc.aio.server(interceptors=(self.guard,), options=_OPTIONS)
        for add, servicer in self._servicers.values():
            add(servicer, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        # This server listens on the local socket only; one on TCP would leave this out.
        reflection.enable_server_reflection((*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
        return server


def _bind(server: grpc.aio.Server, path: Path) -> None:
    """With a file that nobody but us may connect to. Raises BadInput, Unavailable."""
    clear_socket(path)  # of a daemon that was killed between the two names
    before = os.umask(0o177)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise BadInput(f"the socket {path} cannot be bound: {error}") from error
    finally:
        os.umask(before)


def _move(socket: Path, path: Path) -> None:
    """Give a socket its name. Raises BadInput: what somebody else has put there is left alone."""
    try:
        path.hardlink_to(socket)
        socket.unlink()
    except (FileExistsError, FileNotFoundError) as error:
        raise BadInput(f"the socket {path} cannot be made: {error.strerror}") from error
    except OSError as error:
        raise BadInput(
            f"the socket {path} cannot be made: {error.strerror}. "
            "Its directory must allow hard links; else choose another --socket"
        ) from error
