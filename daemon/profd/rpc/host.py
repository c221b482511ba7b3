"""HostService: the daemon about itself and its host."""

# ruff: noqa: N802, D102 - the names are gRPC's, and host.proto describes the call

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profproto.v1 import host_pb2 as pb
from profproto.v1 import host_pb2_grpc

from profd import __version__
from profd.capture.switch import Switch
from profd.host.doctor import Finding
from profd.sources.base import Source


@dataclass(frozen=True, slots=True)
class HostView:
    """The sources of the status; every call asks the callables."""

    mode: str
    state_dir: Path
    sources: Sequence[Source]
    switch: Switch
    captures_active: Callable[[], int]
    store_bytes: Callable[[], int]
    store_limit_bytes: Callable[[], int]
    checks: Callable[[], list[Finding]]  # may block: run in a thread


class HostServicer(host_pb2_grpc.HostServiceServicer):
    """Answers every user who may connect; no answer names another user's process."""

    def __init__(self, view: HostView) -> None:
        self._view = view
        self._started_ns = time.time_ns()
        self._looking: asyncio.Task[list[Finding]] | None = None
        self._next: asyncio.Task[list[Finding]] | None = None

    async def GetHostStatus(self, request: pb.GetHostStatusRequest, context: Any) -> pb.HostStatus:
        view = self._view
        why = view.switch.why_disabled()
        return pb.HostStatus(
            version=__version__,
            host=socket.gethostname(),
            started_ns=self._started_ns,
            pid=os.getpid(),
            mode=view.mode,
            enabled=why is None,
            disabled_why=why or "",
            state_dir=str(view.state_dir),
            store_bytes=view.store_bytes(),
            store_limit_bytes=view.store_limit_bytes(),
            disk_free_bytes=_free_bytes(view.state_dir),
            captures_active=view.captures_active(),
            sources=[_source(source) for source in view.sources],
            checks=[_check(finding) for finding in await self._checks()],
        )

    async def _checks(self) -> list[Finding]:
        """Of a look that has begun since: one at a time, for all who ask meanwhile. It holds a thread of all users."""
        if self._next is None:
            self._next = asyncio.create_task(self._look_behind(self._looking), name="doctor")
        return await asyncio.shield(self._next)

    async def _look_behind(self, before: asyncio.Task[list[Finding]] | None) -> list[Finding]:
        if before is not None:
            await asyncio.wait({before})
        self._looking, self._next = self._next, None
        return await asyncio.to_thread(self._view.checks)


def _source(source: Source) -> pb.SourceStatus:
    available, detail, processes = source.status()
    return pb.SourceStatus(name=source.name, available=available, detail=detail, processes=processes)


def _check(finding: Finding) -> pb.Check:
    return pb.Check(name=finding.name, verdict=finding.verdict, detail=finding.detail, fix=finding.fix)


def _free_bytes(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize
