"""PyTorch's operators: what the observer adds, beside what torch's own profiler adds in the same run.

Floor: a callback that does nothing, which for shapes has torch pack the inputs up. PROFD_BENCH_SOAK_SECONDS (60) is how
long a process is recorded at 500k ops a second.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from typing import Any

from bench import pairing
from bench.cases.observer_soak import soak
from bench.measure import Row, child

STEPS = {"tiny MLP": (5, 250), "small transformer": (1, 120), "larger MLP": (1, 300)}  # in a block, and rounds
OPS, OP_ROUNDS = 3_000, 40
STOPPED_OPS, KINETO_STOPPED_OPS = 1_000_000, 200_000
STOP_BAR_S = 0.005
IDLE_OPS, IDLE_ROUNDS, IDLE_BAR = 10_000, 100, 0.01
SOAK_SECONDS = float(os.environ.get("PROFD_BENCH_SOAK_SECONDS", "60"))


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    del events
    op = child("bench.ours.observer:per_op", {"count": OPS, "rounds": OP_ROUNDS})["result"]
    yield _row(op, "an op in a loop (add_ of 4 floats)", "", 0.35)
    yield _row(op, "an op in a loop, with shapes", " shapes", 0.5)
    scripted = child("bench.ours.observer:per_module_op", {"count": 600, "rounds": OP_ROUNDS})["result"]
    yield _modules(scripted)
    for model, (steps, rounds) in STEPS.items():
        arguments = {"model": model, "steps": steps, "rounds": rounds}
        step = child("bench.ours.observer:per_step", arguments)["result"]
        yield _row(step, f"a training step, {model}", "", 0.5)
        yield _row(step, f"a training step, {model}, with shapes", " shapes", 0.65)
    yield _idle()
    yield _stop()
    yield from soak(SOAK_SECONDS)


def _row(found: dict[str, Any], what: str, shapes: str, bar: float) -> Row:
    rounds, events = found["rounds"], found["events"]
    ours, peer, floor = f"observer{shapes}", f"kineto{shapes}", "callback inputs" if shapes else "callback"
    taken = {way: pairing.added(rounds, way) for way in (ours, peer, floor)}
    ratio = pairing.ratio(rounds, ours, peer)
    note = (
        f"ratio {ratio}, the floor's {pairing.ratio(rounds, floor, peer)}; without recording "
        f"{_ns(pairing.cost(rounds, pairing.WITHOUT))}, {events:.0f} events"
    )
    if "kineto all threads" in rounds[0] and not shapes:
        note += f"; Kineto on all threads +{_ns(pairing.added(rounds, 'kineto all threads'))}"
    return Row(
        "observer",
        what,
        f"+{_ns(taken[ours])}",
        f"Kineto +{_ns(taken[peer])}",
        floor=f"+{_ns(taken[floor])}",
        ratio=ratio.value,
        bar=f"<= {bar}x",
        met=ratio.value <= bar,
        note=note,
    )


def _modules(found: dict[str, Any]) -> Row:
    rounds = found["rounds"]
    ratio = pairing.ratio(rounds, "modules", "kineto modules")
    return Row(
        "observer",
        "a TorchScript module's call, with shapes and module path",
        f"+{_ns(pairing.added(rounds, 'modules'))}",
        f"Kineto +{_ns(pairing.added(rounds, 'kineto modules'))}",
        ratio=ratio.value,
        bar="<= 0.6x",
        met=ratio.value <= 0.6,
        note=f"ratio {ratio}",
    )


def _idle() -> Row:
    arguments = {"count": IDLE_OPS, "rounds": IDLE_ROUNDS}
    rounds = child("bench.ours.observer:after_stop", arguments)["result"]["rounds"]
    never = statistics.median(taken[pairing.WITHOUT] for taken in rounds)
    ratio = pairing.estimate(
        rounds, lambda drawn: pairing.cost(drawn, "stopped") / pairing.cost(drawn, pairing.WITHOUT)
    )
    return Row(
        "observer",
        "an op after the stop, over an op of a process that never recorded",
        f"{ratio}",
        ratio=ratio.value,
        bar=f"1.00, or an interval that holds it, within {IDLE_BAR:.0%}",
        met=ratio.low - IDLE_BAR <= 1 <= ratio.high + IDLE_BAR,
        note=f"{_ns(never)} an op; that torch has no callback then is a test (torch_observer/test_faults.py)",
    )


def _stop() -> Row:
    ours = child("bench.ours.observer:stop_pause", {"ops": STOPPED_OPS})["result"]
    peer = child("bench.ours.observer:kineto_stop", {"ops": KINETO_STOPPED_OPS})["result"]
    return Row(
        "observer",
        f"stop after {ours['recorded']:,.0f} ops: the job's longest op meanwhile",
        f"{ours['longest'] * 1e3:.2f} ms",
        f"Kineto's stop {peer['stop']:.2f} s after {KINETO_STOPPED_OPS:,} ops",
        bar=f"<= {STOP_BAR_S * 1e3:.0f} ms",
        met=ours["longest"] <= STOP_BAR_S,
        note=f"the stop itself {ours['stop'] * 1e3:.2f} ms, on another thread",
    )


def _ns(value: float) -> str:
    return f"{value:.0f} ns" if abs(value) < 10_000 else f"{value / 1000:.1f} us"
