"""An agent that says whatever it likes: others are recorded as if it were not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from profproto.v1 import capture_pb2 as pb

from tests.integration.daemon.test_work import metrics_of
from tests.support.attached import (
    WAIT_SECONDS,
    Captures,
    attached,
    sources,
    values,
    whole,
)
from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.waiting import until

pytestmark = pytest.mark.slow


HOSTILE = """
import os, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from tests.support.fake_agent import FakeAgent, memfd, PacketKind
import asyncio
async def main():
    fake = FakeAgent(Path(sys.argv[3]))
    fake.hello(pid=1, start=1)
    await fake.expect(PacketKind.WELCOME)
    print("ready", flush=True)
    packet = await fake.expect(PacketKind.ARM)
    size = int(packet.fields["arena"])
    fd = memfd(size)
    content = os.urandom(1 << 20)
    for offset in range(0, size, len(content)):
        os.pwrite(fd, content, offset)
    fake.send(PacketKind.ARMED, packet.epoch, fd, first=1)
    fake.send(PacketKind.STATUS, packet.epoch, events=2**62, seconds="1e9" if sys.argv[4:] else "100000.5")
    try:
        while True:
            await fake.receive()
    except ConnectionResetError:
        pass
    sys.stdin.read()
asyncio.run(main())
"""


@pytest.mark.parametrize("worse", [[], ["worse"]], ids=["an arena of noise", "and a bad packet"])
def test_a_hostile_agent_harms_nobody_else(daemon: RunningDaemon, tmp_path: Path, worse: list[str]) -> None:
    root = str(Path(__file__).parents[3])
    captures = Captures(daemon)
    with attached(daemon, tmp_path) as job:
        hostile = subprocess.Popen(
            [sys.executable, "-c", HOSTILE, "", root, str(daemon.socket.with_name("agent.sock")), *worse],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert hostile.stdout is not None
            assert hostile.stdout.readline() == "ready\n"
            until(lambda: "sdk" in sources(daemon, hostile.pid), "it is known under its own pid, whatever it says")
            capture = captures.start(hostile.pid, source="sdk")
            [good] = captures.record(job.pid).targets
            [bad] = captures.ended(capture.id).targets
            assert bad.state in (pb.STATE_PARTIAL, pb.STATE_FAILED), bad.message
            assert bad.message
            assert good.state == pb.STATE_STORED, good.message
            assert whole(values(daemon, good.trace))
            [again] = captures.record(job.pid).targets
            assert again.state == pb.STATE_STORED, again.message
        finally:
            hostile.kill()
            hostile.communicate(timeout=WAIT_SECONDS)
        job.check_results()


def test_what_a_process_says_of_its_time_is_no_more_than_it_can_have_spent(tmp_path: Path) -> None:
    """The sum is of all users' processes: one could make it useless for good."""
    root = str(Path(__file__).parents[3])
    with running_daemon("--metrics", "127.0.0.1:0", environ={"PROFD_SDK_ARENA_BYTES": "24MiB"}) as daemon:
        command = [sys.executable, "-c", HOSTILE, "", root, str(daemon.socket.with_name("agent.sock"))]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as hostile:
            try:
                assert hostile.stdout is not None
                assert hostile.stdout.readline() == "ready\n"
                capture = Captures(daemon).start(hostile.pid, source="sdk")
                Captures(daemon).ended(capture.id)
                spent = metrics_of(daemon)['profd_sdk_record_seconds_total{kind="all"}']
                assert 0 < spent < 100_000
            finally:
                hostile.kill()
