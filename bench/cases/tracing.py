"""The Python tracer (`--stacks`) beside the bare callback that stores 24 bytes an event, cProfile and viztracer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.measure import Row, child
from bench.ours.tracing import VIZTRACER

CALLS, CALL_ROUNDS, PROGRAM_ROUNDS = 20_000, 60, 15
BAR = 1.15
TRACERS = ["none", "floor", "ours", "ours_c_calls", "cprofile", "viztracer"]


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    del events
    note = "" if VIZTRACER.is_dir() else f"viztracer is not there: pip install --target {VIZTRACER} viztracer"
    arguments = {"tracers": TRACERS, "count": CALLS, "rounds": CALL_ROUNDS}
    call: dict[str, float] = child("bench.ours.tracing:per_call", arguments)["result"]
    yield Row(
        "tracing",
        "a traced call of a Python function and its return",
        _ns(call["ours"]),
        _peers(call, _ns),
        _ns(call["floor"]),
        ratio=call["ours"] / call["floor"],
        bar=f"<= {BAR}x",
        met=call["ours"] <= BAR * call["floor"],
        note=f"untraced {_ns(call['none'])}. {note}",
    )
    arguments = {"tracers": TRACERS, "rounds": PROGRAM_ROUNDS}
    programs: dict[str, dict[str, list[float]]] = child("bench.ours.tracing:programs", arguments)["result"]
    counts: dict[str, int] = child("bench.ours.tracing:events", {"tracer": "ours"})["result"]
    for name, found in programs.items():
        yield _program(name, {tracer: min(seconds) for tracer, seconds in found.items()}, counts[name])


def _program(name: str, best: dict[str, float], events: int) -> Row:
    def shown(seconds: float) -> str:
        return f"{seconds * 1e3:.1f} ms ({seconds / best['none']:.2f}x)"

    return Row(
        "tracing",
        f"{name}, {events} begins and ends",
        shown(best["ours"]),
        _peers(best, shown),
        shown(best["floor"]),
        ratio=best["ours"] / best["floor"],
        bar=f"<= {BAR}x",
        met=best["ours"] <= BAR * best["floor"],
        note=f"untraced {best['none'] * 1e3:.1f} ms; with C functions {shown(best['ours_c_calls'])}",
    )


def _peers(found: dict[str, float], show: Any) -> str:
    return ", ".join(f"{peer} {show(found[peer])}" for peer in ("cprofile", "viztracer") if peer in found)


def _ns(seconds: float) -> str:
    return f"{seconds * 1e9:.0f} ns"
