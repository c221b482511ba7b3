"""The rule set `classic`, each case worked out by hand from derived_timeline.cc (lines are those of that file)."""

from __future__ import annotations

from typing import Any

import numpy as np
from profd.derive.timeline.classic import derive_classic
from profd.derive.timeline.lines import What
from profd.derive.timeline.space import MISSING, NO_TEXT, Line, Space

US = 1_000_000  # ps
Event = dict[str, Any]


def at(start: int, length: int, name: str = "k", **stats: Any) -> Event:
    """A kernel; times in us. `line` is its stream, 0 unless told."""
    return {
        "start": start * US,
        "end": (start + length) * US,
        "name": name,
        "kernel_details": "regs:1",
        "line": 0,
        **stats,
    }


def copy(start: int, length: int, **stats: Any) -> Event:
    """Work that is no kernel."""
    return {**at(start, length, "copy", **stats), "kernel_details": None}


def call(start: int, length: int, name: str = "launch", **stats: Any) -> Event:
    """A call on the host, which is line 2."""
    return {**copy(start, length, **stats), "name": name, "line": 2}


def space_of(*events: Event) -> Space:
    words: dict[str, int] = {}

    def column(key: str) -> Any:
        return np.array([event.get(key, MISSING) for event in events], dtype=np.int64)

    def text(key: str) -> Any:
        values = [event.get(key) for event in events]
        return np.array([NO_TEXT if v is None else words.setdefault(v, len(words)) for v in values], dtype=np.int64)

    texts = {key: text(key) for key in ("kernel_details", "hlo_module", "hlo_op", "tf_op", "step_name")}
    numbers = {key: column(key) for key in ("device_id", "group_id")}
    return Space(
        planes=["/device:GPU:0", "/host:CPU"],
        lines=[Line(0, 7, "Stream #7(Compute)"), Line(0, 8, "Stream #8"), Line(1, 1, "python")],
        start=column("start"),
        end=column("end"),
        line=column("line"),
        name=text("name"),
        correlation=column("correlation"),
        numbers=numbers,
        texts=texts,
        words=list(words),
    )


def derived(*events: Event, **options: Any) -> dict[str, list[tuple[Any, ...]]]:
    """Kind of line -> (name, start, end, group) in us."""
    lines, _ = derive_classic(space_of(*events), **options)
    return {line.what.value: [(e.name, e.start / US, e.end / US, e.group) for e in line.events] for line in lines}


def test_neighbours_of_one_op_are_one_event_across_streams() -> None:
    """Lines 171-179: the lines of a plane are merged and sorted; 145-152: same name, same group, new kernel."""
    lines = derived(
        at(0, 2, "a", tf_op="net/mul:Mul", group_id=0),
        at(3, 2, "b", tf_op="net/mul:Mul", group_id=0, line=1),
        at(6, 2, "c", tf_op="net/mul:Mul", group_id=0),
    )
    assert lines["ops"] == [("Mul", 0, 8, 0)]
    assert lines["scopes"] == [("net", 0, 8, 0)]


def test_a_kernel_seen_before_begins_the_op_and_its_scope_anew() -> None:
    """136-143: a low-level name that the event has says that this is another invocation."""
    lines = derived(
        *(at(time, 1, name, tf_op="net/mul:Mul") for time, name in ((0, "a"), (2, "b"), (4, "a"), (6, "b")))
    )
    assert lines["ops"] == [("Mul", 0, 3, None), ("Mul", 4, 7, None)]
    assert lines["scopes"] == [("net", 0, 3, None), ("net", 4, 7, None)]


def test_scopes_split_at_their_own_level() -> None:
    """137-143 on each level: the outer scope has seen the kernel, too, and takes the inner one along (154, 159)."""
    lines = derived(
        at(0, 1, "a", tf_op="x/y/mul:Mul"), at(2, 1, "b", tf_op="x/z/add:Add"), at(4, 1, "c", tf_op="x/z/add:Add")
    )
    assert lines["scopes"] == [("x", 0, 5, None), ("y", 0, 1, None), ("z", 2, 5, None)]
    again = derived(at(0, 1, "a", tf_op="x/y/mul:Mul"), at(2, 1, "a", tf_op="x/y/mul:Mul"))
    assert again["scopes"] == [("x", 0, 1, None), ("y", 0, 1, None), ("x", 2, 3, None), ("y", 2, 3, None)]


def test_a_new_scope_ends_the_op_below_it() -> None:
    """191-193 (ops depend on scopes) and 163: the same op name in another scope tree is told by the scope's end."""
    lines = derived(
        at(0, 1, "a", tf_op="x/mul:Mul"), at(2, 1, "b", tf_op="y/mul:Mul"), at(4, 1, "c", tf_op="x/mul:Mul")
    )
    assert lines["ops"] == [("Mul", 0, 1, None), ("Mul", 2, 3, None), ("Mul", 4, 5, None)]
    assert [row[0] for row in lines["scopes"]] == ["x", "y", "x"]


def test_a_new_module_ends_scopes_ops_and_xla_ops() -> None:
    """196-199: name scopes and XLA ops depend on modules, operators through the scopes."""
    lines = derived(
        at(0, 1, "a", tf_op="x/mul:Mul", hlo_module="m1"),
        at(2, 1, "b", tf_op="x/mul:Mul", hlo_module="m2"),
    )
    assert lines["modules"] == [("m1", 0, 1, None), ("m2", 2, 3, None)]
    assert lines["scopes"] == [("x", 0, 1, None), ("x", 2, 3, None)]
    assert lines["ops"] == [("Mul", 0, 1, None), ("Mul", 2, 3, None)]


