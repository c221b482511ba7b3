"""A host that never says that its capture is over, by a real relay and a daemon that is anybody's."""

from __future__ import annotations

import asyncio
import itertools
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from profclient.fleet import ends
from profclient.fleet.drive import Drive, FleetOrder, new_id
from profclient.fleet.machine import Fleet, Stand
from profclient.fleet.outcome import Outcome
from profclient.fleet.way import Way
from profproto.v1 import capture_pb2 as pb

SECONDS = 120.0
ORDER = FleetOrder(new_id(), pb.Selector(jobs=["7"]), pb.Options(duration_ns=1_000_000))


class PlayedDaemon(grpc.GenericRpcHandler):
    """Says of one process what daemons say; of the end of its capture what `kind` means.

    `ends`; `silent`: says that it records, and nothing after; `chatty`: says so again and again.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._fleet = pb.Fleet(id=ORDER.id, host=kind)

    def service(self, handler_call_details: Any) -> Any:
        name = handler_call_details.method.rpartition("/")[2]
        if name == "WatchCapture":
            return grpc.unary_stream_rpc_method_handler(self._watch)
        answers = {"EstimateCapture": self._estimate, "StartCapture": self._live, "GetCapture": self._live}
        return grpc.unary_unary_rpc_method_handler(answers[name])

    async def _estimate(self, request: bytes, context: Any) -> bytes:
        return pb.EstimateCaptureResponse(targets=[pb.TargetEstimate(source="sdk")]).SerializeToString()

    async def _live(self, request: bytes, context: Any) -> bytes:
        return self._capture(pb.STATE_RECORDING)

    async def _watch(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        for _ in itertools.count():
            yield self._capture(pb.STATE_STORED if self._kind == "ends" else pb.STATE_RECORDING)
            if self._kind == "silent":
                await asyncio.Event().wait()

    def _capture(self, state: Any) -> bytes:
        target = pb.TargetStatus(state=state, trace="0123456789abc" if state == pb.STATE_STORED else "")
        claimed = pb.Options(duration_ns=1 << 62)
        return pb.Capture(id="c1", fleet=self._fleet, targets=[target], options=claimed).SerializeToString()


@asynccontextmanager
async def played(folder: Path, kind: str) -> AsyncIterator[None]:
    """A daemon's sockets in a folder of this name."""
    (folder / kind).mkdir()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((PlayedDaemon(kind),))
    server.add_insecure_port(f"unix:{folder}/{kind}/profd.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        control.bind(str(folder / kind / "control.sock"))
        control.listen(8)
        control.setblocking(False)
        await server.start()
        tokens = asyncio.create_task(_give_tokens(control))
        try:
            yield
        finally:
            tokens.cancel()
            with suppress(asyncio.CancelledError):
                await tokens
            await server.stop(None)


async def _give_tokens(control: socket.socket) -> None:
    while True:
        other, _ = await asyncio.get_running_loop().sock_accept(control)
        with other:
            other.send(b'{"token": "t", "expires_s": 300}')


async def driven(monkeypatch: pytest.MonkeyPatch, *kinds: str, follow: bool = False) -> Outcome:
    """The capture of such hosts, where none is given more than a moment beyond its window."""
    monkeypatch.setattr(ends, "ENDS_NS", ends.SECOND // 2)
    monkeypatch.setattr(ends, "WINDOW_MAX_NS", ends.SECOND // 2)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pf-", dir="/tmp")))
        for kind in kinds:
            await stack.enter_async_context(played(folder, kind))
        drive = Drive(Way(kinds, f"env PROFD_ADDRESS=unix:{folder}/{{host}}/profd.sock", sys.executable))
        async with asyncio.timeout(SECONDS):
            fleet: Fleet = await (drive.follow(ORDER.id) if follow else drive.record(ORDER))
    return Outcome(ORDER.id, fleet.hosts)


@pytest.mark.parametrize("follow", [False, True], ids=["start", "wait"])
async def test_the_others_are_told_with_the_name_of_one_that_never_ends(monkeypatch, follow):
    outcome = await driven(monkeypatch, "ends", "silent", "chatty", follow=follow)
    assert {host: state.stand for host, state in outcome.hosts.items()} == {
        "ends": Stand.OVER,
        "silent": Stand.LOST,
        "chatty": Stand.LOST,
    }
    assert (outcome.state, outcome.exit_code) == ("partial", 6)
    assert [*outcome.missing] == ["silent", "chatty"]
    assert all("it has not said that the capture is over" in why for why in outcome.missing.values())


async def test_where_no_host_ends_the_command_says_that_it_took_too_long(monkeypatch):
    outcome = await driven(monkeypatch, "silent")
    assert (outcome.state, outcome.exit_code) == ("lost", 124)
