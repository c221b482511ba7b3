"""What is told to hosts, and when; the hosts are played, since real ones cannot be made to fail at a given moment."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from profclient.errors import BusyError, NotFoundError, UsageError
from profclient.fleet import drive as drives
from profclient.fleet.clocks import SECOND, Clock
from profclient.fleet.drive import Drive, FleetOrder
from profclient.fleet.host import Disconnected
from profclient.fleet.machine import Fleet, Stand
from profclient.fleet.way import Way
from profproto.v1 import capture_pb2 as pb

ID = "f0123456789ab"
ORDER = FleetOrder(ID, pb.Selector(jobs=["7"]), pb.Options(duration_ns=SECOND))


class PlayedHost:
    """Answers as it is told to; `asked` has what came."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.clock: Clock | None = None
        self.offset_ns = 0
        self.asked: list[tuple[str, Any]] = []
        self.fails: dict[str, list[Exception]] = defaultdict(list)
        self.knows_fleets = True
        self.reached = 0
        self.ranks = range(0)
        self.takes_ns, self.passed = 0, [0]  # to answer, and the time that this adds to

    async def reach(self, *, clock: bool = False) -> None:
        self.reached += 1
        self._fail("reach")
        if clock:
            self.clock = Clock(self.offset_ns, 1000, None, None)

    async def leave(self) -> None: ...

    async def call(self, method: str, request: Any) -> Any:
        self.asked.append((method, request))
        self._fail(method)
        if method == "EstimateCapture":
            self.passed[0] += self.takes_ns
            of_ranks = [
                pb.TargetEstimate(source="sdk", target=pb.TargetStatus(rank=rank), steps=self.steps(rank, request))
                for rank in self.ranks
            ]
            return pb.EstimateCaptureResponse(targets=of_ranks or [pb.TargetEstimate(source="sdk")])
        return self._capture(pb.STATE_ARMED)

    async def watch(self, request: Any) -> AsyncIterator[pb.Capture]:
        self.asked.append(("WatchCapture", request))
        self._fail("WatchCapture")
        yield self._capture(pb.STATE_STORED)

    def steps(self, rank: int, request: Any) -> pb.ProgramSteps | None:
        """Rank 0 has not begun one."""
        return pb.ProgramSteps(begun=min(rank, 1), step_ns=rank * SECOND) if request.steps else None

    def names(self) -> list[str]:
        return [method for method, _ in self.asked]

    def _capture(self, state: Any) -> pb.Capture:
        fleet = pb.Fleet(id=ID, host=self.name) if self.knows_fleets else None
        return pb.Capture(id="c1", fleet=fleet, targets=[pb.TargetStatus(state=state)])

    def _fail(self, what: str) -> None:
        if self.fails[what]:
            raise self.fails[what].pop(0)


@pytest.fixture
def hosts(monkeypatch) -> dict[str, PlayedHost]:
    played = {name: PlayedHost(name) for name in ("a", "b")}

    @asynccontextmanager
    async def reachable(way: Way) -> AsyncIterator[dict[str, PlayedHost]]:
        yield played

    monkeypatch.setattr(drives, "reachable", reachable)
    monkeypatch.setattr(drives, "PAUSE_SECONDS", 0)
    monkeypatch.setattr("profclient.fleet.drive.time.time_ns", lambda: 100 * SECOND + 1)
    return played


async def record(order: FleetOrder = ORDER) -> Fleet:
    async with asyncio.timeout(60):
        return await Drive(Way(("a", "b"), "x {host}")).record(order)


def stands(fleet: Fleet) -> list[Stand]:
    return [state.stand for state in fleet.hosts.values()]


def begins(host: PlayedHost) -> int:
    (request,) = [request for method, request in host.asked if method == "StartCapture"]
    return int(request.options.start_at_ns)


async def test_one_moment_and_one_id(hosts):
    assert stands(await record()) == [Stand.OVER, Stand.OVER]
    assert begins(hosts["a"]) == begins(hosts["b"]) >= 102 * SECOND
    (request,) = [request for method, request in hosts["b"].asked if method == "StartCapture"]
    assert (request.request_id, request.fleet) == (
        f"fleet:{ID}",
        pb.Fleet(id=ID, host="b", hosts=2, found="hosts", clock=pb.HostClock(within_ns=1000)),
    )


async def test_a_dry_run_asks_nobody_for_the_time(hosts):
    drive = Drive(Way(("a", "b"), "x {host}"))
    assert len(await drive.prepare(ORDER)) == 2
    assert drive.clocks == {}
    assert [host.names() for host in hosts.values()] == [["EstimateCapture"]] * 2


@pytest.mark.parametrize(
    ("ranks", "order", "chosen"),
    [
        (range(9), {}, {"a": [0, 2, 4, 6], "b": [10, 12, 14, 16]}),
        (range(8), {}, {"a": [], "b": []}),
        (range(9), {"sample": 0}, {"a": [], "b": []}),
        (range(9), {"sample": 1}, {"a": [0]}),
        (range(9), {"selector": pb.Selector(ranks=range(18))}, {"a": [*range(18)], "b": [*range(18)]}),
    ],
)
async def test_many_ranks_are_sampled_unless_all_are_meant(hosts, ranks, order, chosen):
    hosts["a"].ranks, hosts["b"].ranks = ranks, range(len(ranks), 2 * len(ranks))
    fleet = await record(replace(ORDER, **order))
    started = {
        name: [*request.selector.ranks]
        for name, host in hosts.items()
        for method, request in host.asked
        if method == "StartCapture"
    }
    assert started == chosen
    assert [host for host, state in fleet.hosts.items() if state.stand is Stand.NOTHING] == list(
        set("ab") - set(chosen)
    )


