"""Does what the machine says, on real hosts, and tells it what came of it."""

from __future__ import annotations

import asyncio
import secrets
import signal
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from profproto.v1 import capture_pb2 as pb

from profclient.errors import ClientError, Interrupted, NotFoundError, UnreachableError
from profclient.fleet import clocks, ends, machine, steps
from profclient.fleet.host import Disconnected, Host
from profclient.fleet.messages import sentence
from profclient.fleet.sample import SAMPLE, SAMPLED_ABOVE, spread
from profclient.fleet.way import Way, reachable

LEAD_MIN_NS: Final = 1_000_000_000  # from the last answer of a host to the window
PAUSE_SECONDS: Final = 1.0  # before a broken connection is made again
STORED: Final = pb.STATE_STORED
Work = Callable[[], Awaitable[machine.Event | None]]


@dataclass(frozen=True, slots=True)
class FleetOrder:
    """The recording that is asked of all hosts."""

    id: str
    selector: pb.Selector
    options: pb.Options
    lead_ns: int = 0  # at least so far ahead
    sample: int | None = None  # of the ranks; 0: all; None: all, or a few where there are many


def new_id() -> str:
    """A new id of a fleet: f and twelve hex digits."""
    return "f" + secrets.token_hex(6)


def live(capture: pb.Capture) -> bool:
    """Whether a state may still change."""
    return any(target.state < STORED for target in capture.targets)


def able_ranks(answer: pb.EstimateCaptureResponse) -> list[int]:
    """Of the processes that would be recorded."""
    return sorted({one.target.rank for one in answer.targets if one.source and one.target.HasField("rank")})


