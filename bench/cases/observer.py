"""PyTorch's operators: what the observer adds, beside what torch's own profiler adds in the same run."""

from __future__ import annotations

from collections.abc import Iterator

from bench.measure import Row, child

STEPS = {"tiny MLP": 100, "small transformer": 20, "larger MLP": 20}
STOPPED_OPS, KINETO_STOPPED_OPS = 1_000_000, 200_000
STOP_BAR_S = 0.005


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    del events
    op = child("bench.ours.observer:per_op", {"count": 10_000, "rounds": 7})["result"]
    yield _row(op, "an op in a loop (add_ of 4 floats)", "observer", "kineto", 0.35)
    yield _row(op, "an op in a loop, with shapes", "observer shapes", "kineto shapes", 0.5)
    scripted = child("bench.ours.observer:per_module_op", {"count": 2_000, "rounds": 7})["result"]
    yield _row(scripted, "a TorchScript module's call, with shapes and module path", "modules", "kineto modules", 0.6)
    for model, steps in STEPS.items():
        arguments = {"model": model, "steps": steps, "rounds": 7}
        step = child("bench.ours.observer:per_step", arguments)["result"]
        yield _row(step, f"a training step, {model}", "observer", "kineto", 0.5)
        yield _row(step, f"a training step, {model}, with shapes", "observer shapes", "kineto shapes", 0.65)
    yield _stop()


def _row(found: dict[str, float], what: str, ours: str, peer: str, bar: float) -> Row:
    ratio = found[ours] / found[peer]
    note = f"without recording {_ns(found['off'])}"
    if "kineto all threads" in found and ours == "observer":
        note += f"; Kineto on all threads +{_ns(found['kineto all threads'])}"
    return Row(
        "observer",
        what,
        f"+{_ns(found[ours])}",
        f"Kineto +{_ns(found[peer])}",
        ratio=ratio,
        bar=f"<= {bar}x",
        met=ratio <= bar,
        note=note,
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
