"""One attached process: its agent as the daemon knows it, and the arm of the capture that has it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from profd.attached.agents.descriptor import check_untrusted_arena, read_untrusted_recall
from profd.attached.agents.link import PorterLink
from profd.attached.agents.protocol import (
    Hello,
    Hostile,
    Packet,
    PacketKind,
    Status,
    changed_from_untrusted,
    encode,
    number,
    parse_untrusted_packet,
    sentences,
    status_from_untrusted,
    steps_from_untrusted,
    wish_from_untrusted,
)
from profd.kernel.freeing import let_go
from profd.limits import AGENT_RETURN_SECONDS, ARENA_STRINGS_BYTES, RECALL_BYTES_MAX, RECALL_NUMBERS_BYTES_MAX
from profd.model.capture import ProgramSteps
from profd.model.wish import Wish
from profd.targets.process import ProcessId

_numbers: Final = itertools.count(1)  # of questions: an answer that comes too late answers no other
STEPS_WORD: Final = "steps"  # of an agent that answers STEPS and begins at one; earlier ones close the connection
_BROKE: Final = "the process that relayed its connection has ended"


class NotArmed(Exception):
    """The agent did not arm; str() is a sentence. `gone`: its process has closed the connection."""

    def __init__(self, sentence: str, *, gone: bool = False, silent: bool = False) -> None:
        super().__init__(sentence)
        self.gone = gone
        self.silent = silent


class NotRecalled(Exception):
    """The agent did not tell what its flight recorder remembers; str() is a sentence."""


@dataclass(frozen=True, slots=True)
class ArmOrder:
    """The order of a capture to an agent. `options` are the protocol's words."""

    epoch: int
    arena_bytes: int
    options: tuple[str, ...]
    window_ns: int = 0
    iterations: int = 0
    begin_step: int | None = None  # the first of the iterations, as the program numbers its steps
    at_least_ns: int = 0  # that the window lasts, however short the iterations are
    max_overhead: float | None = None


@dataclass(frozen=True, slots=True)
class Armed:
    """The agent records. `fd` is the arena's, for whoever asked to close."""

    fd: int
    first_ns: int  # Unix ns from which ranges are recorded
    not_honoured: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stopped:
    """The agent records no more."""

    reason: str  # stop, window, iterations, overhead, exit, fork
    last_ns: int | None = None


@dataclass(slots=True)
class Arm:
    """One epoch of one agent, from ARM to RELEASE. `news` is set whenever anything below has changed."""

    epoch: int
    arena_bytes: int
    answer: asyncio.Future[Armed]
    news: asyncio.Event = field(default_factory=asyncio.Event)
    status: Status = field(default_factory=Status)
    stopped: Stopped | None = None
    gone: str | None = None  # why the connection ended; "" where the process has closed it
    armed_at: float = 0.0  # of the monotonic clock: when its answer came, or it came back
    told: list[bytes] = field(default_factory=list)  # what is said again to an agent that comes back


@dataclass(frozen=True, slots=True)
class _Recall:
    """A question about collectives, and how long its answer may be."""

    answer: asyncio.Future[bytes]
    bytes_max: int
    wanted: int | None  # no longer one is of use, though it may come


class Owner(Protocol):
    """The holder of the agents, which hears of them."""

    def forget(self, agent: Agent, why: str) -> None:
        """Its connection is over; `why` is empty where the process has closed it."""
        ...

    def disarmed(self, process: ProcessId, epoch: int) -> None:
        """Nothing of this epoch is armed in the process (any more)."""
        ...

    def asked(self, agent: Agent, wish: Wish) -> None:
        """Its program wants to be recorded."""
        ...

    def changed(self, process: ProcessId) -> None:
        """It says something else of itself: it has imported a framework."""
        ...


