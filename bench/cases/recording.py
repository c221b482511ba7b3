"""`record_function` and its like beside the least that two C functions need, and beside other tools."""

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
    ratio = ours[way] / ours["bare pair"]
    notes = [f"`with` around nothing at all, in C, {_ns(ours['bare with'])}", f"a plain call {_ns(ours['function'])}"]
    if way == "with":
        notes.append(f"one object reused {_ns(ours['with, reused'])}")
    return Row(
        "recording",
        what,
        _ns(ours[way]),
        ", ".join(f"{peer} {_ns(found)}" for peer, found in peers.items()),
        f"{_ns(ours['bare pair'])} (two C functions)",
        ratio=ratio,
        bar=f"<= {bar}x" if bar else "",
        met=ratio <= bar if bar else None,
        note="; ".join([*notes, *missing()]),
    )


def _ns(value: float) -> str:
    return f"{value:.1f} ns" if value < 100 else f"{value:.0f} ns"
