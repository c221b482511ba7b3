"""The daemon about itself: whoever asks in a loop, or with many others, takes no thread from anybody else."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from profd.capture.switch import Switch
from profd.host.doctor import Finding
from profd.rpc.host import HostServicer, HostView
from profproto.v1 import host_pb2 as pb

from tests.support.captures import LONG


class Doctor:
    """Looks when it may, and counts its looks."""

    def __init__(self) -> None:
        self.begun = self.most = self._now = 0
        self.may = threading.Event()
        self._lock = threading.Lock()

    def look(self) -> list[Finding]:
        with self._lock:
            self.begun += 1
            self._now += 1
            self.most = max(self.most, self._now)
            number = self.begun
        assert self.may.wait(LONG)
        with self._lock:
            self._now -= 1
        return [Finding("look", "ok", str(number))]


async def test_one_look_at_a_time_for_all_who_ask_and_none_that_began_before(tmp_path: Path) -> None:
    doctor = Doctor()
    servicer = HostServicer(
        HostView("user", tmp_path, [], Switch(tmp_path / "disabled"), lambda: 0, lambda: 0, lambda: 0, doctor.look)
    )

    async def ask() -> str:
        status = await servicer.GetHostStatus(pb.GetHostStatusRequest(), None)
        return str(status.checks[0].detail)

    async with asyncio.timeout(LONG):
        first = asyncio.create_task(ask())
        while not doctor.begun:
            await asyncio.sleep(0)
        others = [asyncio.create_task(ask()) for _ in range(12)]
        await asyncio.sleep(0)
        others.pop().cancel()  # who goes away takes nobody's answer along
        await asyncio.sleep(0)
        doctor.may.set()
        assert await first == "1"
        assert set(await asyncio.gather(*others)) == {"2"}
        assert await ask() == "3"
    assert doctor.most == 1
