"""Two traces compared, with numbers worked out by hand, and two real ones."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.errors import BadInput
from profd.events import Kind
from profd.query.diff import Cells, Side, diff
from profd.segments.reader import TraceReader

from tests.support.importing import import_trace
from tests.support.tables import Event, store, table_of

STEP = Kind.USER_ANNOTATION


def call(name: str, start: int, end: int, own: int, parent: int | None = None, depth: int = 0) -> Event:
    return Event(name, start, end, fields={"self_time": own, "parent": parent, "depth": depth})


def stored(path: Path, events: list[Event], rows: int = 1000) -> TraceReader:
    return TraceReader(store(table_of(events), path, rows=rows))


def by_name(answer: dict[str, Any]) -> dict[str, Any]:
    return {row["name"]: row for row in answer["rows"]}


def steps_of(op: list[int], jitter: list[int] | None = None) -> list[Event]:
    """Steps of 1000 ns, each with an op and a kernel of so many ns."""
    events: list[Event] = []
    for number, lasting in enumerate(op):
        at, kernel = number * 1000, (jitter or op)[number]
        events.append(Event(f"ProfilerStep#{number}", at, at + 1000, STEP, fields={"self_time": 1000 - lasting}))
        events.append(call("op", at + 1, at + 1 + lasting, lasting))
        events.append(Event("gemm", at + 2, at + 2 + kernel, Kind.KERNEL, 9))
    return events


def test_what_is_new_gone_slower_and_faster(tmp_path: Path) -> None:
    first = [call("kept", 0, 10, 10), call("slow", 20, 30, 10), call("fast", 40, 60, 20), call("gone", 70, 75, 5)]
    second = [call("kept", 0, 10, 10), call("slow", 20, 50, 30), call("fast", 60, 61, 1), call("new", 70, 77, 7)]
    second.append(call("slow", 80, 90, 10))
    answer = diff(stored(tmp_path / "a", first), stored(tmp_path / "b", second))
    rows = by_name(answer)
    assert {name: row["change"] for name, row in rows.items()} == {
        "kept": "same",
        "slow": "slower",
        "fast": "faster",
        "gone": "gone",
        "new": "new",
    }
    assert [row["name"] for row in answer["rows"]] == ["slow", "fast", "new", "gone", "kept"]
    assert rows["slow"] == {
        "name": "slow",
        "path": None,
        "device_type": "CPU",
        "change": "slower",
        "a_ns": 10,
        "b_ns": 40,
        "delta_ns": 30,
        "noise_ns": None,
        "ratio": 4.0,
        "a_count": 1,
        "b_count": 2,
        "share": round(30 / 45, 6),
    }
    assert (rows["new"]["ratio"], rows["gone"]["ratio"]) == (None, 0.0)
    assert (answer["per"], answer["steps"], answer["outside_steps_ns"]) == ("trace", [0, 0], None)
    assert "not both traces mark steps" in answer["message"]
    (total,) = answer["totals"]
    assert (total["a_ns"], total["b_ns"], total["change"]) == (45, 58, "slower")


@pytest.mark.parametrize("rows", [3, 1000])
def test_a_change_within_the_noise_is_none(rows: int, tmp_path: Path) -> None:
    # The op: 100 +- 2 against 120 +- 2. The kernel: 100 +- 60 against 120 +- 60.
    before = steps_of([98, 100, 102, 100, 99], [40, 100, 160, 70, 130])
    after = steps_of([118, 120, 122, 120, 121], [60, 120, 180, 90, 150])
    answer = diff(stored(tmp_path / "a", before, rows), stored(tmp_path / "b", after, rows))
    found = by_name(answer)
    assert (answer["per"], answer["steps"], answer["message"]) == ("step", [5, 5], None)
    assert (found["op"]["change"], found["op"]["a_ns"], found["op"]["b_ns"]) == ("slower", 100, 120)
    # Median deviation 1: 3 * 1.2533 * 1.4826 * sqrt(2/5)
    assert found["op"]["noise_ns"] == 4
    assert (found["gemm"]["change"], found["gemm"]["delta_ns"]) == ("same", 20)
    assert found["gemm"]["noise_ns"] == round(3 * 1.2533 * 1.4826 * 30 * (2 / 5) ** 0.5)
    assert [line["name"] for line in answer["totals"]] == ["step", "total", "total"]
    assert answer["totals"][0]["change"] == "same"


def calls_of(work: Callable[[], object]) -> int:
    """Of functions, in Python and in C, that it makes."""
    calls = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def calls_to_measure(names: int) -> int:
    """Where each name took time in one of 500 steps."""
    every = np.arange(names)
    side = Side(Cells(every * 32, every % 500, every + 1, every), np.full(500, 1000), 1, 500_000)
    return calls_of(lambda: side.measure(True))


def test_steps_are_not_gone_through_for_each_name() -> None:
    """A trace may have 150,000 of both."""
    assert calls_to_measure(600) == calls_to_measure(300)


def calls_to_compare(paths: int, folder: Path) -> int:
    """So many paths, up to 50 frames deep, each slower by another time."""
    frames = [
        call(f"f{(number * 7 + number // 50) % 31}", number, 9_000, 3, number - 1 if number % 50 else None, number % 50)
        for number in range(paths)
    ]
    slow = [replace(event, fields={**event.fields, "self_time": 3 + number}) for number, event in enumerate(frames)]
    first, second = (stored(folder / f"{name}{paths}", events) for name, events in (("a", frames), ("b", slow)))
    return calls_of(lambda: diff(first, second, "path"))


def test_of_paths_only_those_that_are_shown_are_gone_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace may have a million."""
    monkeypatch.setattr("profd.query.diff.DIFF_ROWS_MAX", 5)
    calls_to_compare(100, tmp_path / "first")  # imports what it needs
    assert calls_to_compare(900, tmp_path) <= calls_to_compare(300, tmp_path) + 100


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 20)), min_size=1, max_size=25),
    st.integers(6, 9),
)
def test_times_of_steps_that_lack_a_name_are_0(cells: list[tuple[int, int, int]], steps: int) -> None:
    key, step, ns = (np.array(column, dtype=np.int64) for column in zip(*cells, strict=True))
    names = np.unique(key)
    found = (
        Side(Cells(key, step, ns, np.ones(len(key), dtype=np.int64)), np.ones(steps), 1, 0)
        .measure(True)
        .at(np.concatenate([[-4, -3, -2, -1], names]))
    )
    for at, name in enumerate(names, 4):
        whole = np.bincount(step[key == name], ns[key == name], steps)
        spread = 1.4826 * np.median(np.abs(whole - np.median(whole)))
        values = [float(column[at]) for column in (found.median, found.spread, found.count)]
        assert values == [np.median(whole), spread, (key == name).sum() / steps]


