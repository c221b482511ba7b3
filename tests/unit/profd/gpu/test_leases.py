"""Never two holders, never a leak: the table of leases, and a slow obvious model of targets that stop and wake up."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from profd.capture.death import DeathWatch
from profd.gpu.holders import Holder, HolderKind, foreign
from profd.gpu.lease_keeper import LeaseKeeper
from profd.gpu.leases import GpuId, Held, Lease, Leases, Stage
from profd.limits import GPU_FOREIGN_HOLDERS_MAX, GPU_HOLDER_CHARS_MAX, GPU_LEASE_TTL_SECONDS
from profd.targets.process import ProcessId
from profd.targets.table import ProcessTable
from profd.trust.identify import start_ticks

from tests.support.waiting import eventually

PROCESS = ProcessId(4711, 99)
OURS = Holder(HolderKind.PROFD, capture="c1")


class Clock:
    """Goes on when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def table(clock: Clock | None = None) -> Leases:
    numbers = itertools.count(1)
    return Leases(clock or Clock(), lambda: next(numbers))


def test_a_second_holder_is_refused_and_told_who_has_it() -> None:
    leases = table()
    leases.grant(PROCESS, OURS)
    with pytest.raises(Held) as refused:
        leases.grant(PROCESS, Holder(HolderKind.KINETO, capture="c2"))
    assert str(refused.value) == "CUPTI in pid 4711 is held by capture c1"
    assert refused.value.fix == "wait for it: profctl wait c1"
    assert leases.statistics().refused["profd"] == 1


def test_the_end_of_the_holder_alone_frees_nothing() -> None:
    leases = table()
    lease = leases.grant(PROCESS, OURS)
    assert leases.arm(lease)
    leases.end(lease)
    assert not leases.arm(lease)
    with pytest.raises(Held, match="the process has not said that it is disarmed; is it stopped"):
        leases.grant(PROCESS, OURS)
    leases.clear(PROCESS, lease.epoch)
    assert leases.grant(PROCESS, OURS).epoch != lease.epoch


def test_the_word_of_the_target_alone_frees_nothing() -> None:
    leases = table()
    lease = leases.grant(PROCESS, OURS)
    leases.arm(lease)
    leases.clear(PROCESS, lease.epoch)
    assert leases.get(PROCESS) is lease
    leases.end(lease)
    assert leases.get(PROCESS) is None


def test_words_about_another_epoch_mean_nothing() -> None:
    leases = table()
    first = leases.grant(PROCESS, OURS)
    leases.arm(first)
    leases.end(first)
    leases.clear(PROCESS, first.epoch + 1)
    assert leases.get(PROCESS) is first
    leases.clear(PROCESS)
    second = leases.grant(PROCESS, OURS)
    leases.arm(second)
    leases.end(first)
    leases.clear(PROCESS, first.epoch)
    assert leases.get(PROCESS) is second
    assert not second.cleared


def test_a_silent_lease_stays_and_revives() -> None:
    clock = Clock()
    leases = table(clock)
    lease = leases.grant(PROCESS, OURS)
    clock.now += GPU_LEASE_TTL_SECONDS + 1
    with pytest.raises(Held, match="and the process is silent; is it stopped"):
        leases.grant(PROCESS, OURS)
    assert leases.statistics().now == {("process", "silent"): 1}
    assert leases.renew(lease)
    assert leases.statistics().now == {("process", "held"): 1}
    leases.end(lease)
    assert not leases.renew(lease)


def test_ranks_on_one_gpu_are_leases_of_their_own_and_counters_are_the_gpus() -> None:
    leases = table()
    for pid in range(8):
        leases.grant(ProcessId(pid, 1), OURS)
    leases.grant(GpuId("GPU-1"), OURS)
    leases.grant(GpuId("GPU-2"), OURS)
    with pytest.raises(Held, match="the counters of GPU GPU-1 are held by capture c1"):
        leases.grant(GpuId("GPU-1"), Holder(HolderKind.PROFD, capture="c2"))
    assert leases.statistics().now == {("process", "held"): 8, ("gpu", "held"): 2}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("CUPTI for Nsight Systems", HolderKind.NSIGHT),
        ("ncu", HolderKind.NSIGHT),
        ("Kineto", HolderKind.KINETO),
        ("DCGM", HolderKind.DCGM),
        ("profd", HolderKind.PROFD),
        ("", HolderKind.OTHER),
        ("\N{SNOWMAN} tool", HolderKind.OTHER),
    ],
)
def test_names_of_other_tools_are_one_of_a_closed_set(name: str, kind: HolderKind) -> None:
    assert foreign(name).kind is kind
    assert foreign(name).name == name


