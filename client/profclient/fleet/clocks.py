"""One moment for many hosts, whose clocks may differ. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from profproto.v1 import capture_pb2 as pb

SECOND: Final = 1_000_000_000
TOLERANCE_NS: Final = 50_000_000  # of a clock beside the others, beyond what measuring it may be off by


@dataclass(frozen=True, slots=True)
class Clock:
    """A host's clock, seen from here."""

    offset_ns: int  # its Unix time less ours
    uncertainty_ns: int  # of that: half the time that asking took
    error_ns: int | None  # that its kernel allows for; None: not known
    synchronised: bool | None  # whether somebody disciplines it


def reference_ns(clocks: Mapping[str, Clock]) -> int:
    """The lead of most hosts' clocks before ours: the middle of the stretch that most measurements allow.

    The median would be wrong: a busy client reads answers late, and errs about most hosts in the same direction.
    """
    ends = sorted(
        edge
        for clock in clocks.values()
        for edge in ((clock.offset_ns - clock.uncertainty_ns, 0), (clock.offset_ns + clock.uncertainty_ns, 1))
    )
    open_now = most = 0
    best = (0, 0)
    for (at, closes), (following, _) in pairwise(ends):
        open_now += -1 if closes else 1
        if open_now > most:
            most, best = open_now, (at, following)
    return sum(best) // 2


def apart_ns(clock: Clock, reference: int) -> int:
    """The lead of a clock before the others; 0 where it may be an error of the measurement."""
    ahead = clock.offset_ns - reference
    return ahead if abs(ahead) > clock.uncertainty_ns + TOLERANCE_NS else 0


def boundary_ns(now_ns: int, ahead_ns: int, reference: int) -> int:
    """The first whole second, by the hosts' clocks, that is at least so far ahead."""
    earliest = now_ns + reference + ahead_ns
    return -(-earliest // SECOND) * SECOND


def start_ns(boundary: int, clock: Clock, reference: int) -> int:
    """The boundary as this host's clock will show it: a clock that is off by more than can be measured is followed."""
    return boundary + apart_ns(clock, reference)


def boundary_of(captures: Iterable[pb.Capture]) -> int | None:
    """The boundary that these hosts were told, by most hosts' clocks; None where they begin by something else."""
    for capture in captures:
        if capture.options.HasField("start_at_ns"):
            return capture.options.start_at_ns - _moved_ns(capture.fleet.clock)
    return None


def _moved_ns(told: pb.HostClock) -> int:
    return told.ahead_ns if abs(told.ahead_ns) > told.within_ns + TOLERANCE_NS else 0


def message(clock: Clock, reference: int) -> pb.HostClock:
    """What the host's traces will say of its clock."""
    told = pb.HostClock(ahead_ns=clock.offset_ns - reference, within_ns=clock.uncertainty_ns, error_ns=clock.error_ns)
    if clock.synchronised is not None:
        told.synchronised = clock.synchronised
    return told
