"""The gRPC server behind the door to its Unix socket: our services, health and reflection."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from profd.attached.agents.porters import Porters
from profd.errors import BadInput
from profd.host.instance import remove_socket
from profd.kernel import passed
from profd.limits import CALLS_PER_UID_MAX, INGEST_CALLS_PER_UID_MAX, RPC_MESSAGE_BYTES_MAX
from profd.rpc.door import ConnectionCounts, Entrance
from profd.rpc.guard import Guard

# Of one connection: what a user may have, so that who asks for more is told so.
_STREAMS_MAX: Final = CALLS_PER_UID_MAX + INGEST_CALLS_PER_UID_MAX
_PENDING_MAX: Final = 8192  # more than the door lets through while the event loop is busy for some seconds
_FLUSH_SECONDS: Final = 1.0  # for what gRPC has said last
_BACKLOG: Final = 4096
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", RPC_MESSAGE_BYTES_MAX),
    ("grpc.max_metadata_size", 32 * 1024),  # a token of a caller in many groups
    # gRPC takes 64 KiB of a message that nobody asks for yet; with probing it was megabytes, of each call.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", _STREAMS_MAX),
    # Calls that the event loop has not seen yet: gRPC would refuse anybody's beyond a thousand.
    ("grpc.server.max_pending_requests", _PENDING_MAX),
    ("grpc.server.max_pending_requests_hard_limit", _PENDING_MAX),
    # Watches idle for long; a client that vanished without a word is noticed.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)

Add = Callable[[Any, Any], None]


class RpcServer:
    """Serves a set of servicers on one Unix socket."""

    def __init__(
        self,
        path: Path,
        guard: Guard,
        servicers: Mapping[str, tuple[Add, Any]],
        admin_group: str = "",
        porters: Porters | None = None,
    ) -> None:
        """`servicers`: full service name -> (generated add function, servicer).

        The door does not limit members of `admin_group`. `porters` read connections where descriptors may be passed
        over them, and outlive this server.
        """
        self.path = path
        self.guard = guard
        self._servicers = servicers
        self._admin_group = admin_group
        self._porters = porters
        self._names = tuple(servicers)
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # behind a version check
        self._server: grpc.aio.Server | None = None
        self._entrance: Entrance | None = None
        self._private = -1  # O_PATH: gRPC's own socket, which has no name

    async def open(self, permit: Callable[[Path], None]) -> None:
        """Serve, and say so in health. `permit` sets permissions of the socket's file before any client can connect.

        Raises ProfdError and the errors of `permit`, and leaves nothing behind then. A second call makes a lost file
        anew; open connections stay.
        """
        if self._entrance is None:
            self._entrance = await self._started()
        self._entrance.listen(_listener(self.path, permit))

    def set_admin_group(self, group: str) -> None:
        """Members of another group have no limit from now on; calls of members of the former group end."""
        self._admin_group = group
        self.guard.open.end(lambda caller: caller.admin, "profd's admin group was changed")
        if self._entrance is not None:
            self._entrance.set_admin_group(group)

    def keep_members(self, group: int) -> None:
        """Connections and calls end of those who may not connect any more: they have not this group."""
        self.guard.open.end(lambda caller: not caller.may_connect(group), "profd's `socket_group` was changed")
        if self._entrance is not None:
            self._entrance.keep_members(group)

    def connections(self) -> ConnectionCounts:
        """The counts of connections for a scrape."""
        return self._entrance.counts() if self._entrance is not None else ConnectionCounts()

    def look(self) -> int:
        """The number of refused connections since the last call; the log says so."""
        return self._entrance.look() if self._entrance is not None else 0

    async def refuse(self) -> None:
        """Say NOT_SERVING in health for good and start no more work; calls go on."""
        self.guard.draining = True
        await self._health.enter_graceful_shutdown()

    async def close(self, grace_seconds: float) -> None:
        """Accept no new calls; running calls have this long, then they are cancelled."""
        entrance, self._entrance = self._entrance, None
        if entrance is not None:
            entrance.refuse()
        remove_socket(self.path)
        if self._server is not None:
            await self._server.stop(grace_seconds)
        if entrance is not None:
            await asyncio.to_thread(entrance.close, _FLUSH_SECONDS)
        if self._private >= 0:
            os.close(self._private)
            self._private = -1

    async def _started(self) -> Entrance:
        """Start gRPC, and the door to it. `close` cleans up after an error."""
        if self._server is None:
            server = self._built()
            self._private = _bind(server, self.path.with_name("rpc"))
            self._server = server
            starting = asyncio.ensure_future(server.start())
            try:
                await asyncio.shield(starting)
            except BaseException:
                await asyncio.wait({starting})  # gRPC crashes where a server is stopped that has begun to start
                raise
        for service in ("", *self._names):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        return Entrance(f"/proc/self/fd/{self._private}", admin_group=self._admin_group, porters=self._porters)

    def _built(self) -> grpc.aio.Server:
        # Without maximum_concurrent_rpcs, which counts everybody's calls together: the guard admits them.
        server = grpc.aio.server(interceptors=(self.guard,), options=_OPTIONS)
        for add, servicer in self._servicers.values():
            add(servicer, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        # This server listens on the local socket only; one on TCP would leave this out.
        reflection.enable_server_reflection((*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
        return server


def _bind(server: grpc.aio.Server, folder: Path) -> int:
    """Bind gRPC to a socket, then remove its name: only the door can reach it. Raises BadInput.

    gRPC takes no descriptor, so it binds for a moment in a folder that no other user may enter. The name is shorter
    than that of control.sock, which is known to fit into an address.
    """
    file = folder / "s"
    try:
        with contextlib.suppress(FileNotFoundError):  # of a daemon that was killed meanwhile
            file.unlink(missing_ok=True)
            folder.rmdir()
        folder.mkdir(0o700)
        server.add_insecure_port(f"unix:{file}")
        private = os.open(file, os.O_PATH | os.O_CLOEXEC)
        file.unlink()
        folder.rmdir()
    except (OSError, RuntimeError) as error:
        raise BadInput(f"gRPC's own socket {file} cannot be bound: {error}") from error
    return private


def _listener(path: Path, permit: Callable[[Path], None]) -> socket.socket:
    """A listening socket at this path, which must be free: a file of somebody else's stays. Raises BadInput."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        try:
            listener.bind(str(path))
            passed.take_none(listener)
        except OSError as error:
            raise BadInput(f"the socket {path} cannot be made: {error.strerror or error}") from error
        try:
            permit(path)
            listener.listen(_BACKLOG)  # before it, nobody can connect
        except BaseException:
            remove_socket(path)
            raise
    except BaseException:
        listener.close()
        raise
    return listener
