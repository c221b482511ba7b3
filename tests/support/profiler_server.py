"""Profiler servers that behave as a test wants: in this process, or (`python profiler_server.py`) one that dies.

The program prints its port, and ends without a word in the middle of its second window.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
from profproto.profiler import profiler_pb2 as pb

WAIT_SECONDS = 60.0
Snapshot = Callable[["FakeProfiler", int], bytes]  # which one it is, from 1
Profile = Callable[["FakeProfiler", pb.ProfileRequest, grpc.ServicerContext], bytes]


class FakeProfiler:
    """What a server has been asked. `profile` answers one Profile, serialised."""

    def __init__(
        self,
        profile: Profile,
        tpu: bool = False,
        snapshots: Snapshot | None = None,
        stopping: Callable[[], None] = lambda: None,
    ) -> None:
        self.requests: list[pb.ProfileRequest] = []
        self.asked = 0  # Monitor
        self.collecting = threading.Event()
        self.released = threading.Event()  # what `held` waits for
        self._profile = profile
        self._tpu = tpu
        self._snapshots = snapshots  # None: this server knows nothing of continuous profiling
        self._stopping = stopping  # before continuous profiling ends
        self.continuous = False  # it records on and on
        self.taken = 0  # snapshots
        self._sessions: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def window_over(self, request: pb.ProfileRequest) -> bool:
        """Wait for the window's end; True if Terminate ended it."""
        return self._session(request.session_id).wait(request.opts.duration_ms / 1000)

    def _session(self, session_id: str) -> threading.Event:
        with self._lock:
            return self._sessions.setdefault(session_id, threading.Event())

    def handlers(self) -> grpc.GenericRpcHandler:
        methods = {"Monitor": self._monitor, "Profile": self._answer, "Terminate": self._terminate}
        if self._snapshots is not None:
            methods |= {
                "StartContinuousProfiling": self._start_continuous,
                "GetSnapshot": self._snapshot,
                "StopContinuousProfiling": self._stop_continuous,
            }
        return grpc.method_handlers_generic_handler(
            "tensorflow.ProfilerService",
            {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()},
        )

    def _monitor(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.asked += 1
        if not self._tpu:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "unimplemented.")
        return b""

    def _answer(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        asked = pb.ProfileRequest.FromString(request)
        self.requests.append(asked)
        return self._profile(self, asked, context)

    def _start_continuous(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        if self.continuous:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, "A profiling session is already running.")
        self.requests.append(pb.ProfileRequest.FromString(request))
        self.continuous = True
        return b""

    def _snapshot(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        if not self.continuous or self._snapshots is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "No continuous profiling session found.")
        self.taken += 1
        return self._snapshots(self, self.taken)

    def _stop_continuous(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self._stopping()
        self.continuous = False
        return b""

    def _terminate(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self._session(pb.TerminateRequest.FromString(request).session_id).set()
        return b""


def whole(fake: FakeProfiler, request: pb.ProfileRequest, context: grpc.ServicerContext) -> bytes:
    """A window with something in it."""
    fake.window_over(request)
    return response(f"session {request.session_id}".encode())


def empty(fake: FakeProfiler, request: pb.ProfileRequest, context: grpc.ServicerContext) -> bytes:
    """A window in which nothing ran: its planes without events are there all the same."""
    fake.window_over(request)
    return pb.ProfileResponse(empty_trace=True, xspace=b"x" * 9600).SerializeToString()


def busy(fake: FakeProfiler, request: pb.ProfileRequest, context: grpc.ServicerContext) -> bytes:
    """Somebody else's session."""
    context.abort(grpc.StatusCode.INTERNAL, "Another profiling session active.")


def held(fake: FakeProfiler, request: pb.ProfileRequest, context: grpc.ServicerContext) -> bytes:
    """Collects until the test releases it."""
    fake.window_over(request)
    fake.collecting.set()
    fake.released.wait(WAIT_SECONDS)
    return response(b"late")


def garbage(fake: FakeProfiler, request: pb.ProfileRequest, context: grpc.ServicerContext) -> bytes:
    """An answer that is none."""
    return b"\xff\xff\xff"


def response(xspace: bytes) -> bytes:
    """A ProfileResponse, serialised."""
    return pb.ProfileResponse(xspace=xspace).SerializeToString()


@contextlib.contextmanager
def serving(fake: FakeProfiler | None, at: int = 0) -> Iterator[int]:
    """The port of a server with this profiler; None is a gRPC server without one. `at`: the port, 0 for any."""
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    if fake is not None:
        server.add_generic_rpc_handlers((fake.handlers(),))
    port = server.add_insecure_port(f"127.0.0.1:{at}")
    server.start()
    try:
        yield port
    finally:
        if fake is not None:
            fake.released.set()
        server.stop(None).wait(WAIT_SECONDS)


@contextlib.contextmanager
def answering(answer: bytes | None) -> Iterator[int]:
    """The port of a TCP server that says this to whatever it hears and hangs up; None: it accepts and is silent."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        kept: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                kept.append(connection)
                if answer is not None:
                    with contextlib.suppress(OSError):
                        connection.recv(1024)
                        connection.sendall(answer)
                        connection.shutdown(socket.SHUT_RDWR)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(WAIT_SECONDS)
            for connection in kept:
                connection.close()


def _dying(fake: FakeProfiler, request: pb.ProfileRequest, context: grpc.ServicerContext) -> bytes:
    fake.window_over(request)
    if len(fake.requests) > 1:
        os._exit(1)
    return response(b"first")


if __name__ == "__main__":
    with serving(FakeProfiler(_dying)) as own_port:
        print(own_port, flush=True)
        sys.stdin.read()