def test_two_steps_do_not_tell_the_noise(tmp_path: Path) -> None:
    answer = diff(stored(tmp_path / "a", steps_of([100, 110])), stored(tmp_path / "b", steps_of([106, 106])))
    assert by_name(answer)["op"]["noise_ns"] is None
    assert by_name(answer)["op"]["change"] == "slower"
    assert "fewer than 3 steps" in answer["message"]


def test_a_call_that_is_not_in_every_step(tmp_path: Path) -> None:
    often = steps_of([100] * 4)
    rare = [*steps_of([100] * 4), call("gc", 500, 700, 200), call("before", -50, -40, 10)]
    answer = diff(stored(tmp_path / "a", often), stored(tmp_path / "b", rare))
    assert by_name(answer)["gc"] | {"change": "new", "b_ns": 0, "b_count": 0.25} == by_name(answer)["gc"]
    assert "before" not in by_name(answer)
    assert answer["outside_steps_ns"] == [0, 10]


def test_call_paths(tmp_path: Path) -> None:
    def trace(line: int, busy: int) -> list[Event]:
        return [
            call(f"train.py({line}): step", 0, 100, 100 - busy - 10),
            call("aten::mm", 10, 10 + busy, busy, 0, 1),
            call("eval", 200, 220, 10),
            call("aten::mm", 205, 215, 10, 2, 1),
        ]

    answer = diff(stored(tmp_path / "a", trace(10, 20)), stored(tmp_path / "b", trace(12, 50)), "path")
    changes = {tuple(row["path"]): row["change"] for row in answer["rows"]}
    assert changes == {
        ("train.py: step", "aten::mm"): "slower",
        ("train.py: step",): "faster",
        ("eval",): "same",
        ("eval", "aten::mm"): "same",
    }