class Agent:
    """A registered agent. `process` and `uid` are the kernel's word, `hello` is its own.

    Small: hundreds of them idle in one daemon.
    """

    __slots__ = ("_arm", "_asked", "_before", "_link", "_missed", "_owner", "_recalls", "hello", "process", "uid")

    def __init__(self, process: ProcessId, uid: int, hello: Hello, link: PorterLink, owner: Owner) -> None:
        self.process = process
        self.uid = uid
        self.hello = hello
        self._link = link
        self._owner = owner
        self._arm: Arm | None = None
        self._before: Arm | None = None  # the last one: of the steps after it there is more to tell
        self._missed: asyncio.TimerHandle | None = None  # while it is waited for
        self._recalls: dict[int, _Recall] | None = None  # by the number of the question
        self._asked: asyncio.Future[ProgramSteps] | None = None  # for its steps

    @property
    def armed(self) -> bool:
        """A capture has it."""
        return self._arm is not None

    def hung_up(self) -> bool:
        """Whether it has closed its connection, also when nobody has read that yet."""
        return self._link.hung_up()

    def arm(self, order: ArmOrder) -> Arm:
        """Tell it to arm, now; `answer` waits for what it says, `give_up` is for who does not want it any more.

        NotArmed if it cannot be told. One arm at a time: RuntimeError if it is armed.
        """
        if self._arm is not None:
            raise RuntimeError(f"pid {self.process.pid} is armed")
        arm = Arm(order.epoch, order.arena_bytes, asyncio.get_running_loop().create_future())
        self._arm = arm
        if not self._link.send(_arm_packet(order)):
            self._arm = None
            self._owner.disarmed(self.process, order.epoch)
            raise NotArmed("the process takes no packets", gone=True)
        return arm

    async def answer(self, arm: Arm, seconds: float) -> Armed:
        """Its answer. NotArmed if it refuses, goes away or says nothing for so long; it is idle again then."""
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(arm.answer)
        except TimeoutError:
            self.give_up(arm)
            raise NotArmed(f"the process has not answered within {seconds:g} s", silent=True) from None
        except BaseException:
            self.give_up(arm)
            raise

    async def steps(self, seconds: float) -> ProgramSteps | None:
        """How far its program is; None where it cannot say, or says nothing within so many seconds."""
        if STEPS_WORD not in self.hello.can:
            return None
        if self._asked is None:  # whoever asks meanwhile gets the same answer
            self._asked = asyncio.get_running_loop().create_future()
            if not self._link.send(encode(PacketKind.STEPS)):
                self._asked.cancel()
        asked = self._asked
        done, _ = await asyncio.wait({asked}, timeout=seconds)
        if self._asked is asked:
            self._asked = None
        return asked.result() if done and not asked.cancelled() else None

    def give_up(self, arm: Arm) -> None:
        """For an answer that nobody has taken. The agent ends idle, whatever it answers: packets are read in order."""
        if arm.answer.done() and not arm.answer.cancelled() and arm.answer.exception() is None:
            let_go(arm.answer.result().fd)
        arm.answer.cancel()
        if self._arm is arm:
            self.stop()
            self.release()

    def take_up(self, epoch: int) -> Arm:
        """An agent that came back armed: its arm, as if we had asked for it."""
        arm = Arm(epoch, 0, asyncio.get_running_loop().create_future())
        arm.answer.cancel()
        arm.armed_at = time.monotonic()
        self._arm = arm
        return arm

    def stop(self) -> None:
        """Ask it to record no more; `Arm.stopped` tells when it has."""
        if self._arm is not None:
            self._tell(self._arm, encode(PacketKind.STOP, self._arm.epoch))

    def limit(self, drop: str) -> None:
        """Ask it to leave out a kind of events from now on."""
        if self._arm is not None:
            self._tell(self._arm, encode(PacketKind.LIMIT, self._arm.epoch, drop=drop))

    def release(self) -> None:
        """The arena has been drained: the agent is idle again."""
        if self._arm is not None:
            self._link.send(encode(PacketKind.RELEASE, self._arm.epoch))
            if self._before is not None:
                _lost(self._before, "")
            self._before, self._arm = self._arm, None
            if self._missed is not None:  # it comes back with an epoch that nobody knows, and is told to end it
                self.ended("")

    async def recall(self, seconds: float, *, entries: bool, wanted: int | None = None) -> bytes:
        """What the flight recorder of its process remembers, as the process has it: JSON, to be checked.

        Without `entries` only the numbers of the last collectives. Raises NotRecalled where it says why not, goes
        away, says nothing for so long, or more bytes than `wanted`. Several may ask at once; an agent answers one after
        the other.
        """
        waiting = self._recalls = self._recalls or {}
        number = next(_numbers)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        waiting[number] = _Recall(answer, RECALL_BYTES_MAX if entries else RECALL_NUMBERS_BYTES_MAX, wanted)
        try:
            if not self._link.send(encode(PacketKind.RECALL, number, entries=int(entries))):
                raise NotRecalled("the process takes no packets")
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            raise NotRecalled(f"its agent has not answered within {seconds:g} s") from None
        finally:
            waiting.pop(number, None)

    def tell_granted(self, number: int, *, capture: str = "", why: str = "") -> None:
        """What came of a wish of its program: the capture, or why there is none."""
        said = {"capture": capture} if capture else {"why": " ".join(why.split())}
        self._link.send(encode(PacketKind.REQUEST, number, **said))

    def process_ended(self) -> None:
        """The kernel says that the process is gone; its connection may be kept open by a child."""
        if self._missed is not None:
            self.ended("")
        else:
            self._link.finish()  # behind its last words

    def close(self) -> None:
        """Close the connection without a word; whoever waits for the agent hears that it is gone."""
        self._link.close()
        self._stop_waiting()
        self._lose("")

    def comes_back(self, hello: Hello, link: PorterLink) -> bool:
        """Whether this is the agent that was lost, with what it records; it goes on from there, over the new link."""
        if self._missed is None or self._arm is None or (hello.incarnation, hello.armed) != self._returning:
            return False
        self._stop_waiting()
        self.hello = hello
        self._link = link
        link.receiver = self
        return True

    def tell_again(self) -> None:
        """To one that has come back: what it may not have heard."""
        for packet in self._arm.told if self._arm is not None else ():
            self._link.send(packet)

    # --- what the link says ---

    def received(self, raw: bytes, fd: int | None) -> None:
        """One packet of a registered agent. Raises Hostile."""
        with contextlib.ExitStack() as unused:
            if fd is not None:
                unused.callback(let_go, fd)
            packet = parse_untrusted_packet(raw)
            if packet.kind == PacketKind.CHANGED:
                self.hello = changed_from_untrusted(self.hello, packet)
                self._owner.changed(self.process)
                return
            if packet.kind == PacketKind.REQUEST:
                self._owner.asked(self, wish_from_untrusted(packet))
                return
            if packet.kind == PacketKind.RECALLED:
                self._recalled(packet, fd)
                return
            if packet.kind == PacketKind.STEPS:
                if self._asked is not None and not self._asked.done():
                    self._asked.set_result(steps_from_untrusted(packet))
                return
            if packet.kind in (PacketKind.DISARMED, PacketKind.FAILED):
                self._owner.disarmed(self.process, packet.epoch)
            if self._before is not None and packet.epoch == self._before.epoch:
                self._tells_after(self._before, packet)
            arm = self._arm
            if arm is None or packet.epoch != arm.epoch:
                return  # of an epoch that is over
            if packet.kind == PacketKind.ARMED:
                if self._armed(arm, packet, fd):
                    unused.pop_all()
            elif packet.kind == PacketKind.FAILED:
                self._failed(arm, packet)
            elif packet.kind in (PacketKind.STATUS, PacketKind.STOPPED):
                _counted(arm, packet)

    def _recalled(self, packet: Packet, fd: int | None) -> None:
        asked = (self._recalls or {}).get(packet.epoch)
        if asked is None or asked.answer.done():
            return  # nobody waits for it any more
        if fd is None:
            asked.answer.set_exception(NotRecalled(packet.fields.get("why", "") or "its agent does not say why"))
            return
        said = read_untrusted_recall(fd, asked.bytes_max, asked.wanted)
        if isinstance(said, bytes):
            asked.answer.set_result(said)
        else:
            asked.answer.set_exception(NotRecalled(f"its flight recorder said {said} bytes"))

    def _tells_after(self, arm: Arm, packet: Packet) -> None:
        """Of a recording that has been taken over: steps after it."""
        if packet.kind == PacketKind.STATUS and arm.stopped is not None:
            _counted(arm, packet)
            if arm.status.after_over:
                self._before = None

    def lost(self) -> None:
        """Its porter is over. Its recording goes on, and it connects again."""
        arm = self._arm
        if arm is not None and arm.armed_at:
            self._missed = asyncio.get_running_loop().call_later(AGENT_RETURN_SECONDS, self._stays_away)
            return
        self._lose(_BROKE)
        self._owner.forget(self, "")

    def ended(self, why: str) -> None:
        """The connection is over."""
        self._stop_waiting()
        self._lose(why)
        self._owner.forget(self, why)

    def _lose(self, why: str) -> None:
        arm, before = self._arm, self._before
        self._arm = self._before = None
        for asked in (self._recalls or {}).values():
            if not asked.answer.done():
                asked.answer.set_exception(NotRecalled("the process has gone away"))
        if arm is not None:
            _lost(arm, why)
        if before is not None:
            _lost(before, why)

    @property
    def _returning(self) -> tuple[int, int]:
        return self.hello.incarnation, self._arm.epoch if self._arm is not None else 0

    def _tell(self, arm: Arm, packet: bytes) -> None:
        if packet not in arm.told:
            arm.told.append(packet)
        self._link.send(packet)

    def _stays_away(self) -> None:
        self._stop_waiting()
        self._lose(_BROKE)
        self._owner.forget(self, "")

    def _stop_waiting(self) -> None:
        if self._missed is not None:
            self._missed.cancel()
            self._missed = None

    def _armed(self, arm: Arm, packet: Packet, fd: int | None) -> bool:
        """Whether the descriptor was taken."""
        if fd is None:
            raise Hostile("ARMED without an arena")
        check_untrusted_arena(fd, arm.arena_bytes)
        if arm.answer.done():
            return False
        fields = packet.fields
        arm.armed_at = time.monotonic()
        arm.answer.set_result(Armed(fd, number(fields, "first") or 0, sentences(fields, "not_honoured")))
        return True

    def _failed(self, arm: Arm, packet: Packet) -> None:
        self._arm = None
        if not arm.answer.done():
            arm.answer.set_exception(NotArmed(packet.fields.get("why", "") or "it does not say why"))


