"""Whatever an agent sends: the daemon goes on, keeps no descriptor, and serves the next one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from profd.attached.agents.agent import Arm, Armed, ArmOrder, NotArmed
from profd.attached.agents.protocol import PacketKind, encode
from profd.attached.agents.registry import AgentRegistry
from profd.attached.agents.server import AgentServer
from profd.targets.process import ProcessId
from profd.trust.identify import start_ticks

from tests.support.descriptors import nothing_left_open
from tests.support.fake_agent import FakeAgent, MiB, arm_agent, memfd
from tests.support.waiting import eventually

ME = ProcessId(os.getpid(), start_ticks(os.getpid()))
EPOCH = 7

values = st.sampled_from(["", "0", "1", "-1", "7", "ff", "9" * 40, "1-1", "a=b", "\x1b[0m", "stop", "0.5", "é" * 300])
keys = st.sampled_from(
    [
        "versions",
        "incarnation",
        "rank",
        "can",
        "armed",
        "first",
        "events",
        "seconds",
        "seconds.ranges",
        "steps",
        "reason",
        "why",
    ]
)
bodies = st.dictionaries(keys, values, max_size=6).map(lambda d: "".join(f"{k}={v}\n" for k, v in d.items()).encode())
packets = st.one_of(
    st.binary(max_size=64),
    st.builds(
        lambda kind, epoch, body: struct.pack("<IHHQ", 0x31474150, kind, 0, epoch) + body,
        st.integers(0, 14),
        st.sampled_from([0, EPOCH, EPOCH + 1, 2**64 - 1]),
        bodies,
    ),
    st.sampled_from(PacketKind).map(lambda kind: encode(kind, EPOCH, first=1, events=3, reason="stop")),
)
descriptors = st.sampled_from(["none", "none", "arena", "unsealed", "pipe", "two"])


def _open(kind: str) -> list[int]:
    match kind:
        case "arena":
            return [memfd(MiB)]
        case "unsealed":
            return [memfd(MiB, 0)]
        case "pipe":
            return list(os.pipe())  # more than one, and no arenas
        case "two":
            return [memfd(MiB), memfd(MiB)]
        case _:
            return []


@given(st.booleans(), st.lists(st.tuples(packets, descriptors), min_size=1, max_size=8))
def test_any_conversation(greets: bool, said: list[tuple[bytes, str]]) -> None:
    with nothing_left_open():
        asyncio.run(_converse(greets, said))


async def _converse(greets: bool, said: list[tuple[bytes, str]]) -> None:
    failures: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context))
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = Path(name) / "agent.sock"
        listener.bind(str(path))
        listener.listen(8)
        registry = AgentRegistry()
        server = AgentServer(listener, registry)
        server.open()
        fake = FakeAgent(path)
        arming = await _greeted(fake, registry) if greets else None
        for packet, kind in said:
            fds = _open(kind)
            with contextlib.suppress(OSError):
                fake.send_raw(packet or b"\0", *fds)
            for fd in fds:
                os.close(fd)
            await asyncio.sleep(0)
        # Whatever has become of that one, the next is served.
        fake.close()
        second = FakeAgent(path)
        second.hello(incarnation="bb")
        assert (await second.receive()).kind in (PacketKind.WELCOME, PacketKind.REFUSED)
        second.close()
        server.close()
        await eventually(lambda: not registry._identifying)  # connections close behind that
        if arming is not None:
            arming.cancel()
            with contextlib.suppress(NotArmed, asyncio.CancelledError):
                os.close((await arming)[0].fd)
        assert not failures, failures


async def _greeted(fake: FakeAgent, registry: AgentRegistry) -> asyncio.Task[tuple[Armed, Arm]]:
    fake.hello()
    await fake.expect(PacketKind.WELCOME)
    agent = registry.get(ME)
    assert agent is not None
    arming = asyncio.create_task(arm_agent(agent, ArmOrder(EPOCH, MiB, ("ranges",)), 60.0))
    await fake.expect(PacketKind.ARM)
    return arming
