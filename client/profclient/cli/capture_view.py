"""A capture as lines on screen, and as an exit code; as JSON it is in `profclient/as_json.py`."""

from __future__ import annotations

from profproto.v1 import capture_pb2

from profclient.as_json import WHEN, state_name
from profclient.cli.units import duration

State = capture_pb2.State
STORED, PARTIAL, BUSY = State.STATE_STORED, State.STATE_PARTIAL, State.STATE_BUSY


def live(capture: capture_pb2.Capture) -> bool:
    """Whether a state may still change."""
    return any(target.state < STORED for target in capture.targets)


def load_line(load: capture_pb2.Load) -> str:
    """The same in a sentence; empty where nothing of the window is known."""
    if not load.HasField("during"):
        return ""
    return "; ".join(f"{when} {_stretch(getattr(load, when))}" for when in WHEN if load.HasField(when))


def _stretch(stretch: capture_pb2.Stretch) -> str:
    def rate(count: float) -> str:
        each = count * 1e9 / stretch.lasted_ns
        return f"{each:,.0f}" if each >= 100 else f"{each:.3g}"

    cores, queued = (f"{spent / stretch.lasted_ns:.2f}" for spent in (stretch.cpu_ns, stretch.run_queue_ns))
    often = f"{rate(stretch.waits)} waits and {rate(stretch.preemptions)} preemptions a second"
    return f"{cores} cores, {queued} threads waiting for one, {often}"


def exit_code(capture: capture_pb2.Capture) -> int:
    """All stored 0; some stored or any partial 6; nothing stored, and any busy 5; otherwise 1."""
    states = {target.state for target in capture.targets}
    if states == {STORED}:
        return 0
    if states & {STORED, PARTIAL}:
        return 6
    return 5 if BUSY in states else 1


def of_ranks(capture: capture_pb2.Capture) -> list[str]:
    """The command that compares the ranks of a job; none where fewer than two of one were recorded from the inside."""
    ranks: dict[str, set[int]] = {}
    for target in capture.targets:
        if target.trace and target.HasField("rank") and set(target.sources) - {"pyspy"}:
            ranks.setdefault(target.job, set()).add(target.rank)
    several = any(len(some) > 1 for some in ranks.values()) and not capture.HasField("fleet")
    return [f"profctl ranks {capture.id}"] if several else []


def target_line(target: capture_pb2.TargetStatus) -> str:
    """One line: the process, its state, and its present work or the reason of its end."""
    text = f"pid {target.pid}"
    if target.HasField("rank"):
        text += f" (rank {target.rank})"
    sources = "+".join(target.sources)
    text += f"  {state_name(target.state)}" + (f" [{sources}]" if sources else "")
    more = target.doing if target.state < STORED else target.message
    return f"{text}  {more}" if more else text


def waterfall_line(target: capture_pb2.TargetStatus) -> str:
    """The capture's own phases and their durations."""
    return " · ".join(f"{phase.name} {duration(phase.duration_ns)}" for phase in target.waterfall)