def test_modules_do_not_look_at_groups_but_steps_end_them() -> None:
    """243-247: a module is added with group -1, so groups alone do not split it; 200-202: steps reset modules."""
    together = derived(at(0, 1, hlo_module="m", group_id=3), at(2, 1, "l", hlo_module="m"))
    assert together["modules"] == [("m", 0, 3, 3)]  # the second has no group, hence no step that would end it
    apart = derived(at(0, 1, hlo_module="m", group_id=3), at(2, 1, "l", hlo_module="m", group_id=4))
    assert apart["modules"] == [("m", 0, 1, 3), ("m", 2, 3, 4)]


def test_xla_ops_have_levels_and_their_group_counts() -> None:
    """219-221: levels are separated by `::`; 258: they are added with the group of the event, without a kernel."""
    lines = derived(
        at(0, 1, "k", hlo_module="m", hlo_op="while::dot"),
        at(2, 1, "k", hlo_module="m", hlo_op="while::dot"),
        at(4, 1, "k", hlo_module="m", hlo_op="while::add"),
    )
    assert lines["xla-ops"] == [("while", 0, 5, None), ("dot", 0, 3, None), ("add", 4, 5, None)]
    assert "ops" not in lines


def test_levels_below_the_last_stay_open() -> None:
    """116-156 look at the levels given: a shorter list ends nothing below it, so the deeper event goes on later."""
    lines = derived(
        at(0, 1, hlo_module="m", hlo_op="while::dot"),
        at(2, 1, hlo_module="m", hlo_op="while"),
        at(4, 1, hlo_module="m", hlo_op="while::dot"),
    )
    assert lines["xla-ops"] == [("while", 0, 5, None), ("dot", 0, 5, None)]


def test_a_kernel_with_an_xla_op_is_on_no_framework_line() -> None:
    """250-276: framework lines of such kernels come from the symbol resolver, which resolves nothing (378-382)."""
    lines = derived(at(0, 1, hlo_module="m", hlo_op="dot", tf_op="x/mul:Mul"))
    assert set(lines) == {"modules", "xla-ops"}


def test_steps_come_of_everything_and_the_rest_of_kernels() -> None:
    """226-238 stand before 242: copies make steps, but neither modules nor ops."""
    lines = derived(
        copy(0, 2, group_id=1, tf_op="x/mul:Mul", hlo_module="m"), at(5, 1, group_id=1), copy(8, 1, group_id=2)
    )
    assert lines == {"steps": [("1", 0, 6, 1), ("2", 8, 9, 2)]}


def test_step_info_only() -> None:
    """240: nothing but the steps."""
    events = (at(0, 1, group_id=1, tf_op="x/mul:Mul", hlo_module="m"), at(2, 1, group_id=1))
    assert derived(*events, step_info_only=True) == {"steps": [("1", 0, 3, 1)]}
    assert set(derived(*events)) == {"steps", "modules", "scopes", "ops"}


def test_an_event_ends_with_its_last_part() -> None:
    """146-147: the duration is set from the new part, also where an earlier one lasted longer."""
    assert derived(at(0, 10, "a", tf_op="mul:Mul"), at(2, 3, "b", tf_op="mul:Mul"))["ops"] == [("Mul", 0, 5, None)]


def test_of_events_that_start_together_the_longer_comes_first() -> None:
    """179: timespans are sorted so."""
    lines = derived(at(0, 1, "a", tf_op="x/short:Mul"), at(0, 4, "b", tf_op="x/long:Add", line=1))
    assert lines["ops"] == [("Add", 0, 4, None), ("Mul", 0, 1, None)]
    assert lines["scopes"] == [("x", 0, 1, None)]


def test_names_of_no_framework_have_no_scopes() -> None:
    """86-95: scopes are for TensorFlow's and JAX's names; 100: others are shown by their full name."""
    lines = derived(at(0, 1, tf_op="memcpyD2H/x"))
    assert lines == {"ops": [("memcpyD2H/x", 0, 1, None)]}


def test_launch_statistics_by_hand() -> None:
    """292-328: calls of known devices with group, device and correlation, those of the driver (`cu…`) left out."""
    known: dict[str, Any] = {"device_id": 0, "correlation": 1, "group_id": 5, "step_name": "train 5"}
    lines, _ = derive_classic(
        space_of(
            call(10, 2, **known),
            call(20, 5, **known),
            call(5, 4, **known),
            call(1, 50, "cuEventQuery", **known),
            call(1, 50, **{**known, "device_id": 3}),  # no such GPU in the trace
            {**call(1, 50), "group_id": 5, "device_id": 0},  # no correlation id
            at(30, 1, group_id=5),
        )
    )
    (stats,) = [event for line in lines if line.what is What.LAUNCHES for event in line.events]
    assert (stats.name, stats.start, stats.end) == ("Launch Stats for train 5", 5 * US, 25 * US)
    assert stats.args == {"num_launches": 3, "max_launch_time_us": 5.0, "avg_launch_time_us": 11 * US // 3 / US}
    assert [line.what for line in lines] == [What.STEPS, What.LAUNCHES]


def test_groups_without_a_name_have_no_launch_statistics() -> None:
    """346: only groups that the metadata knows."""
    lines, _ = derive_classic(space_of(call(0, 1, device_id=0, correlation=1, group_id=5), at(2, 1, group_id=5)))
    assert [line.what for line in lines] == [What.STEPS]
    assert next(iter(lines[0].events)).args == {}