class Drive:
    """One capture of many hosts: `record` makes it, `follow` takes it up."""

    def __init__(
        self,
        way: Way,
        changed: Callable[[machine.Fleet], None] = lambda fleet: None,
        prepared: Callable[[machine.Fleet], None] = lambda fleet: None,
    ) -> None:
        """`changed` after each event; `prepared` once, before anything begins."""
        self.way, self._changed, self._prepared = way, changed, prepared
        self._turns = asyncio.Semaphore(way.fanout)
        self._events: asyncio.Queue[machine.Event] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._hosts: dict[str, Host] = {}
        self._answers_ns: list[int] = []  # how long estimates took
        self._reference_ns = 0
        self._stop_asked = self._gone = False
        self._order = FleetOrder("", pb.Selector(), pb.Options())
        self.fleet = machine.Fleet(way.hosts)
        self.boundary_ns: int | None = None
        self.meeting = steps.Meeting(None)  # of all ranks, where steps were asked for
        self._due_ns: dict[str, int] = {}  # monotonic, here: by when the capture of a host that began is over
        self._paces: dict[str, list[tuple[int | None, steps.StepProgress]]] = {}  # of hosts' processes, with ranks
        self.sampled_of = 0  # ranks; 0: all are recorded

    @property
    def clocks(self) -> dict[str, clocks.Clock]:
        """The clocks of the hosts that were reached."""
        return {name: host.clock for name, host in self._hosts.items() if host.clock is not None}

    @property
    def step_times(self) -> list[steps.StepTime]:
        """Of all ranks that number their steps, where some were chosen to be recorded."""
        if not self.sampled_of:
            return []
        chosen = {name: set(state.chosen) for name, state in self.fleet.hosts.items()}
        return [
            steps.StepTime(name, rank, pace.steps.step_ns, rank in chosen[name])
            for name, paces in self._paces.items()
            for rank, pace in paces
            if rank is not None and pace.steps.step_ns > 0
        ]

    async def record(self, order: FleetOrder, *, detach: bool = False) -> machine.Fleet:
        """Record on all hosts, to the last end. Ctrl-C ends it everywhere, a second one leaves it (Interrupted).

        With `detach` until all have begun that will.
        """
        self._order = order
        self.fleet = machine.Fleet(self.way.hosts, self.choose)
        return await self._run(self._all_have_begun if detach else self._all_are_over)

    async def prepare(self, order: FleetOrder) -> dict[str, pb.EstimateCaptureResponse | ClientError]:
        """The estimate of each host, without a recording."""
        self._order = order
        async with reachable(self.way) as self._hosts:
            answers = await asyncio.gather(*(self._estimate_or_error(host) for host in self._hosts.values()))
        return dict(zip(self._hosts, answers, strict=True))

    async def follow(self, fleet_id: str, *, stop: bool = False) -> machine.Fleet:
        """Follow a capture that began earlier until it is over; `stop` ends it."""
        self._order = FleetOrder(fleet_id, pb.Selector(), pb.Options())
        self.fleet = machine.Fleet.resumed(self.way.hosts)
        if stop:
            self.fleet.handle(machine.Stop())
        return await self._run(self._all_are_over, ctrl_c_ends=False)

    def choose(self, ranks: Mapping[str, Sequence[int]]) -> dict[str, list[int]] | None:
        """Whom to record, where that is not everybody. Ranks that were named are all meant."""
        count = self._order.sample
        many = len({rank for there in ranks.values() for rank in there})
        if count is None and many > SAMPLED_ABOVE and not self._order.selector.ranks:
            count = SAMPLE
        if not count or many <= count:
            return None
        self.sampled_of = many
        return spread(ranks, count)

    def _all_are_over(self) -> bool:
        return self.fleet.over

    def _all_have_begun(self) -> bool:
        return all(stand in machine.ENDED or stand is machine.Stand.RECORDING for stand in self.fleet.counts)

    async def _run(self, done: Callable[[], bool], *, ctrl_c_ends: bool = True) -> machine.Fleet:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt, asyncio.current_task(), ctrl_c_ends)
        try:
            async with reachable(self.way) as self._hosts:
                try:
                    await self._until(done)
                finally:
                    for one in self._tasks:
                        one.cancel()
                    await asyncio.gather(*self._tasks, return_exceptions=True)
        except asyncio.CancelledError:
            if not self._gone:
                raise
            raise Interrupted(
                f"capture {self._order.id} goes on; `profctl wait {self._order.id}` waits for it."
            ) from None
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        return self.fleet

    def _interrupt(self, task: asyncio.Task[Any] | None, ends: bool) -> None:
        """The first one ends the capture, where this is its command; otherwise, and the second time, we go away."""
        if task is not None and (self._stop_asked or not ends):
            self._gone = True
            task.cancel()
        elif not self._stop_asked:
            self._stop_asked = True
            self._events.put_nowait(machine.Stop())

    async def _until(self, done: Callable[[], bool]) -> None:
        self._obey(self.fleet.begin())
        self._changed(self.fleet)
        while not done():
            instructions = self.fleet.handle(await self._events.get())
            self._obey(instructions)
            self._changed(self.fleet)

    def _obey(self, instructions: list[machine.Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, machine.Begin):
                self._begin(instruction)
                continue
            self._run_task(instruction.host, partial(self._done, instruction))

    def _run_task(self, host: str, work: Work) -> None:
        task = asyncio.get_running_loop().create_task(self._told(host, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _told(self, host: str, work: Work) -> None:
        """Every ending of the work is an event: a host that nobody hears of would be waited for without end."""
        try:
            event = await work()
        except NotFoundError as error:
            event = self._nothing(host, error)
        except UnreachableError as error:
            event = machine.Broke(host, sentence(str(error)))
        except ClientError as error:
            event = machine.Out(host, sentence(str(error)), error.kind)
        except Exception as error:
            event = machine.Out(host, f"profctl could not go on here: {error!r}", "failure")
        if event is not None:
            self._events.put_nowait(event)

    def _nothing(self, host: str, error: NotFoundError) -> machine.Event:
        """Ranks are on some hosts; of anything else each host that was named has some."""
        if self._order.selector.ranks:
            return machine.Nothing(host, str(error))
        return machine.Out(host, str(error), error.kind)

    async def _done(self, instruction: machine.Instruction) -> machine.Event | None:
        match instruction:
            case machine.Find(name):
                async with self._turns:
                    await self._hosts[name].reach(clock=True)
                return machine.Found(name)
            case machine.Prepare(name):
                async with self._turns:
                    return self._judged(name, await self._estimate(self._hosts[name]))
            case machine.Resume(name, began):
                return await self._resume(name, began)
            case machine.Watch(name):
                return await self._watch(name)
            case machine.End(name):
                with suppress(ClientError):  # whoever follows the capture hears what becomes of it
                    await self._hosts[name].call("StopCapture", pb.CaptureRef(id=self._order.id))
        return None

    async def _estimate(self, host: Host) -> pb.EstimateCaptureResponse:
        begun = time.monotonic_ns()
        options = self._order.options
        steps_too = bool(options.iterations or self._order.sample)  # of a sample: how long those of the others take
        request = pb.EstimateCaptureRequest(selector=self._order.selector, options=options, steps=steps_too)
        answer: pb.EstimateCaptureResponse = await host.call("EstimateCapture", request)
        self._answers_ns.append(time.monotonic_ns() - begun)
        self._paces[host.name] = [_pace(one, begun) for one in answer.targets if one.source]
        return answer

    async def _estimate_or_error(self, host: Host) -> pb.EstimateCaptureResponse | ClientError:
        try:
            async with self._turns:
                await host.reach()
                return await self._estimate(host)
        except ClientError as error:
            return error

    def _judged(self, name: str, answer: pb.EstimateCaptureResponse) -> machine.Prepared:
        unable = [one.target for one in answer.targets if not one.source]
        unable.sort(key=lambda target: target.state != pb.STATE_BUSY)  # the first stands for all where none can
        return machine.Prepared(
            name,
            len(answer.targets) - len(unable),
            [sentence(f"{_who(target)}: {target.message}") for target in unable],
            able_ranks(answer),
            sorted({target.rank for target in unable if target.HasField("rank")}),
            any(target.state == pb.STATE_BUSY for target in unable),
        )

    def _begin(self, instruction: machine.Begin) -> None:
        """One moment for all: far enough ahead for an answer in each turn of hosts, and for the slowest one.

        A slow host takes one place of many in a turn, and not one in each of the others.
        """
        turns = -(-len(instruction.hosts) // self.way.fanout)
        usual_ns = statistics.median_high(self._answers_ns)
        ahead = max(self._order.lead_ns, LEAD_MIN_NS + 2 * ((turns - 1) * usual_ns + max(self._answers_ns)))
        self._reference_ns = clocks.reference_ns(self.clocks)
        self.boundary_ns = clocks.boundary_ns(time.time_ns(), ahead, self._reference_ns)
        self.meeting = self._meeting(instruction.hosts, time.monotonic_ns() + ahead)
        self._prepared(self.fleet)
        for name in instruction.hosts:
            self._run_task(name, partial(self._start, name))

    def _meeting(self, hosts: Sequence[str], by_ns: int) -> steps.Meeting:
        """Where those that are recorded meet. A step that the user has named is that."""
        options = self._order.options
        if not options.iterations:
            return steps.Meeting(None)
        chosen = {name: self.fleet.hosts[name].chosen for name in hosts}
        paces = [pace for name in hosts for rank, pace in self._paces[name] if not chosen[name] or rank in chosen[name]]
        return steps.named(options.begin_step, paces) if options.HasField("begin_step") else steps.meet(paces, by_ns)

    async def _start(self, name: str) -> machine.Event:
        async with self._turns:
            if self.fleet.stopping:
                return machine.Out(name, "stopped before it began", Interrupted.kind)
            return await self._started(self._hosts[name])

    async def _started(self, host: Host) -> machine.Event:
        request = self._request(host)
        capture = await host.call("StartCapture", request)
        self._expect(host, request.options)
        if capture.HasField("fleet"):
            return self._begun(host.name, capture)
        await host.call("StopCapture", pb.CaptureRef(id=capture.id))  # nobody would find it again
        why = "the profd there is older than this profctl, and has no captures of many hosts"
        return machine.Out(host.name, why, ClientError.kind)

    def _request(self, host: Host) -> pb.StartCaptureRequest:
        options = pb.Options()
        options.CopyFrom(self._order.options)
        if self.meeting.step is not None:
            options.begin_step = self.meeting.step
        elif options.iterations:
            options.iterations += steps.AROUND
            options.at_least_ns = steps.AT_LEAST_NS
        if self.meeting.step is None and self.boundary_ns is not None and host.clock is not None:
            options.start_at_ns = clocks.start_ns(self.boundary_ns, host.clock, self._reference_ns)
        selector = pb.Selector()
        selector.CopyFrom(self._order.selector)
        selector.ranks.extend(self.fleet.hosts[host.name].chosen)
        clock = clocks.message(host.clock, self._reference_ns) if host.clock is not None else None
        fleet = pb.Fleet(id=self._order.id, host=host.name, hosts=len(self.way.hosts), found="hosts", clock=clock)
        return pb.StartCaptureRequest(
            request_id=f"fleet:{self._order.id}", selector=selector, options=options, fleet=fleet
        )

    def _begun(self, name: str, capture: pb.Capture) -> machine.Event:
        if capture.fleet.host != name:
            return machine.Out(name, f"it is the host that is named {capture.fleet.host[:100]}, too", "usage")
        return machine.Began(name, capture, live(capture))

    async def _resume(self, name: str, began: bool) -> machine.Event:
        host = self._hosts[name]
        if host.clock is not None:
            await asyncio.sleep(PAUSE_SECONDS)
        async with self._turns:
            await host.reach(clock=True)
            if not began:
                return await self._started(host)
            capture = await host.call("GetCapture", pb.CaptureRef(id=self._order.id))
        self._expect(host, capture.options)  # of one that another command began; our own are kept
        return self._begun(name, capture)

    def _expect(self, host: Host, options: pb.Options) -> None:
        ahead_ns = host.clock.offset_ns if host.clock is not None else 0
        self._due_ns.setdefault(host.name, time.monotonic_ns() + ends.longest_ns(options, time.time_ns() + ahead_ns))

    async def _watch(self, name: str) -> machine.Event:
        """Until its capture is over, or should be: a host that never says so is not waited for without end."""
        left_ns = self._due_ns[name] - time.monotonic_ns()
        try:
            async with asyncio.timeout(max(0.0, left_ns / 1e9)):
                return await self._watched(name)
        except TimeoutError:
            late = f"{ends.ENDS_NS / 1e9:g} s after its window had to end it has not said that the capture is over"
            return machine.Overdue(name, late)

    async def _watched(self, name: str) -> machine.Event:
        async for capture in self._hosts[name].watch(pb.WatchCaptureRequest(id=self._order.id)):
            self._events.put_nowait(machine.Changed(name, capture, live(capture)))
            if not live(capture):
                return machine.Changed(name, capture, False)
        raise Disconnected("profd ended the answer before the capture was over")


def _pace(one: pb.TargetEstimate, asked_ns: int) -> tuple[int | None, steps.StepProgress]:
    rank = one.target.rank if one.target.HasField("rank") else None
    return rank, steps.StepProgress(steps.name(one.target), asked_ns, one.steps, one.HasField("steps"))


def _who(target: pb.TargetStatus) -> str:
    return f"pid {target.pid}" + (f" (rank {target.rank})" if target.HasField("rank") else "")
