"""A host thread and the streams of a device, played by rules that the code under test does not know: traces of it.

program = [Do("load", 300), Launch("gemm", 50), Wait()]      # one step; times in us
events(program, steps=6)                                      # rows of a trace
lasts(program, steps=6, without="load")                       # the truth: ns from the second step to the end
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from profd.events import Kind

from tests.support.stepped_traces import MAIN, US
from tests.support.tables import Event

CALL_US, LATENCY_US, RETURN_US = 4, 3, 2
STREAM = 100  # its track number is that of the stream above this


@dataclass(frozen=True)
class Do:
    """The host works."""

    name: str
    us: int


@dataclass(frozen=True)
class Launch:
    """The host launches work; it takes CALL_US for that."""

    name: str
    us: int
    stream: int = 0
    after: int = -1  # begins when what was last launched on this stream has ended, too


@dataclass(frozen=True)
class Wait:
    """The host stands still until all streams are empty."""


Instruction = Do | Launch | Wait


@dataclass
class Machine:
    """Its clocks in us, and what it did."""

    now: int = 0
    free: dict[int, int] = field(default_factory=dict)  # when each stream is
    events: list[Event] = field(default_factory=list)

    def run(self, instruction: Instruction, without: str) -> None:
        begun = self.now
        if isinstance(instruction, Do):
            self.now += 0 if instruction.name == without else instruction.us
            self._host(instruction.name, begun, Kind.CPU_OP)
        elif isinstance(instruction, Launch):
            self.now += CALL_US
            call = self._host("cudaLaunchKernel", begun, Kind.RUNTIME)
            start = max(begun + LATENCY_US, self.free.get(instruction.stream, 0), self.free.get(instruction.after, 0))
            end = start + (0 if instruction.name == without else instruction.us)
            self.free[instruction.stream] = end
            track = STREAM + instruction.stream
            work = Event(instruction.name, start * US, end * US, Kind.KERNEL, track, fields={"linked": call})
            self.events.append(work)
        elif without != "waits":
            self.now = max([self.now, *self.free.values()]) + RETURN_US
            self._host("cudaDeviceSynchronize", begun, Kind.RUNTIME)

    def _host(self, name: str, begun: int, kind: Kind) -> Event:
        event = Event(name, begun * US, self.now * US, kind, MAIN)
        self.events.append(event)
        return event


def events(program: Sequence[Instruction], steps: int) -> list[Event]:
    """So many steps of it."""
    machine = _played(program, steps, "")[0]
    return machine.events


def lasts(program: Sequence[Instruction], steps: int, without: str = "") -> int:
    """From the end of the first step to that of the last and of what it launched, in ns."""
    machine, first = _played(program, steps, without)
    return (max([machine.now, *machine.free.values()]) - first) * US


def _played(program: Sequence[Instruction], steps: int, without: str) -> tuple[Machine, int]:
    machine, first = Machine(), 0
    for number in range(steps):
        begun, mine = machine.now, len(machine.events)
        for instruction in program:
            # The first step is not measured: it stays as it is.
            machine.run(instruction, without if number else "")
        step = Event(f"ProfilerStep#{number}", begun * US, machine.now * US, Kind.USER_ANNOTATION, MAIN)
        for event in machine.events[mine:]:
            if event.thread == MAIN:
                event.fields["parent"] = step
        machine.events.append(step)
        first = first or machine.now
    return machine, first