def test_a_long_name_is_cut() -> None:
    assert len(foreign("x" * 10_000).name) == GPU_HOLDER_CHARS_MAX


def test_what_was_never_armed_is_free_at_once() -> None:
    leases = table()
    leases.end(leases.grant(PROCESS, OURS))
    assert list(leases) == []


# --- by random histories ---


class Target:
    """A process, obviously: packets come in order, are read when it runs, and it is armed or not."""

    def __init__(self) -> None:
        self.packets: list[tuple[str, int]] = []
        self.armed: set[int] = set()
        self.running = True
        self.alive = True

    def read(self) -> list[int]:
        """Obey what has come; the epochs that it says are disarmed."""
        said = []
        while self.running and self.alive and self.packets:
            order, epoch = self.packets.pop(0)
            if order == "arm":
                self.armed.add(epoch)
            else:
                self.armed.discard(epoch)
                said.append(epoch)
        return said


class Histories(RuleBasedStateMachine):
    """Captures come and go on a few processes that stop, wake up and die."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.leases = table(self.clock)
        self.targets: dict[ProcessId, Target] = {}
        self.working: list[Lease] = []
        self.ordered: set[int] = set()

    @initialize(count=st.integers(1, 3))
    def some_processes(self, count: int) -> None:
        self.targets = {ProcessId(pid, 1): Target() for pid in range(count)}

    @rule(pid=st.integers(0, 2))
    def capture(self, pid: int) -> None:
        process = ProcessId(pid, 1)
        target = self.targets.get(process)
        if target is None or not target.alive:
            return
        try:
            lease = self.leases.grant(process, OURS)
        except Held:
            assert self.leases.get(process) is not None
            return
        self.working.append(lease)

    @precondition(lambda self: self.working)
    @rule(at=st.integers(0, 5))
    def arm(self, at: int) -> None:
        lease = self.working[at % len(self.working)]
        assert isinstance(lease.subject, ProcessId)
        if lease.epoch not in self.ordered and self.leases.arm(lease):
            self.ordered.add(lease.epoch)
            self.targets[lease.subject].packets.append(("arm", lease.epoch))

    @precondition(lambda self: self.working)
    @rule(at=st.integers(0, 5))
    def end(self, at: int) -> None:
        lease = self.working.pop(at % len(self.working))
        assert isinstance(lease.subject, ProcessId)
        self.targets[lease.subject].packets.append(("stop", lease.epoch))
        self.leases.end(lease)

    @rule(pid=st.integers(0, 2))
    def run(self, pid: int) -> None:
        process = ProcessId(pid, 1)
        for epoch in self.targets[process].read() if process in self.targets else []:
            self.leases.clear(process, epoch)

    @rule(pid=st.integers(0, 2), running=st.booleans())
    def stop_or_continue(self, pid: int, running: bool) -> None:
        if (target := self.targets.get(ProcessId(pid, 1))) is not None:
            target.running = running

    @rule(pid=st.integers(0, 2))
    def kill(self, pid: int) -> None:
        process = ProcessId(pid, 1)
        target = self.targets.get(process)
        if target is not None:
            target.alive = False
            target.armed.clear()
            self.leases.clear(process)

    @rule(seconds=st.floats(0, 100))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(epoch=st.integers(0, 40), pid=st.integers(0, 2))
    def hostile_word(self, epoch: int, pid: int) -> None:
        """A target may lie about itself; it may not speak of epochs that are none of its own."""
        process = ProcessId(pid, 1)
        if all(lease.subject != process or lease.epoch != epoch for lease in self.leases):
            self.leases.clear(process, epoch)

    @invariant()
    def never_two_holders(self) -> None:
        for target in self.targets.values():
            assert len(target.armed) <= 1

    @invariant()
    def whatever_is_armed_or_will_be_is_leased(self) -> None:
        for process, target in self.targets.items():
            pending = {epoch for order, epoch in target.packets if order == "arm"} if target.alive else set()
            lease = self.leases.get(process)
            assert target.armed | pending <= ({lease.epoch} if lease else set())

    def teardown(self) -> None:
        """When all has ended and every process has run or died, nothing is left."""
        for lease in self.working:
            assert isinstance(lease.subject, ProcessId)
            self.targets[lease.subject].packets.append(("stop", lease.epoch))
            self.leases.end(lease)
        for process, target in self.targets.items():
            target.running = True
            for epoch in target.read():
                self.leases.clear(process, epoch)
        assert list(self.leases) == []


TestHistories = Histories.TestCase


# --- with the kernel's word ---


@pytest.fixture
async def keeper() -> AsyncIterator[LeaseKeeper]:
    keeper = LeaseKeeper(DeathWatch(ProcessTable()))
    yield keeper
    await keeper.close()
    assert [task for task in asyncio.all_tasks() if "_until_ended" in repr(task)] == []


def sleeper() -> tuple[subprocess.Popen[bytes], ProcessId]:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    return child, ProcessId(child.pid, start_ticks(child.pid))


async def free(keeper: LeaseKeeper, process: ProcessId) -> None:
    await eventually(lambda: keeper.of(process) is None)


async def test_a_stopped_process_keeps_its_lease_and_a_killed_one_loses_it(keeper: LeaseKeeper) -> None:
    child, process = sleeper()
    try:
        with keeper.hold(process, OURS) as lease:
            assert keeper.arm(lease)
            os.kill(child.pid, signal.SIGSTOP)
        with pytest.raises(Held, match="is it stopped"):
            keeper.take(process, OURS)
        os.kill(child.pid, signal.SIGCONT)
        with pytest.raises(Held):  # it runs, and has said nothing
            keeper.take(process, OURS)
        child.kill()
        await free(keeper, process)
    finally:
        child.kill()
        child.wait()


async def test_a_process_that_dies_while_its_holder_works_is_free_when_that_is_done(keeper: LeaseKeeper) -> None:
    child, process = sleeper()
    with keeper.hold(process, OURS) as lease:
        keeper.arm(lease)
        child.kill()
        child.wait()
        await eventually(lambda: lease.cleared)
        assert keeper.of(process) is lease
    assert keeper.of(process) is None


async def test_a_process_that_has_ended_before_leaves_nothing(keeper: LeaseKeeper) -> None:
    child, process = sleeper()
    child.kill()
    child.wait()
    lease = keeper.take(process, OURS)
    keeper.arm(lease)
    keeper.end(lease)
    await free(keeper, process)


async def test_other_tools_are_remembered_within_bounds(keeper: LeaseKeeper) -> None:
    for pid in range(GPU_FOREIGN_HOLDERS_MAX + 10):
        keeper.met_foreign(ProcessId(pid, 1), "Nsight Systems")
    assert len(keeper.foreign_holders) == GPU_FOREIGN_HOLDERS_MAX
    last = ProcessId(GPU_FOREIGN_HOLDERS_MAX + 9, 1)
    assert keeper.foreign_holders[last].kind is HolderKind.NSIGHT
    keeper.armed(last)
    assert last not in keeper.foreign_holders
    assert keeper.statistics().refused["nsight"] == GPU_FOREIGN_HOLDERS_MAX + 10


async def test_a_hold_that_fails_is_still_ended(keeper: LeaseKeeper) -> None:
    def fail() -> None:
        with keeper.hold(ProcessId(1, start_ticks(1)), OURS) as lease:
            keeper.arm(lease)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    [lease] = keeper.leases()
    assert lease.stage is Stage.ENDING
    keeper.clear(lease.subject)
    assert keeper.leases() == []


async def test_another_program_in_the_process_has_nothing_of_the_one_before(keeper: LeaseKeeper) -> None:
    process = ProcessId(1, start_ticks(1))
    with keeper.hold(process, OURS) as lease:
        keeper.arm(lease, image=0xAA)
    keeper.greeted(process, 0xAA)  # it is the same one, and has not said that it is disarmed
    assert keeper.of(process) is lease
    keeper.greeted(process, 0xBB)
    assert keeper.of(process) is None
