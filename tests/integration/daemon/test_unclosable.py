"""A user whose files cannot be closed, in connections that a daemon of everybody refuses: others attach."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from tests.integration.daemon.test_stuck_exec import BOB, MALLORY, profctl
from tests.integration.daemon.test_work import metrics_of
from tests.support.daemon import running_daemon
from tests.support.fake_agent import FakeAgent, PacketKind
from tests.support.people import being
from tests.support.unclosable import unclosable, why_not
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]

AT_ONCE = 250  # more than are looked at together


async def test_others_attach(tmp_path: Path) -> None:
    with running_daemon("--metrics", "127.0.0.1:0", user=False) as daemon:
        path = daemon.directory / "agent.sock"
        os.kill(daemon.process.pid, signal.SIGSTOP)  # so that all of it lies there
        attack = contextlib.ExitStack()
        try:
            attack.enter_context(unclosable(path, tmp_path / "mount", MALLORY, AT_ONCE))
        finally:
            os.kill(daemon.process.pid, signal.SIGCONT)
        await eventually(lambda: metrics_of(daemon)["profd_connections_held"] > 0)
        with being(BOB):
            fake = FakeAgent(path)
        fake.hello()
        await fake.expect(PacketKind.WELCOME)
        fake.close()
        assert profctl(daemon, BOB, "list")[0] == 0
        await eventually(lambda: "cannot be closed, and is held" in daemon.log and f'"uid": {MALLORY}' in daemon.log)
        attack.close()
        await eventually(lambda: metrics_of(daemon)["profd_connections_held"] == 0)
        # AND it ends as always
        assert daemon.stop() == 0
        assert "Traceback" not in daemon.log