async def test_steps_of_ranks_that_are_not_recorded_are_told_as_they_were_before(hosts):
    hosts["a"].ranks, hosts["b"].ranks = range(3), range(3, 5)
    drive = Drive(Way(("a", "b"), "x {host}"))
    fleet = await drive.record(replace(ORDER, sample=2))
    recorded = [rank for state in fleet.hosts.values() for rank in state.chosen]
    assert len(recorded) == 2
    told = [(one.host, one.rank, one.step_ns, one.recorded) for one in drive.step_times]
    assert told == [("ab"[rank > 2], rank, rank * SECOND, rank in recorded) for rank in range(1, 5)]
    # AND where all are recorded there is nobody to be compared with
    drive = Drive(Way(("a", "b"), "x {host}"))
    await drive.record(replace(ORDER, options=pb.Options(iterations=5), sample=0))
    assert drive.step_times == []


async def test_one_slow_host_is_waited_for_once_and_not_for_each_turn(hosts, monkeypatch):
    """GIVEN hosts that are spoken to one at a time WHEN one takes 50 s to answer THEN the windows begin 103 s later.

    That is twice the 51 s of all, and not twice 50 s for each of ten.
    """
    passed = [0]
    for number in range(10):
        played = hosts[f"h{number}"] = PlayedHost(f"h{number}")
        played.takes_ns, played.passed = SECOND // 9 if number else 50 * SECOND, passed
    del hosts["a"], hosts["b"]
    monkeypatch.setattr("profclient.fleet.drive.time.monotonic_ns", lambda: passed[0])
    async with asyncio.timeout(60):
        await Drive(Way(tuple(hosts), "x {host}", fanout=1)).record(ORDER)
    assert {begins(host) for host in hosts.values()} == {203 * SECOND}


async def test_a_longer_lead_is_kept(hosts):
    await record(FleetOrder(ID, ORDER.selector, ORDER.options, 30 * SECOND))
    assert begins(hosts["a"]) == 131 * SECOND


async def test_a_clock_that_is_off_gets_the_moment_as_it_will_show_it(hosts):
    hosts["b"].offset_ns = -60 * SECOND
    await record()
    assert begins(hosts["b"]) == begins(hosts["a"]) - 60 * SECOND


async def test_nothing_begins_before_all_have_answered(hosts):
    hosts["b"].fails["EstimateCapture"] = [BusyError("held")]
    fleet = await record()
    assert stands(fleet) == [Stand.OVER, Stand.OUT]
    assert (fleet.hosts["b"].why, fleet.hosts["b"].kind) == ("held", "busy")
    assert "StartCapture" not in hosts["b"].names()


async def test_a_host_that_hears_of_it_too_late_says_so(hosts):
    hosts["b"].fails["StartCapture"] = [UsageError("the start time has passed")]
    fleet = await record()
    assert (stands(fleet), fleet.hosts["b"].why) == ([Stand.OVER, Stand.OUT], "the start time has passed")


async def test_a_connection_that_breaks_is_made_again_and_the_same_capture_followed(hosts):
    hosts["b"].fails["WatchCapture"] = [Disconnected("gone")]
    assert stands(await record()) == [Stand.OVER, Stand.OVER]
    assert hosts["b"].names()[-3:] == ["WatchCapture", "GetCapture", "WatchCapture"]


async def test_a_start_whose_answer_is_lost_is_asked_again_by_the_same_id(hosts):
    hosts["b"].fails["StartCapture"] = [Disconnected("gone")]
    assert stands(await record()) == [Stand.OVER, Stand.OVER]
    asked = [request for method, request in hosts["b"].asked if method == "StartCapture"]
    assert len(asked) == 2
    assert asked[0] == asked[1]


async def test_one_that_does_not_come_back_is_lost(hosts):
    hosts["b"].fails["WatchCapture"] = [Disconnected("gone")]
    hosts["b"].fails["GetCapture"] = [Disconnected("gone")] * 9
    fleet = await record()
    assert stands(fleet) == [Stand.OVER, Stand.LOST]
    assert hosts["b"].reached == 3


async def test_a_daemon_that_knows_no_fleets_is_not_left_recording(hosts):
    hosts["b"].knows_fleets = False
    fleet = await record()
    assert (stands(fleet), "older" in fleet.hosts["b"].why) == ([Stand.OVER, Stand.OUT], True)
    assert hosts["b"].names()[-1] == "StopCapture"


async def test_a_bug_of_ours_ends_the_wait_for_its_host(hosts):
    hosts["b"].fails["EstimateCapture"] = [RuntimeError("a bug")]
    fleet = await record()
    assert (stands(fleet), "a bug" in fleet.hosts["b"].why) == ([Stand.OVER, Stand.OUT], True)


@pytest.mark.parametrize(("ranks", "stand"), [([3], Stand.NOTHING), ([], Stand.OUT)])
async def test_none_of_the_ranks_is_no_failure_none_of_the_job_is(hosts, ranks, stand):
    hosts["b"].fails["EstimateCapture"] = [NotFoundError("no process matches")]
    fleet = await record(FleetOrder(ID, pb.Selector(jobs=["7"], ranks=ranks), ORDER.options))
    assert stands(fleet) == [Stand.OVER, stand]