def test_modules(tmp_path: Path) -> None:
    def trace(busy: int) -> list[Event]:
        return [
            Event("nn.Module: Net_0", 0, 100, Kind.PYTHON_FUNCTION, fields={"self_time": 20}),
            Event("nn.Module: Linear_0", 10, 90, Kind.PYTHON_FUNCTION, fields={"self_time": 80 - busy}),
            call("aten::mm", 11, 11 + busy, busy),
            call("aten::add", 200, 230, 30),
        ]

    answer = diff(stored(tmp_path / "a", trace(20)), stored(tmp_path / "b", trace(20)), "module")
    rows = by_name(answer)
    assert sorted((row["a_ns"], row["change"]) for row in rows.values()) == [(20, "same"), (30, "same"), (80, "same")]
    assert rows["(no module)"]["a_ns"] == 30
    with pytest.raises(BadInput, match="compare by one of"):
        diff(stored(tmp_path / "c", []), stored(tmp_path / "d", []), "speed")


def test_endless_recursion_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profd.query.diff.DIFF_FRAMES_MAX", 3)
    deep = [call("f", level, 100 - level, 2, level - 1 if level else None, level) for level in range(20)]
    reader = stored(tmp_path / "a", deep)
    answer = diff(reader, reader, "path")
    assert {tuple(row["path"]): row["a_ns"] for row in answer["rows"]} == {
        ("f",): 2,
        ("f", "f"): 2,
        ("f", "f", "f"): 36,
    }


def test_marks_and_shadows_are_not_compared(tmp_path: Path) -> None:
    events = [
        call("op", 0, 10, 10),
        Event("range", 0, 10, Kind.GPU_USER_ANNOTATION, 9),
        Event("mark", 5, 5, Kind.INSTANT),
        Event("begun", 6, None),
    ]
    reader = stored(tmp_path / "a", events)
    assert [row["name"] for row in diff(reader, reader)["rows"]] == ["begun", "op"]
    empty = stored(tmp_path / "empty", [])
    assert diff(empty, empty, "path")["rows"] == []
    assert by_name(diff(empty, reader))["op"]["change"] == "new"


@pytest.mark.slow
def test_real_traces_of_one_job_before_and_after(trace_data: Path, tmp_path: Path) -> None:
    readers = []
    for name in ("control", "test"):
        import_trace(trace_data / f"cuda_diff_{name}.json.gz", tmp_path / name)
        readers.append(TraceReader(tmp_path / name))
    answer = diff(readers[0], readers[1])
    assert (answer["per"], answer["steps"], answer["message"]) == ("step", [6, 6], None)
    step = answer["totals"][0]
    assert (step["name"], step["change"], step["a_ns"], step["b_ns"]) == ("step", "slower", 76_833_500, 114_689_500)
    rows = {(row["name"], row["device_type"]): row for row in answer["rows"]}
    copies = rows["Memcpy DtoD (Device -> Device)", "CUDA"]
    assert (copies["change"], copies["a_count"]) == ("slower", 3)
    assert copies["b_count"] > 700
    # Self times add up to the totals: nothing is compared twice.
    same = diff(readers[0], readers[0], "path")
    assert {row["change"] for row in [*same["rows"], *same["totals"]]} == {"same"}
    assert sum(row["a_count"] for row in same["rows"]) == pytest.approx(
        sum(line["a_count"] for line in same["totals"][1:]), rel=1e-3
    )


@pytest.mark.parametrize(
    ("sources", "warned"),
    [(("sdk", "pyspy"), True), (("import", "sdk"), True), (("sdk", "sdk"), False), (("", "sdk"), False)],
)
def test_traces_of_different_sources_are_compared_with_a_warning(
    tmp_path: Path, sources: tuple[str, str], warned: bool
) -> None:
    first, second = (
        TraceReader(store(table_of(steps_of([100] * 5)), tmp_path / str(number), source=source))
        for number, source in enumerate(sources)
    )
    answer = diff(first, second)
    assert answer["sources"] == [source or None for source in sources]
    says = answer["message"] or ""
    assert says.startswith(f"warning: A was recorded by {sources[0]}, B by {sources[1]}") is warned
    assert bool(answer["message"]) is warned


def test_two_remarks_are_two(tmp_path: Path) -> None:
    first, second = (
        TraceReader(store(table_of(steps_of([100] * count)), tmp_path / source, source=source))
        for count, source in ((2, "sdk"), (5, "pyspy"))
    )
    said = diff(first, second)["message"]
    assert re.fullmatch(r"warning: A was recorded by sdk, B by pyspy, .* one source; fewer than \d steps .*", said)
