"""One process that carries the relays of several hosts, as a step of Slurm's does: its lines have addresses.

Hosts that ask at the same time share a process. It is used once all of its relays have said that they are there: a step
ends on all nodes when one cannot begin it, and is then made again without that one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from profclient.errors import ClientError, UnreachableError, UsageError
from profclient.fleet.carrier import Alone, Carrier
from profclient.fleet.hostlist import hosts as hosts_of
from profclient.relay.lines import GONE, HERE, NOISE_BYTES_MAX, OF, TO, Garbled, Sorter
from profclient.text import printable

GATHER_SECONDS: Final = 0.05  # at most, from the first host that asks to the process
HERE_SECONDS: Final = 60.0  # srun gives up a node that does not answer after 20 s
ATTEMPTS_MAX: Final = 3
WAITING_BYTES_MAX: Final = 8 << 20  # of a relay, unread: more than all windows of its connections
_NOISE_BYTES_OF_HOST: Final = 16 << 10
_FAILED: Final = re.compile(
    r"failed on node (\S+?):? (.*)"
)  # srun: error: Task launch for StepId=1.2 failed on node n3: …
_TASK_ENDED: Final = re.compile(r"error: (\S+): tasks? [\d,-]+: (.*)")  # srun: error: n2: task 1: Killed
_ENDS_OF_HOST: Final = 4  # such lines that are looked at: one takes as long as it names hosts, and any relay may say it
_STEP_ENDED: Final = "the step that carried it has ended"


class Seat:
    """A host's share in a step."""

    def __init__(self, step: Step, host: str) -> None:
        self.host, self.here = host, False
        self._step, self._address = step, TO + host.encode() + b" "
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self._waiting = 0
        self._why = ""

    @property
    def remarks(self) -> Sequence[str]:
        """See Carrier: the step's, about whichever host."""
        return self._step.remarks

    def write(self, line: bytes) -> None:
        """See Carrier."""
        if not self._why:
            self._step.write(self._address + line)

    async def drain(self) -> None:
        """See Carrier."""
        if self._why:
            raise ConnectionResetError(self._why)
        await self._step.drain()

    async def read(self) -> bytes:
        """See Carrier."""
        piece = await self._pieces.get()
        self._waiting -= len(piece)
        return piece

    async def why_ended(self) -> str:
        """See Carrier."""
        return self._why

    def give_up(self) -> None:
        """See Carrier: the others go on, and the relay ends where it hears nothing."""
        self.end("it was given up")

    async def leave(self) -> None:
        """See Carrier. The last one ends the step."""
        self.end("it was closed here")
        await self._step.left(self)

    def take(self, untrusted: bytes) -> None:
        """What the relay says."""
        self._waiting += len(untrusted)
        if self._waiting > WAITING_BYTES_MAX:
            self.end("it has sent more than its connections have windows for")
        elif not self._why:
            self._pieces.put_nowait(untrusted)

    def end(self, why: str) -> None:
        """Nothing more comes."""
        if not self._why:
            self._why = why
            self._pieces.put_nowait(b"")


class Step:
    """A process, and a seat for each host."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self.seats = {host: Seat(self, host) for host in hosts}
        self.failed: dict[str, str] = {}  # hosts that the carrier itself named, and why
        self.complete = asyncio.Event()  # all are there, or it has ended
        self.ended = ""
        self._sitting = set(hosts)
        self._ends_left = _ENDS_OF_HOST * len(hosts)
        self._sorter = Sorter(OF, NOISE_BYTES_MAX + len(hosts) * _NOISE_BYTES_OF_HOST)
        self._carrier: Alone | None = None
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def started(cls, hosts: Sequence[str], command: Sequence[str], environ: Mapping[str, str]) -> Step:
        """Raises UnreachableError where the command cannot be run."""
        step = cls(hosts)
        step._carrier = await Alone.started(command, environ, step._remarked)
        step._reading = asyncio.get_running_loop().create_task(step._read(step._carrier))
        return step

    @property
    def remarks(self) -> Sequence[str]:
        """The carrier's."""
        return self._carrier.remarks if self._carrier is not None else ()

    def write(self, line: bytes) -> None:
        """To all hosts: the address says whose it is."""
        if self._carrier is not None:
            self._carrier.write(line)

    async def drain(self) -> None:
        """Until there is room for more."""
        if self._carrier is not None:
            await self._carrier.drain()

    async def left(self, seat: Seat) -> None:
        """After the last one the process ends."""
        self._sitting.discard(seat.host)
        if not self._sitting:
            await self.close()

    async def close(self) -> None:
        """End the process."""
        carrier, self._carrier = self._carrier, None
        if carrier is not None:
            await carrier.leave()
            if self._reading is not None:
                self._reading.cancel()
                await asyncio.gather(self._reading, return_exceptions=True)
            self._over("it was closed here")

    async def _read(self, carrier: Alone) -> None:
        try:
            while data := await carrier.read():
                for address, line in self._sorter.feed(data):
                    self._take(self.seats.get(address.decode("ascii", "replace")), line)
        except Garbled as error:
            carrier.give_up()
            self._over(str(error))
            return
        self._over(f"{_STEP_ENDED}: {await carrier.why_ended()}")

    def _take(self, seat: Seat | None, line: bytes) -> None:
        if seat is None:
            return  # a node that has another name than the one that was asked for
        if line == HERE:
            seat.here = True
            if all(one.here for one in self.seats.values()):
                self.complete.set()
        elif line == GONE:
            seat.end("the relay has ended")
        else:
            seat.take(line + b"\n")

    def _remarked(self, line: str) -> None:
        if match := _FAILED.search(line):
            if match[1] in self.seats:
                self.failed[match[1]] = f"no step could begin there: {printable(match[2])}"
        elif self._ends_left and (match := _TASK_ENDED.search(line)):
            self._ends_left -= 1
            for host in _named(match[1]):
                if host in self.seats:
                    self.seats[host].end(f"the relay has ended: {printable(match[2])}")

    def _over(self, why: str) -> None:
        self.ended = self.ended or why
        for seat in self.seats.values():
            seat.end(why)
        self.complete.set()


