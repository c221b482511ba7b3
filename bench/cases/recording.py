"""`record_function` and its like beside the least that two C functions need, and beside other tools."""

from __future__ import annotations

from collections.abc import Iterator

from bench.measure import Row, child
from bench.ours.recording import PEER_WAYS, missing

COUNT, ROUNDS = 10_000, 101
PAIR_BAR, WITH_BAR, IDLE_BAR = 1.15, 1.25, 0.75


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    del events
    on, idle = (_measure(recording) for recording in (True, False))
    yield _row(on, "begin + end (range_push, range_pop), recording", "pair", PAIR_BAR)
    yield _row(on, "with record_function('x'), recording", "with", WITH_BAR)
    yield _row(idle, "with record_function('x'), idle", "with", IDLE_BAR)
    yield _row(on, "a call decorated with record_function, recording", "decorator", None)
    yield _row(idle, "a call decorated with record_function, idle", "decorator", None)


def _measure(recording: bool) -> dict[str, float]:
    arguments = {"count": COUNT, "rounds": ROUNDS, "recording": recording}
    found: dict[str, float] = child("bench.ours.recording:per_range", arguments)["result"]
    return found


def _row(found: dict[str, float], what: str, way: str, bar: float | None) -> Row:
    ratio = found[way] / found["bare pair"]
    notes = [f"`with` around nothing at all, in C, {_ns(found['bare with'])}", f"a plain call {_ns(found['function'])}"]
    if way == "with":
        notes.append(f"one object reused {_ns(found['with, reused'])}")
    return Row(
        "recording",
        what,
        _ns(found[way]),
        ", ".join(f"{peer} {_ns(found[peer])}" for peer in PEER_WAYS if peer in found),
        f"{_ns(found['bare pair'])} (two C functions)",
        ratio=ratio,
        bar=f"<= {bar}x" if bar else "",
        met=ratio <= bar if bar else None,
        note="; ".join([*notes, *missing()]),
    )


def _ns(value: float) -> str:
    return f"{value:.1f} ns" if value < 100 else f"{value:.0f} ns"