def _arm_packet(order: ArmOrder) -> bytes:
    fields: dict[str, object] = {
        "arena": order.arena_bytes,
        "strings": min(ARENA_STRINGS_BYTES, order.arena_bytes // 3),
        "options": ",".join(order.options),
        "window": order.window_ns,
        "iterations": order.iterations,
    }
    if order.begin_step is not None:
        fields["begin_step"] = order.begin_step
    if order.at_least_ns:
        fields["at_least"] = order.at_least_ns
    if order.max_overhead is not None:
        fields["max_overhead"] = f"{order.max_overhead:.6f}"
    return encode(PacketKind.ARM, order.epoch, **fields)


def _lost(arm: Arm, why: str) -> None:
    arm.gone = why
    if not arm.answer.done():
        sentence = f"its agent was cut off: {why}" if why else "the process has gone away"
        arm.answer.set_exception(NotArmed(sentence, gone=not why))
        arm.answer.exception()  # seen: whoever asked may have given up
    arm.news.set()


def _counted(arm: Arm, packet: Packet) -> None:
    status = status_from_untrusted(packet)
    # After STOPPED there is only one thing left to tell; the last word may be that there is nothing new.
    after = status.step_ns_after or arm.status.step_ns_after
    later = replace(arm.status, step_ns_after=after, after_over=status.after_over)
    arm.status = status if arm.stopped is None else later
    if packet.kind == PacketKind.STOPPED and arm.stopped is None:
        arm.stopped = Stopped(packet.fields.get("reason", ""), number(packet.fields, "last") or None)
    arm.news.set()
