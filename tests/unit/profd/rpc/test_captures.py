"""The servicer over a manager with fakes, and the words both sides share."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from profd.errors import BadInput, Denied, NotFound
from profd.fairness.rates import Rate
from profd.fairness.shares import Holder, Refused
from profd.limits import STACKS_BYTES_MAX
from profd.model.capture import Reason, Recording, State
from profd.model.frame import Frame
from profd.rpc import translate
from profd.rpc.captures import CaptureServicer
from profd.rpc.telling import Telling
from profd.sources.base import Offer, Plan
from profd.sources.pyspy.stack import ThreadStack
from profd.targets.process import Process
from profd.trust import caller as callers
from profd.trust.caller import Caller
from profproto.v1 import capture_pb2 as pb

from tests.support.captures import LONG, FakeSource, FakeTable, Rig, process
from tests.support.waiting import eventually

ALICE = Caller(51000, 51000, "alice", False, 50)
BOB = Caller(51001, 51001, "bob", False, 51)
ROOT = Caller(0, 0, "root", True, 52)

ALL = -1


async def stacks(process: Process, native: bool) -> list[ThreadStack]:
    if process.id.pid == 101:
        raise Denied("ptrace is refused. Run profd as root.")
    return [ThreadStack(7, "main\udcff", True, native, (Frame("f", "a.py", 3), Frame("g", "a.py", -1)))]


def same_pids(caller: Caller, pids: Sequence[int]) -> list[int]:
    return list(pids)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    processes = [process(100), process(101, rank=0, gpus=(1,)), process(102, uid=51001, user="bob")]
    return Rig(tmp_path, FakeTable(processes))


@pytest.fixture
async def servicer(rig: Rig) -> AsyncIterator[CaptureServicer]:
    async with rig.running() as manager:
        yield CaptureServicer(manager, stacks, same_pids)


@pytest.fixture(autouse=True)
def as_alice() -> None:
    callers.enter(ALICE)


def started(*pids: int, **options: object) -> pb.StartCaptureRequest:
    asked = pb.Options(**{"duration_ns": 1_000_000_000, **options})  # type: ignore[arg-type]  # fields by name
    return pb.StartCaptureRequest(selector=pb.Selector(pids=pids), options=asked)


async def last(servicer: CaptureServicer, capture: str) -> pb.Capture:
    async with asyncio.timeout(LONG):
        states = [state async for state in servicer.WatchCapture(pb.WatchCaptureRequest(id=capture), None)]
    return states[-1]


def test_numbers_are_the_protocols() -> None:
    for ours, theirs in ((State, pb.State), (Reason, pb.Reason)):
        prefix = "STATE_" if ours is State else "REASON_"
        expected = {name.removeprefix(prefix): number for name, number in theirs.items()}
        expected.pop("UNSPECIFIED")
        assert {member.name: int(member) for member in ours if int(member)} == expected


async def test_a_capture_from_start_to_end(rig: Rig, servicer: CaptureServicer) -> None:
    rig.source.planned = Plan(True, unserved={"memory": "no"}, risks=("it may be slow",), deadline_ns=10**12)
    capture = await servicer.StartCapture(started(101, memory=True, sample_hz=5.0), None)
    assert (capture.owner, capture.owner_uid, capture.options.sample_hz) == ("alice", 51000, 5.0)
    assert not capture.HasField("finished_ns")
    assert not capture.options.HasField("start_at_ns")
    session = await rig.source.started(101)
    session.report(State.RECORDING, "bad \udcff byte")
    now = await servicer.GetCapture(pb.CaptureRef(id=capture.id), None)
    assert list(now.targets[0].warnings) == ["it may be slow"]
    assert (now.targets[0].doing, now.targets[0].rank, list(now.targets[0].gpus)) == ("bad ? byte", 0, [1])
    rig.source.finish(101)
    done = await last(servicer, capture.id)
    target = done.targets[0]
    assert (done.state, target.state, list(target.sources)) == (pb.STATE_STORED, pb.STATE_STORED, ["kineto"])
    assert (list(target.not_honoured), list(target.warnings)) == (["memory: no"], [])
    assert (target.events, target.HasField("gpu_events"), target.cost.how) == (10, False, "unknown")
    listed = await servicer.ListCaptures(pb.ListCapturesRequest(), None)
    assert [c.id for c in listed.captures] == [capture.id]


async def test_a_capture_says_of_which_fleet_it_is(servicer: CaptureServicer) -> None:
    assert not (await servicer.StartCapture(started(100), None)).HasField("fleet")
    fleet = pb.Fleet(id="f0123456789ab", host="node1", hosts=2, found="hosts")
    asked = started(101)
    asked.fleet.CopyFrom(fleet)
    assert (await servicer.StartCapture(asked, None)).fleet == fleet
    assert (await servicer.GetCapture(pb.CaptureRef(id=fleet.id), None)).fleet == fleet
    asked.fleet.host = "bad\nname"
    with pytest.raises(BadInput, match="printable"):
        await servicer.StartCapture(asked, None)


async def test_stop_and_retry(rig: Rig, servicer: CaptureServicer) -> None:
    capture = await servicer.StartCapture(started(100), None)
    await rig.source.started(100)
    rig.storing.fail = RuntimeError("a fault")
    await servicer.StopCapture(pb.CaptureRef(), None)
    assert (await last(servicer, capture.id)).targets[0].reason == pb.REASON_STORE_UNAVAILABLE
    rig.storing.fail = None
    await servicer.RetryCapture(pb.CaptureRef(id=capture.id[:6]), None)
    assert (await last(servicer, capture.id)).state == pb.STATE_STORED


async def test_others_see_nothing(servicer: CaptureServicer) -> None:
    capture = await servicer.StartCapture(started(100), None)
    callers.enter(BOB)
    with pytest.raises(NotFound):
        await servicer.GetCapture(pb.CaptureRef(id=capture.id), None)
    with pytest.raises(NotFound):
        await anext(servicer.WatchCapture(pb.WatchCaptureRequest(id=capture.id), None))
    assert not (await servicer.ListCaptures(pb.ListCapturesRequest(), None)).captures
    with pytest.raises(Denied):
        await servicer.StartCapture(started(100), None)


async def test_estimates_touch_nothing(rig: Rig, servicer: CaptureServicer) -> None:
    rig.source.planned = Plan(True, latency_ns=5, events=0, risks=("r",))
    rig.source.offers[101] = Offer(False, "no torch.", "Use torch.")
    asked = pb.EstimateCaptureRequest(selector=pb.Selector(pids=[100, 101, 102]))
    can, cannot, bobs = (await servicer.EstimateCapture(asked, None)).targets
    assert (can.source, can.permission, can.latency_ns, can.events) == ("kineto", "your own process", 5, 0)
    assert (can.HasField("memory_bytes"), list(can.risks), can.target.state) == (False, ["r"], pb.STATE_REQUESTED)
    assert (cannot.target.state, cannot.target.reason) == (pb.STATE_REFUSED, pb.REASON_NO_SOURCE)
    assert bobs.target.reason == pb.REASON_NOT_PERMITTED
    assert rig.source.recorded == []
    assert not (await servicer.ListCaptures(pb.ListCapturesRequest(), None)).captures


async def test_targets_and_their_readiness(rig: Rig, servicer: CaptureServicer) -> None:
    rig.sources.append(FakeSource("pyspy"))
    rig.table.processes |= {
        103: process(103, command="torchrun train.py"),
        104: process(104, ppid=103),
        105: process(105, python=False, cuda=True, command="app"),
        106: process(106),
    }
    async with rig.running() as manager:
        servicer = CaptureServicer(manager, stacks, same_pids)
        await servicer.StartCapture(started(100), None)
        kineto, pyspy = rig.sources
        kineto.offers[101] = Offer(False, "not registered.", "Set KINETO_USE_DAEMON=1.")
        for source in rig.sources:
            source.offers[105] = Offer(False, f"{source.name} cannot.")
        kineto.offers[106] = Offer(False, "torch.profiler runs.", busy=True)
        pyspy.offers[106] = Offer(False, "stopped.")
        seen = {t.pid: t for t in (await servicer.ListTargets(pb.ListTargetsRequest(), None)).targets}
    assert {pid: target.state for pid, target in seen.items()} == {
        100: "recording",
        101: "ready",
        103: "untraceable",
        104: "ready",
        105: "untraceable",
        106: "busy",
    }
    assert seen[105].reason == "kineto: kineto cannot.; pyspy: pyspy cannot."
    assert (list(seen[101].sources), seen[101].fix) == (["pyspy"], "Set KINETO_USE_DAEMON=1.")
    assert "launcher" in seen[103].reason
    assert list(seen[104].sources) == ["kineto", "pyspy"]


async def test_sources_for_other_kinds_of_processes_are_no_reason(rig: Rig) -> None:
    rig.sources.append(FakeSource("sdk"))
    rig.table.processes |= {103: process(103), 104: process(104, python=False, cuda=True, command="app")}
    async with rig.running() as manager:
        kineto, sdk = rig.sources
        kineto.offers[103] = kineto.offers[104] = Offer(False, "not PyTorch", concerns=False)
        sdk.offers[103] = Offer(False, "not attached", "attach it")
        sdk.offers[104] = Offer(False, "not attached", "attach it", concerns=False)
        listed = await CaptureServicer(manager, stacks, same_pids).ListTargets(pb.ListTargetsRequest(), None)
    seen = {target.pid: target for target in listed.targets}
    assert (seen[103].reason, seen[103].fix) == ("sdk: not attached", "attach it")
    assert (seen[104].reason, seen[104].fix) == ("it is neither a Python nor a GPU process", "")


async def test_where(servicer: CaptureServicer) -> None:
    answer = await servicer.Where(pb.WhereRequest(selector=pb.Selector(users=["alice"]), native=True), None)
    found, refused = answer.processes
    assert (found.pid, refused.pid, refused.error) == (100, 101, "ptrace is refused. Run profd as root.")
    thread = found.threads[0]
    assert (thread.name, thread.owns_gil, [f.line for f in thread.frames]) == ("main?", True, [3, 0])


async def test_where_names_what_it_does_not_show(servicer: CaptureServicer) -> None:
    answer = await servicer.Where(pb.WhereRequest(selector=pb.Selector(pids=[100, 102, 999])), None)
    assert [(p.pid, bool(p.threads), p.error) for p in answer.processes] == [
        (100, True, ""),
        (102, False, "pid 102 belongs to bob; you may profile only your own"),
        (999, False, "there is no process with pid 999"),
    ]


class Slow:
    """A look at stacks that ends when the test says so."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.now: Counter[int] = Counter()  # by uid
        self.most: Counter[int] = Counter()

    async def __call__(self, process: Process, native: bool) -> list[ThreadStack]:
        self.now[process.uid] += 1
        self.most |= self.now
        self.most[ALL] = max(self.most[ALL], self.now.total())
        await self.go.wait()
        await asyncio.sleep(0)
        self.now[process.uid] -= 1
        return await stacks(process, native)


