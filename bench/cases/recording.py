"""`record_function` and its like beside two C functions that record, and beside other tools.

The bars were set by a table of prototypes that all record, in which a pair of C functions (METH_O and METH_NOARGS,
name by pointer) took 48.3 ns, 17.5 while off, and the context type 62 and 35 ns. The pair they mean is therefore one
that records: the floor's `record` and `finish`, while armed. Beside it stands the least that two functions can do: two
readings of the clock, and 24 bytes in one array.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.measure import Row, child
from bench.ours.recording import missing

COUNT, ROUNDS, PEER_ROUNDS = 10_000, 101, 3  # starting and stopping torch's profiler takes seconds
PAIR_BAR, WITH_BAR, IDLE_BAR = 1.15, 1.25, 0.75


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    del events
    for recording, state in ((True, "recording"), (False, "idle")):
        ours = _measure(recording, peers=False)
        peers = _measure(recording, peers=True)
        if recording:
            yield _row(ours, peers, "begin + end (range_push, range_pop), recording", "pair", PAIR_BAR)
        bar = WITH_BAR if recording else IDLE_BAR
        yield _row(ours, peers, f"with record_function('x'), {state}", "with", bar)
        yield _row(ours, {}, f"a call decorated with record_function, {state}", "decorator", None)


def _measure(recording: bool, peers: bool) -> dict[str, float]:
    rounds = PEER_ROUNDS if peers else ROUNDS
    arguments = {"count": COUNT, "rounds": rounds, "recording": recording, "peers": peers}
    found: dict[str, float] = child("bench.ours.recording:per_range", arguments)["result"]
    return found


def _row(ours: dict[str, float], peers: dict[str, float], what: str, way: str, bar: float | None) -> Row:
    ratio, least = ours[way] / ours["recording pair"], ours["bare pair"]
    notes = [f"two functions that only read the clock and store {_ns(least)}: {ours[way] / least:.2f}x"]
    notes += [f"`with` around nothing at all, in C, {_ns(ours['bare with'])}", f"a plain call {_ns(ours['function'])}"]
    if way == "with":
        notes.append(f"one object reused {_ns(ours['with, reused'])}")
    return Row(
        "recording",
        what,
        _ns(ours[way]),
        ", ".join(f"{peer} {_ns(found)}" for peer, found in peers.items()),
        f"{_ns(ours['recording pair'])} (two C functions that record)",
        ratio=ratio,
        bar=f"<= {bar}x" if bar else "",
        met=ratio <= bar if bar else None,
        note="; ".join([*notes, *missing()]),
    )


def _ns(value: float) -> str:
    return f"{value:.1f} ns" if value < 100 else f"{value:.0f} ns"
