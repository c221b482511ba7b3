"""The same steps on all ranks: which one all can still meet, and which were recorded by all. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from profproto.v1 import capture_pb2 as pb

SECOND: Final = 1_000_000_000
MEET_NS: Final = 30 * SECOND  # from the first rank that is there to the last: nobody waits longer, armed
EASE: Final = 1.25  # steps may become as much faster than they were
AROUND: Final = 2  # by clock: steps beyond those asked for, one on each side
NUMBER_MAX: Final = 1 << 53  # of a step: at a thousand a second a program takes 285,000 years to it
AT_LEAST_NS: Final = SECOND // 4  # by clock: what ranks may begin apart, where steps are shorter than that


@dataclass(frozen=True, slots=True)
class StepProgress:
    """How far a process was when it was asked; `asked_ns` by the monotonic clock here, before it can have answered."""

    who: str
    asked_ns: int
    steps: pb.ProgramSteps = field(default_factory=pb.ProgramSteps)
    can: bool = True  # begin at a step

    @property
    def unknown(self) -> str:
        """Why it cannot be said when it will be at a step; empty: it can."""
        if not self.can:
            return f"{self.who} cannot begin at a step"
        if min(self.steps.begun, self.steps.running_ns, self.steps.step_ns) < 0 or self.steps.begun > NUMBER_MAX:
            return f"{self.who} numbers its steps as no program does"
        if not self.steps.begun:
            return f"{self.who} does not number its steps (profclient.step())"
        return "" if self.steps.step_ns else f"nobody knows yet how long the steps of {self.who} take"

    def begun_by(self, moment_ns: int) -> int:
        """The most steps that it can have begun by then."""
        passed = moment_ns - self.asked_ns + self.steps.running_ns
        return self.steps.begun + int(EASE * passed / self.steps.step_ns) + 1

    def begins_ns(self, step: int) -> int:
        """When the step begins, should it go on as it did."""
        return self.asked_ns - self.steps.running_ns + (step - self.steps.begun + 1) * self.steps.step_ns


@dataclass(frozen=True, slots=True)
class StepTime:
    """The median time that a rank's steps took before a capture, when nobody was recorded."""

    host: str
    rank: int
    step_ns: int
    recorded: bool  # by the capture: recorded steps take longer, so that they are no measure for the others


@dataclass(frozen=True, slots=True)
class Meeting:
    """The first step of a capture, and `why` it may not come; None: `why` not, and a moment has to do."""

    step: int | None
    why: str = ""
    last_ns: int = 0  # when the last one is there, by the monotonic clock here


def meet(paces: Sequence[StepProgress], by_ns: int) -> Meeting:
    """The first step that no rank can have begun by then, by the monotonic clock here; none if some are far behind."""
    unknown = next((pace.unknown for pace in paces if pace.unknown), "" if paces else "there are no processes")
    if unknown:
        return Meeting(None, unknown)
    step = max(pace.begun_by(by_ns) for pace in paces)
    last = max(paces, key=lambda pace: pace.begins_ns(step))
    last_ns = last.begins_ns(step)
    if last_ns - by_ns > MEET_NS:
        return Meeting(
            None, f"{last.who} is {(last_ns - by_ns) / 1e9:,.0f} s behind the others, as they number their steps"
        )
    return Meeting(step, last_ns=last_ns)


def named(step: int, paces: Sequence[StepProgress]) -> Meeting:
    """The step that the user names; a process that never comes to it waits until it is stopped."""
    for pace in paces:
        if not pace.steps.begun:
            return Meeting(
                step, f"{pace.who} does not number its steps (profclient.step()), and waits until it does or is stopped"
            )
        if pace.steps.begun > step:
            return Meeting(step, f"{pace.who} has begun {pace.steps.begun:,} steps already")
    return Meeting(step)


@dataclass(frozen=True, slots=True)
class Common:
    """Whole steps that all of these processes recorded."""

    count: int
    first: int | None  # the program's number of the first; None: by clock, `count` at least
    asked: int
    unpaired: tuple[str, ...] = ()  # processes without any of them, those that recorded nothing among them

    @property
    def missed(self) -> bool:
        """There are fewer than were asked for."""
        return self.count < self.asked or bool(self.unpaired)


def common(captures: Sequence[pb.Capture], ranks: Iterable[int] = ()) -> Common | None:
    """What all have; None where it was no question of steps, or nothing is stored, or all was of one process.

    `ranks`: others that should have been recorded, of hosts that have no capture or do not answer.
    """
    options = next((capture.options for capture in captures if capture.options.iterations), None)
    targets = [target for capture in captures for target in capture.targets]
    there = [target for target in targets if target.trace]
    if options is None or not there or any(target.state < pb.STATE_STORED for target in there):
        return None
    without = _without(targets, ranks)
    if len(there) + len(without) < 2:
        return None
    if options.HasField("begin_step"):
        found = _by_number(there, options)
    elif options.at_least_ns:
        found = _by_clock(there, options.iterations - AROUND)
    else:
        return None
    return replace(found, unpaired=(*found.unpaired, *without))


def _without(targets: Sequence[pb.TargetStatus], ranks: Iterable[int]) -> list[str]:
    """Ranks that recorded nothing. A host may see another one's, too, and a launcher may have the number of one."""
    there = {name(target) for target in targets if target.trace}
    ended = {
        target.rank
        for target in targets
        if target.HasField("rank") and not target.trace and target.reason != pb.REASON_LAUNCHER
    }
    return [one for one in (f"rank {rank}" for rank in sorted(ended.union(ranks))) if one not in there]


def _by_number(there: Sequence[pb.TargetStatus], options: pb.Options) -> Common:
    asked = range(options.begin_step, options.begin_step + options.iterations)
    found: dict[tuple[str, str], range] = {}
    for target in there:  # a rank's children have its number, and no steps; on another host it is another process
        who = target.host, name(target)
        found[who] = max(found.get(who, range(0)), _whole(target, asked), key=len)
    paired = [steps for steps in found.values() if steps]
    first = max((steps.start for steps in paired), default=asked.start)
    past = min((steps.stop for steps in paired), default=asked.start)
    return Common(max(0, past - first), first, len(asked), tuple(who for (_, who), steps in found.items() if not steps))


def _whole(target: pb.TargetStatus, asked: range) -> range:
    if not target.steps.HasField("first"):
        return range(0)
    first, past = target.steps.first, target.steps.first + target.steps.count
    return range(max(first, asked.start), min(past, asked.stop))


def _by_clock(there: Sequence[pb.TargetStatus], asked: int) -> Common:
    """Within the time that all recorded: the steps at its ends are cut, and how long any was is not known."""
    overlap_ns = min(target.end_ns for target in there) - max(target.start_ns for target in there)
    whole: dict[tuple[str, str], int] = {}
    for target in there:
        who = target.host, name(target)
        whole[who] = max(whole.get(who, 0), _fit(target.steps, overlap_ns))
    paired = [count for count in whole.values() if count]
    return Common(min(paired, default=0), None, asked, tuple(who for (_, who), count in whole.items() if not count))


def _fit(steps: pb.RecordedSteps, overlap_ns: int) -> int:
    return max(0, min(steps.count, overlap_ns // steps.step_ns - 1)) if steps.step_ns else 0


def name(target: pb.TargetStatus) -> str:
    """A process as people know it."""
    return f"rank {target.rank}" if target.HasField("rank") else f"pid {target.pid} of {target.host}"