async def test_where_of_too_many_names_their_users(tmp_path: Path) -> None:
    """GIVEN a user whose processes say that they are of another's job THEN root is told how to leave them out."""
    liars = [process(1000 + each, uid=51001, user="bob", job="77", python=True) for each in range(256)]
    rig = Rig(tmp_path, FakeTable([process(100, job="77", python=True), *liars]))
    callers.enter(ROOT)
    async with rig.running() as manager:
        with pytest.raises(BadInput, match=r"256 or fewer, such as --user alice \(.* 1 of alice, 256 of bob\)"):
            await CaptureServicer(manager, stacks, same_pids).Where(
                pb.WhereRequest(selector=pb.Selector(jobs=["77"])), None
            )


async def test_where_looks_into_few_at_once_of_a_user_and_of_all(tmp_path: Path) -> None:
    people = (ALICE, BOB, Caller(1002, 1002, "carol", False, 53))
    pids = {who.uid: range(100 * who.uid, 100 * who.uid + 5) for who in people}
    table = FakeTable([process(pid, uid=who.uid, user=who.user) for who in people for pid in pids[who.uid]])
    looking = Slow()
    async with Rig(tmp_path, table).running() as manager:
        servicer = CaptureServicer(manager, looking, same_pids)
        asked = []
        for who in people:
            callers.enter(who)
            request = pb.WhereRequest(selector=pb.Selector(pids=pids[who.uid]))
            asked += [asyncio.ensure_future(servicer.Where(request, None)) for _ in range(3)]
        await eventually(lambda: looking.now.total() >= 4)
        # THEN one user's many calls leave places to another
        assert (looking.now[ALICE.uid], looking.now[BOB.uid]) == (2, 2)
        looking.go.set()
        answers = await asyncio.gather(*asked)
    assert all(len(answer.processes) == 5 and answer.processes[4].threads for answer in answers)
    assert looking.most == {ALICE.uid: 2, BOB.uid: 2, 1002: 2, ALL: 4}


