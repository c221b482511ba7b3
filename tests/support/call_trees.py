"""Traces of calls that lie within each other, and of whatever else there may be, for property tests."""

from __future__ import annotations

import json

from hypothesis import strategies as st
from profd.events import DeviceType, Kind

from tests.support.tables import Event

SHAPES = json.dumps({"Input Dims": [[4, 8], [8, 2]]})
NAMES = ["a", "a", "b", "aten::mm", "aten::is_leaf", "ProfilerStep#1", "ProfilerStep#2", "_Z1fv", "\ud800"]
CALL_KINDS = [*[Kind.CPU_OP] * 5, Kind.RUNTIME, Kind.USER_ANNOTATION, Kind.PYTHON_FUNCTION, Kind.INSTANT]
FIELDS: list[dict[str, object]] = [{}, {}, {}, {"inputs": SHAPES}, {"phase": ord("b")}, {"is_async": 1}]
Shape = tuple[str, Kind, int, list["Shape"]]

# Calls that lie within each other, as jobs record them: rarely at odds with each other.
TREES: st.SearchStrategy[Shape] = st.recursive(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(CALL_KINDS), st.integers(0, 3), st.just([])),
    lambda inner: st.tuples(
        st.sampled_from(NAMES), st.sampled_from(CALL_KINDS), st.integers(0, 3), st.lists(inner, max_size=3)
    ),
    max_leaves=12,
)
# Whatever there may be.
LOOSE = st.builds(
    lambda name, start, lasting, kind, thread, device, fields: Event(
        name, start, start + lasting, kind, thread, device, dict(fields)
    ),
    st.sampled_from(NAMES),
    st.integers(0, 30),
    st.sampled_from([0, 1, 2, 5, 9]),
    st.sampled_from(list(Kind)),
    st.integers(-1, 1),
    st.sampled_from([None, None, DeviceType.CPU, DeviceType.OTHER, DeviceType.CUDA, DeviceType.MTIA]),
    st.sampled_from([*FIELDS, {"phase": ord("S")}]),
)
WORK = st.builds(
    lambda name, start, lasting, kind, correlation, external: Event(
        name, start, start + lasting, kind, 1, None, {"correlation": correlation, "external": external}
    ),
    st.sampled_from(["k", "a"]),
    st.integers(0, 60),
    st.sampled_from([0, 2, 5]),
    st.sampled_from([Kind.KERNEL, Kind.MEMCPY, Kind.GPU_USER_ANNOTATION]),
    st.integers(0, 12),
    st.integers(-1, 12),
)


def laid_out(shape: Shape, start: int, thread: int) -> list[Event]:
    """A call and all within it; of no length where nothing is in it and it has none of its own."""
    name, kind, own, inner = shape
    events, now = [Event(name, start, None, kind, thread)], start + own
    for one in inner:
        events += laid_out(one, now, thread)
        now = max(event.end or 0 for event in events[1:]) + own // 2
    events[0].end = now
    return events


@st.composite
def traces(draw: st.DrawFn) -> list[Event]:
    events: list[Event] = []
    for thread in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, 3))
        for shape in draw(st.lists(TREES, max_size=3)):
            events += laid_out(shape, at, thread)
            at = max([at, *(event.end or 0 for event in events if event.thread == thread)]) + draw(st.integers(0, 2))
    for number, event in enumerate(events):
        event.fields = {"correlation": number, "external": draw(st.integers(-1, 12)), **draw(st.sampled_from(FIELDS))}
    events += draw(st.lists(WORK, max_size=6))
    events += draw(st.lists(LOOSE, max_size=draw(st.sampled_from([0, 0, 4]))))
    draw(st.randoms()).shuffle(events)
    return events
