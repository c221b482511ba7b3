"""Steps that carry several relays: who cannot take part keeps no other from it, and who ends is not the others' end."""

import asyncio
import sys

import pytest
from profclient.errors import UnreachableError
from profclient.fleet import step as steps
from profclient.fleet.link import RelayLink
from profclient.fleet.step import Steps

from tests.support.waiting import eventually

# As srun with a relay on each node: what comes in goes to all, and their lines come out in any order.
STEP = """
import os, sys
from profclient.relay.lines import HERE, OF, TO, Reader, Sorter, Writer
hosts, failing, killed, missing = (word.split(",") for word in sys.argv[1:5])
open(sys.argv[5], "a").write(" ".join(hosts) + "\\n")
for host in set(hosts) & set(failing):
    print(f"srun: error: Task launch for StepId=7.2 failed on node {host}: No route", file=sys.stderr)
if set(hosts) & set(failing + missing):
    sys.exit("srun: error: Only allocated 2 nodes asked for 3")
out = lambda data: os.write(1, data)
out(b"TaskProlog says hello\\n" + b"".join(OF + host.encode() + b" here\\n" for host in [*hosts, "stranger"]))
sorter, readers, writers = Sorter(TO), {}, {}
while data := os.read(0, 65536):
    for name, line in sorter.feed(data):
        writer = writers.setdefault(name, Writer(name))
        for said in readers.setdefault(name, Reader()).feed(line + b"\\n"):
            if said.kind == "hello":
                out(writer.line("hello", 0, b'{"version": 1, "host": "%s"}' % name))
            if said.kind == "token" and name.decode() in killed:
                print(f"srun: error: {name.decode()}: task 1: Killed", file=sys.stderr, flush=True)
            elif said.kind == "token":
                out(writer.line("token", 0, b'{"token": "of %s"}' % name))
"""


class Played:
    """`Steps` of that program; `made` has the hosts of each process that was started."""

    def __init__(self, tmp_path, failing="", killed="", missing="", unfit=None, together=3):
        self._log = tmp_path / "made"
        self._log.touch()
        self._tmp_path = tmp_path

        async def said(hosts):
            return unfit or {}

        words = [failing, killed, missing, str(self._log)]
        self.steps = Steps(
            lambda hosts: [sys.executable, "-c", STEP, ",".join(hosts), *words], {"PATH": "/bin"}, said, together
        )

    @property
    def made(self):
        return self._log.read_text().splitlines()

    async def links(self, *hosts):
        """A conversation with each, or why there is none."""
        return dict(zip(hosts, await asyncio.gather(*map(self._link, hosts), return_exceptions=True), strict=True))

    async def _link(self, host):
        return await RelayLink.opened(await self.steps.seat(host), self._tmp_path / host)


@pytest.fixture
async def played(tmp_path):
    made = []

    def play(**how):
        made.append(Played(tmp_path, **how))
        return made[-1]

    yield play
    for one in made:
        await one.steps.close()


def spoken(links):
    return {name: link.about["host"] if isinstance(link, RelayLink) else str(link) for name, link in links.items()}


async def closed(links):
    await asyncio.gather(*(link.close() for link in links.values() if isinstance(link, RelayLink)))


async def test_hosts_that_ask_together_share_one_process(played):
    one = played()
    links = await one.links("n1", "n2")
    assert spoken(links) == {"n1": "n1", "n2": "n2"}
    assert [await link.token() for link in links.values()] == [("of n1", 60.0), ("of n2", 60.0)]
    await links["n1"].close()
    assert await links["n2"].token() == ("of n2", 60.0)
    await closed(links)
    assert one.made == ["n1 n2"]


async def test_nobody_waits_for_more_hosts_than_there_are(played, monkeypatch):
    """Each command had 50 ms of waiting for the last host, though all had asked."""
    monkeypatch.setattr(steps, "GATHER_SECONDS", 3600.0)
    one = played(together=2)
    links = await asyncio.wait_for(one.links("n1", "n2"), 120)
    assert spoken(links) == {"n1": "n1", "n2": "n2"}
    await closed(links)


async def test_a_node_that_cannot_begin_is_left_out(played):
    one = played(failing="n2")
    links = await one.links("n1", "n2", "n3")
    assert spoken(links) == {"n1": "n1", "n2": "no step could begin there: No route", "n3": "n3"}
    assert one.made == ["n1 n2 n3", "n1 n3"]
    await closed(links)


async def test_a_step_that_names_nobody_is_made_without_those_that_are_down(played):
    one = played(missing="n2", unfit={"n2": "Slurm says that it is down"})
    links = await one.links("n1", "n2")
    assert spoken(links) == {"n1": "n1", "n2": "Slurm says that it is down"}
    await closed(links)


async def test_a_step_that_cannot_be_made_at_all(played):
    one = played(missing="n1")
    links = await one.links("n1", "n2")
    assert all("exit code 1: srun: error: Only allocated 2" in str(link) for link in links.values()), links
    assert one.made == ["n1 n2"]


async def test_a_relay_that_is_killed_ends_its_own_conversation_and_begins_another(played):
    one = played(killed="n1")
    links = await one.links("n1", "n2")
    with pytest.raises(UnreachableError, match="relay has ended: Killed"):
        await links["n1"].token()
    assert await links["n2"].token() == ("of n2", 60.0)
    await links["n1"].close()
    again = await one.links("n1")
    assert spoken(again) == {"n1": "n1"}
    assert one.made == ["n1 n2", "n1"]
    await closed(links)
    await closed(again)


async def test_a_host_that_says_nothing_keeps_the_others_for_a_time_only(played, monkeypatch):
    monkeypatch.setattr(steps, "HERE_SECONDS", 0.5)
    one = played()
    one.steps._command = lambda hosts: [
        sys.executable,
        "-c",
        STEP.replace("[*hosts,", "[hosts[0],"),
        "n1",
        "",
        "",
        "",
        one._log,
    ]
    links = await one.links("n1", "n2")
    assert spoken(links) == {"n1": "n1", "n2": "no relay there for 0.5 s"}
    await closed(links)


async def test_who_goes_while_a_step_is_made_leaves_no_process(played, monkeypatch):
    one = played()
    asking = asyncio.ensure_future(one.steps.seat("n1"))
    await eventually(lambda: one.made)
    asking.cancel()
    await one.steps.close()
    assert all(step._carrier is None for step in one.steps._steps)


async def test_a_relay_that_sends_without_end_is_ended(played, monkeypatch):
    monkeypatch.setattr(steps, "WAITING_BYTES_MAX", 1000)
    seat = await played().steps.seat("n1")
    seat.take(bytes(900))
    seat.take(bytes(900))
    assert [len(await seat.read()), len(await seat.read())] == [900, 0]
    assert "more than" in await seat.why_ended()


async def test_ends_that_a_relay_makes_up_are_looked_at_a_few_times(monkeypatch):
    """Each names 4,096 hosts, which takes longer than to say it: the other relays would hear nothing, and end."""
    looked = []
    monkeypatch.setattr(steps, "hosts_of", lambda nodes: looked.append(nodes) or ["n9"])
    step = await steps.Step.started(["n1", "n2"], [sys.executable, "-c", ENDS], {})
    await step.complete.wait()
    assert looked == ["x[1-4096]"] * (4 * 2)
    assert step.ended.endswith("exit code 7")
    await step.close()


ENDS = """
import sys
for _ in range(50):
    print("srun: error: x[1-4096]: task 0: Killed", file=sys.stderr)
sys.exit(7)
"""