class Told(str):
    """Text that tells which thread makes a message of it."""

    __slots__ = ()
    threads: ClassVar[set[int]] = set()

    def __getitem__(self, part: Any) -> str:
        self.threads.add(threading.get_ident())
        return super().__getitem__(part)


async def test_where_makes_no_messages_on_the_event_loop(rig: Rig) -> None:
    """A hundred thousand frames, which one process may have, took a second, and all users waited."""

    async def deep(process: Process, native: bool) -> list[ThreadStack]:
        return [ThreadStack(7, "main", True, native, (Frame(Told("f"), Told("a.py"), 3),) * 10)]

    async with rig.running() as manager:
        servicer = CaptureServicer(manager, deep, same_pids)
        answer = await servicer.Where(pb.WhereRequest(selector=pb.Selector(pids=[100])), None)
    assert len(answer.processes[0].threads[0].frames) == 10
    assert Told.threads
    assert threading.get_ident() not in Told.threads


async def test_where_holds_no_more_text_than_a_limit(tmp_path: Path) -> None:
    """256 processes of one user could have had gigabytes of it."""
    long = Frame("f" * 1024, "a" * 1024, 1)

    async def deep(process: Process, native: bool) -> list[ThreadStack]:
        return [ThreadStack(7, "main", True, native, (long,) * (STACKS_BYTES_MAX // 2080 - 10))]

    async with Rig(tmp_path, FakeTable([process(pid) for pid in (100, 101)])).running() as manager:
        servicer = CaptureServicer(manager, deep, same_pids)
        answer = await servicer.Where(pb.WhereRequest(selector=pb.Selector(pids=[100, 101])), None)
    assert sorted(bool(one.threads) for one in answer.processes) == [False, True]
    assert [one.error for one in answer.processes if one.error] == [
        "The stacks of these processes exceed 32 MiB: ask for fewer at a time."
    ]


async def test_where_counts_the_processes(tmp_path: Path) -> None:
    async with Rig(tmp_path, FakeTable([process(pid) for pid in range(1000, 1200)])).running() as manager:
        servicer = CaptureServicer(manager, stacks, same_pids)
        many = pb.WhereRequest(selector=pb.Selector(pids=range(1000, 1200)))
        assert len((await servicer.Where(many, None)).processes) == 200
        with pytest.raises(Refused, match=r"one user may have 10 looks at stacks of a process a second \(256 at once"):
            await servicer.Where(many, None)
        few = pb.WhereRequest(selector=pb.Selector(pids=[1000, 1001]))
        assert len((await servicer.Where(few, None)).processes) == 2


async def test_the_switch(servicer: CaptureServicer) -> None:
    with pytest.raises(Denied):
        await servicer.SetEnabled(pb.SetEnabledRequest(enabled=False), None)
    callers.enter(ROOT)
    off = await servicer.SetEnabled(pb.SetEnabledRequest(enabled=False, why="upgrade"), None)
    assert (off.enabled, off.why) == (False, "upgrade (root)")
    assert (await servicer.SetEnabled(pb.SetEnabledRequest(enabled=True), None)).enabled


@pytest.mark.parametrize(
    "selector",
    [
        pb.Selector(pids=[0]),
        pb.Selector(pids=[-5]),
        pb.Selector(pids=[1 << 40]),
        pb.Selector(pids=range(1, 500)),
        pb.Selector(users=["x" * 1000]),
        pb.Selector(jobs=["a\nb"]),
        pb.Selector(),
    ],
)
async def test_bad_selectors(servicer: CaptureServicer, selector: pb.Selector) -> None:
    with pytest.raises(BadInput):
        await servicer.StartCapture(pb.StartCaptureRequest(selector=selector, options=started(1).options), None)


async def test_bad_limits(servicer: CaptureServicer) -> None:
    with pytest.raises(BadInput):
        await servicer.ListCaptures(pb.ListCapturesRequest(limit=-1), None)


async def test_a_watcher_that_leaves_leaves_nothing(rig: Rig) -> None:
    async with rig.running() as manager:
        servicer = CaptureServicer(manager, stacks, same_pids)
        capture = await servicer.StartCapture(started(100), None)
        stream = servicer.WatchCapture(pb.WatchCaptureRequest(id=capture.id), None)
        async with contextlib.aclosing(stream):  # type: ignore[type-var]  # it is a generator
            await anext(stream)
        assert manager._watchers == {}
        await rig.source.started(100)
        rig.source.finish(100, Recording())
        assert (await last(servicer, capture.id)).targets[0].reason == pb.REASON_NO_FILE


def test_text_is_what_protobuf_takes() -> None:
    assert translate.text("a\udc80b") == "a?b"


class TestHowMuchIsTold:
    """A process has news as often as it likes, and its user watches as often as it may; others are served meanwhile."""

    @pytest.fixture
    def waits(self) -> list[float]:
        """Seconds that answers were kept back for."""
        return []

    @pytest.fixture
    async def bounded(self, rig: Rig, waits: list[float]) -> AsyncIterator[CaptureServicer]:
        """Ten processes at once, four of which stand for each message, and ten a second."""

        async def sleep(seconds: float) -> None:
            waits.append(seconds)

        telling = Telling(Rate("told", "processes", 10.0, 10), clock=lambda: 0.0, sleep=sleep)
        async with rig.running() as manager:
            yield CaptureServicer(manager, stacks, same_pids, telling=telling)

    async def test_asked_again_and_again(self, bounded: CaptureServicer, waits: list[float]) -> None:
        capture = (await bounded.StartCapture(started(100), None)).id
        for _ in range(3):
            await bounded.GetCapture(pb.CaptureRef(id=capture), None)
        await bounded.ListCaptures(pb.ListCapturesRequest(), None)
        await bounded.StopCapture(pb.CaptureRef(id=capture), None)
        assert waits == pytest.approx([0.5, 1.0, 1.5, 2.0])

    async def test_watched_by_many(self, bounded: CaptureServicer, waits: list[float]) -> None:
        capture = (await bounded.StartCapture(started(100), None)).id
        async with contextlib.AsyncExitStack() as watched:
            for _ in range(3):
                watch = bounded.WatchCapture(pb.WatchCaptureRequest(id=capture), None)
                stream = await watched.enter_async_context(contextlib.aclosing(watch))  # type: ignore[type-var]
                await anext(stream)
        assert waits == pytest.approx([0.5, 1.0])

    async def test_who_gives_up_owes_nothing(self) -> None:
        telling = Telling(Rate("told", "processes", 10.0, 5), clock=lambda: 0.0)
        assert not await telling.may(ALICE, 1)
        for _ in range(2):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.0):
                    await telling.may(ALICE, 1)
        assert telling._rates.owe(Holder.of(ALICE), 1) == pytest.approx(0.1)

    async def test_others_and_root_are_not_kept(self, bounded: CaptureServicer, waits: list[float]) -> None:
        capture = (await bounded.StartCapture(started(100), None)).id
        for _ in range(2):
            await bounded.GetCapture(pb.CaptureRef(id=capture), None)
        before = list(waits)
        callers.enter(ROOT)
        await bounded.GetCapture(pb.CaptureRef(id=capture), None)
        callers.enter(BOB)
        await bounded.StartCapture(started(102), None)
        assert before
        assert waits == before