class Steps:
    """Of one way: hosts ask for a seat, and those that ask at the same time sit in one step."""

    def __init__(
        self,
        command: Callable[[Sequence[str]], list[str]],
        environ: Mapping[str, str],
        unfit: Callable[[Sequence[str]], Awaitable[dict[str, str]]],
        together: int,
    ) -> None:
        """`command` carries the relays of these hosts; `unfit` says which of them no step can use, and why.

        `together`: as many hosts ask at the same time at most, so that nobody waits for more.
        """
        self._command, self._environ, self._unfit, self._together = command, environ, unfit, together
        self._asking: dict[str, asyncio.Future[Carrier]] = {}
        self._all_ask = asyncio.Event()
        self._openings: set[asyncio.Task[None]] = set()
        self._steps: list[Step] = []

    async def seat(self, host: str) -> Carrier:
        """For one conversation with the host. Raises ClientError."""
        loop = asyncio.get_running_loop()
        if not self._asking:
            self._all_ask.clear()
            task = loop.create_task(self._open())
            self._openings.add(task)
            task.add_done_callback(self._openings.discard)
        asked: asyncio.Future[Carrier] = loop.create_future()
        self._asking[host] = asked
        if len(self._asking) >= self._together:
            self._all_ask.set()
        return await asked

    async def close(self) -> None:
        """End what is left."""
        for task in self._openings:
            task.cancel()
        await asyncio.gather(*self._openings, return_exceptions=True)
        await asyncio.gather(*(step.close() for step in self._steps))

    async def _open(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_ask.wait(), GATHER_SECONDS)
        asking, self._asking = self._asking, {}
        try:
            await self._seated(asking)
        except ClientError as error:
            _refuse(asking, dict.fromkeys(asking, str(error)))
        finally:
            for asked in asking.values():
                asked.cancel()

    async def _seated(self, asking: dict[str, asyncio.Future[Carrier]]) -> None:
        """Let all sit that can. A host that cannot hears of it, and does not keep the others from it."""
        for attempt in range(ATTEMPTS_MAX):
            if not (left := [host for host, asked in asking.items() if not asked.done()]):
                return
            step = await Step.started(left, self._command(left), self._environ)
            self._steps.append(step)
            try:
                await asyncio.wait_for(step.complete.wait(), HERE_SECONDS)
            except TimeoutError:
                step.failed |= {
                    host: f"no relay there for {HERE_SECONDS:g} s" for host in left if not step.seats[host].here
                }
            if not step.ended:
                _refuse(asking, step.failed)
                await self._let_sit(step, asking)
                return
            failed = {host: why for host, why in (step.failed or await self._unfit(left)).items() if host in left}
            _refuse(asking, failed)
            if not failed or attempt + 1 == ATTEMPTS_MAX:
                words = "; ".join(printable(line.strip()) for line in step.remarks if line.strip())
                _refuse(asking, dict.fromkeys(left, f"{step.ended}: {words}" if words else step.ended))
            await step.close()

    async def _let_sit(self, step: Step, asking: dict[str, asyncio.Future[Carrier]]) -> None:
        for host, seat in step.seats.items():
            if asking[host].done():
                await seat.leave()  # refused, or whoever asked has gone
            else:
                asking[host].set_result(seat)


def _refuse(asking: Mapping[str, asyncio.Future[Carrier]], why: Mapping[str, str]) -> None:
    for host, words in why.items():
        if host in asking and not asking[host].done():
            asking[host].set_exception(UnreachableError(words))


def _named(nodes: str) -> list[str]:
    try:
        return hosts_of(nodes)
    except UsageError:
        return []
