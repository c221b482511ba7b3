"""Each detector by hand: what it finds, by how much, and what lies just below its rule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from profd.answers.detectors import (
    allocator,
    casts,
    communication,
    copies,
    data_loading,
    garbage,
    host_bound,
    jit_compilation,
    memory_growth,
    optimizer_loop,
    recompilation,
    small_kernels,
    synchronisation,
)
from profd.answers.finding import Finding, Silence
from profd.events import Kind, Tracks
from profd.model.capture import Phase
from profd.model.run_times import RunTimes, ThreadTimes

from tests.support.stepped_traces import BACKWARD, DEVICE, MEASURED, SAMPLED, STEP_US, US, call, facts, kernel, training
from tests.support.tables import Event
from tests.support.verdicts import Look, found, silent

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
COMPILE = "_compile.compile_inner (dynamo_timed)"
COLLECT = "<built-in function collect>"
TRACKS = Tracks(threads=[{"id": 7, "process": 0, "name": "MainThread"}])


@pytest.mark.parametrize(("lasts", "share"), [(100, 0.1), (99, None)])
def test_data_loading_from_a_tenth_on(lasts: int, share: float | None, look: Look) -> None:
    verdict = look(data_loading, training(lambda n: [call(LOADER, n * STEP_US, lasts)]))
    if share is None:
        assert silent(verdict)
        return
    finding = found(verdict)
    assert finding.bound_ns == MEASURED * lasts * US
    assert "10 % of the time (5 batches in 5 steps, 100 us each): give it workers" in finding.sentence
    assert finding.rows == [3, 5, 7, 9, 11]  # the loader of step 0 is row 1: that step warms up


@pytest.mark.parametrize(
    ("looks", "in_gil", "known"),
    [
        (40, 30, "by looks at MainThread, the GIL 75 % of the window"),
        (40, 0, "by looks at MainThread, the GIL 0 % of the window"),
        (40, None, "which was not recorded"),
        (9, 9, "which was not recorded"),
    ],
    ids=["waits", "never", "unknown", "few"],
)
def test_a_loader_that_may_wait_for_the_gil(looks: int, in_gil: int | None, known: str, tmp_path: Path) -> None:
    of = RunTimes(1000, 4, [ThreadTimes(7, "python", 1000, 300, 0, looks, in_gil)])
    loads = training(lambda n: [call(LOADER, n * STEP_US, 300)])
    finding = found(data_loading.look(facts(loads, tmp_path, run_times=of, tracks=TRACKS)))
    assert finding.assumptions == [f"the wait is for data, or for the GIL that another thread holds: {known}"]


def test_data_loading_that_device_work_hides(look: Look) -> None:
    """The loader takes 300 us, and a kernel runs in the first 250 of them."""

    def rows(n: int) -> Iterable[Event]:
        return [call(LOADER, n * STEP_US, 300), *kernel(n * STEP_US, 250)]

    assert silent(look(data_loading, training(rows)))


def test_data_loading_of_another_thread(look: Look) -> None:
    assert silent(look(data_loading, training(lambda n: [call(LOADER, n * STEP_US, 900, thread=BACKWARD)])))


def waits(n: int, *, idle: float = 50, name: str = "cudaStreamSynchronize") -> list[Event]:
    """A kernel up to 400, a wait from 300 to 410, and the next kernel `idle` us after the first one's end."""
    at = n * STEP_US
    item = call("aten::item", at + 290, 130)
    inner = call("aten::_local_scalar_dense", at + 295, 120, parent=item)
    return [
        *kernel(at + 100, 300, launch=at + 10),
        item,
        inner,
        call(name, at + 300, 110, Kind.RUNTIME, parent=inner),
        *kernel(at + 400 + idle, 500, launch=at + 400 + idle - 1),
    ]


@pytest.mark.parametrize("name", ["cudaStreamSynchronize", "hipDeviceSynchronize", "cuCtxSynchronize"])
def test_devices_that_ran_dry_in_a_wait(name: str, look: Look) -> None:
    finding = found(look(synchronisation, training(lambda n: waits(n, name=name))))
    assert finding.bound_ns == MEASURED * 49 * US  # up to the launch
    assert "5 % of the time" in finding.sentence
    assert "(1 waits a step, 100 % in aten::item)" in finding.sentence
    assert len(finding.rows) == 5


@pytest.mark.parametrize(
    "rows",
    [
        lambda n: waits(n, idle=15),  # 1.4 % of the time
        lambda n: waits(n) if n != 3 else [],  # not in each step
        lambda n: waits(n, name="cudaEventQuery"),  # nobody stands still
    ],
)
def test_waits_that_cost_little(rows: Any, look: Look) -> None:
    assert silent(look(synchronisation, training(rows)))


@pytest.mark.parametrize(("thread", "blamed"), [("worker", True), ("profd-agent", False)])
def test_waits_of_profd_are_not_the_programs(thread: str, blamed: bool, look: Look) -> None:
    tracks = Tracks(threads=[{"id": 7, "process": 0}, {"id": 8, "process": 0, "name": thread}, {"id": 9, "process": 0}])

    def rows(n: int) -> list[Event]:
        return [replace(event, thread=BACKWARD) if "Synchronize" in event.name else event for event in waits(n)]

    assert isinstance(look(synchronisation, training(rows), tracks=tracks), Finding) is blamed


def idle(n: int, *, late: float, launched_before: bool = False) -> list[Event]:
    """Devices are idle for 200 us, of which the next launch came `late` us after their begin."""
    at = n * STEP_US
    launch = at + 300 if launched_before else at + 400 + late
    return [*kernel(at + 10, 390, launch=at + 5), *kernel(at + 600, 409, launch=launch)]


def test_devices_wait_for_launches(look: Look) -> None:
    finding = found(look(host_bound, training(lambda n: idle(n, late=150))))
    # Within a step, and the microsecond between two of them is none: the launch came before.
    assert finding.bound_ns == MEASURED * 150 * US
    assert "15 % of the time: the host" in finding.sentence
    assert finding.numbers["unexplained_ns"] == finding.bound_ns


@pytest.mark.parametrize("rows", [lambda n: idle(n, late=99), lambda n: idle(n, late=0, launched_before=True)])
def test_devices_that_do_not_wait_for_the_host(rows: Any, look: Look) -> None:
    assert silent(look(host_bound, training(rows)))


@pytest.mark.parametrize(("lasts", "symptom"), [(120, True), (38, True), (37, False)])
def test_what_a_loader_explains_is_said(lasts: int, symptom: bool, look: Look) -> None:
    """A quarter of the late stretches is enough for a symptom."""

    def rows(n: int) -> list[Event]:
        return [*idle(n, late=150), call(LOADER, n * STEP_US + 400, lasts)]

    finding = found(look(host_bound, training(rows)))
    assert finding.numbers["unexplained_ns"] == MEASURED * (150 - lasts) * US
    assert f"{(150 - lasts) / 10:.0f} % outside of data loading and waits" in finding.sentence
    assert ("data-loading" in finding.symptom_of) == symptom
    assert "synchronisation" not in finding.symptom_of


def small(n: int, *, lasts: float, large: float = 0) -> list[Event]:
    """20 kernels of so many us, each launched when the one before has ended 25 us ago; and a large one."""
    at = n * STEP_US
    rows = [row for k in range(20) for row in kernel(at + 30 * k + 26, lasts, launch=at + 30 * k + 25)]
    return [*rows, *(kernel(at + 620, large, launch=at + 600) if large else [])]


def test_kernels_too_small(look: Look) -> None:
    finding = found(look(small_kernels, training(lambda n: small(n, lasts=4))))
    assert "20 a step, half of them below 4 us" in finding.sentence
    # Between the kernels of a step, before the first one of all, and from each step's last one to the next's first.
    assert finding.bound_ns == (MEASURED * 19 * 25 + 25 + 4 * 425) * US


@pytest.mark.parametrize(
    "rows",
    [
        lambda n: small(n, lasts=11),  # not small
        lambda n: small(n, lasts=4, large=300),  # a quarter of the kernels' time is not in small ones
    ],
)
def test_kernels_large_enough(rows: Any, look: Look) -> None:
    assert silent(look(small_kernels, training(rows)))


def talks(n: int, *, alone: float, name: str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL") -> list[Event]:
    at = n * STEP_US
    return [*kernel(at, 500), *kernel(at + 400, 100 + alone, name=name)]


def test_collectives_that_nothing_hides(look: Look) -> None:
    finding = found(look(communication, training(lambda n: talks(n, alone=60))))
    assert finding.bound_ns == MEASURED * 60 * US
    assert "6 % of the time" in finding.sentence
    assert "38 % of all communication is exposed" in finding.sentence


@pytest.mark.parametrize("rows", [lambda n: talks(n, alone=49), lambda n: talks(n, alone=300, name="reduce")])
def test_collectives_that_are_hidden_or_none(rows: Any, look: Look) -> None:
    assert silent(look(communication, training(rows)))


def copies_of(n: int, *, alone: float, name: str = "Memcpy HtoD (Pageable -> Device)") -> list[Event]:
    at = n * STEP_US
    return [*kernel(at, 500), call(name, at + 450, 50 + alone, Kind.MEMCPY, DEVICE)]


def test_copies_that_no_kernel_hides(look: Look) -> None:
    finding = found(look(copies, training(lambda n: copies_of(n, alone=30))))
    assert finding.bound_ns == MEASURED * 30 * US
    assert "most in Memcpy HtoD (Pageable -> Device) (pageable memory: pin it)" in finding.sentence


def test_copies_say_who_called_most_of_them(look: Look) -> None:
    """GIVEN two copies a step, of two operators WHEN the shorter one runs alone for longer THEN its caller is named."""

    def rows(n: int) -> list[Event]:
        events = kernel(n * STEP_US, 500)
        for op, at, lasts in (("aten::to", 490, 60), ("aten::cpu", 100, 300)):
            outer = call(op, n * STEP_US + at - 5, 4)
            inner = call("aten::copy_", n * STEP_US + at - 4, 3, parent=outer)
            copied = call("cudaMemcpyAsync", n * STEP_US + at - 3, 1, Kind.RUNTIME, parent=inner)
            name = "Memcpy HtoD (Pageable -> Device)"
            events += [outer, inner, copied, call(name, n * STEP_US + at, lasts, Kind.MEMCPY, DEVICE, linked=copied)]
        return events

    assert found(look(copies, training(rows))).sentence.endswith("(pageable memory: pin it), called by aten::to.")


@pytest.mark.parametrize("case", [{"alone": 19}, {"alone": 300, "name": "Memcpy DtoD (Device -> Device)"}])
def test_copies_that_cost_little(case: Any, look: Look) -> None:
    assert silent(look(copies, training(lambda n: copies_of(n, **case))))


def test_compilations(look: Look) -> None:
    rows = training(lambda n: [call(COMPILE, n * STEP_US, 200)] if n in (0, 2, 3) else [])
    finding = found(look(recompilation, rows))
    assert (finding.bound_ns, finding.steps) == (2 * 200 * US, [2, 3])
    assert silent(look(recompilation, training(lambda n: [call(COMPILE, n * STEP_US, 900)][n:])))


def compiled(lasts: float, calls: int = 2) -> list[Event]:
    """A window of 1 ms in which JAX compiles so often, for a function that it calls around that."""
    events = [call("window", 0, 1000, Kind.USER_ANNOTATION)]
    for number in range(calls):
        around = call("PjitFunction(update)", number * 500, lasts)
        events += [around, call("backend_compile_and_load", number * 500, lasts, parent=around)]
    return events


def test_functions_that_jax_compiles_again(look: Look) -> None:
    finding = found(look(jit_compilation, compiled(50)))
    assert finding.bound_ns == 100 * US
    assert "compiles 2 times in the window: 10 % of the time, 50 us each, most of it for update:" in finding.sentence


@pytest.mark.parametrize("events", [compiled(49), compiled(200, calls=1)], ids=["short", "once"])
def test_functions_that_jax_compiles_as_it_should(events: list[Event], look: Look) -> None:
    assert silent(look(jit_compilation, events))


def parts_of_compilations(lasts: float) -> tuple[list[Event], dict[str, Any]]:
    """Two windows of 250 us with a gap between, each with a part of a compilation that is longer than it."""
    events = [call("window", 0, 1000, Kind.USER_ANNOTATION)]
    for at in (0, 750):
        passes = call("HLO passes through layout assignment (jit_update)", at, lasts / 2)
        events += [passes, call("TaskDispatcher::dispatch", at + lasts / 2, lasts / 2, thread=BACKWARD)]
    return events, {"waterfall": [Phase("window", 500 * US), Phase("gaps", 500 * US)]}


def test_compilations_that_are_longer_than_a_window_of_jax(look: Look) -> None:
    events, meta = parts_of_compilations(100)
    finding = found(look(jit_compilation, events, **meta))
    assert "JAX compiles in the window: 40 % of what was recorded, most of it for update:" in finding.sentence
    assert (finding.numbers["compilations"], finding.bound_ns) == (0, 400 * US)
    assert silent(look(jit_compilation, parts_of_compilations(24)[0], **meta))


def test_parts_within_the_one_compilation_of_a_window(look: Look) -> None:
    inner = call("CpuCompiler::RunBackend", 10, 180)
    assert silent(look(jit_compilation, [*compiled(200, calls=1), inner]))


def test_collections_that_the_program_asks_for(look: Look) -> None:
    def rows(n: int) -> list[Event]:
        within = [call(COMPILE, n * STEP_US + 500, 300), call(COLLECT, n * STEP_US + 600, 100, Kind.PYTHON_FUNCTION)]
        return [call(COLLECT, n * STEP_US, 40, Kind.PYTHON_FUNCTION), *within]

    finding = found(look(garbage, training(rows)))
    assert finding.bound_ns == MEASURED * 40 * US  # what Dynamo collects is its own
    assert finding.steps == [1, 2, 3, 4, 5]
    rare = training(lambda n: [call(COLLECT, n * STEP_US, 9, Kind.PYTHON_FUNCTION)])
    assert silent(look(garbage, rare))


def test_collections_of_the_interpreter_s_own(look: Look) -> None:
    def rows(n: int) -> list[Event]:
        return [call(f"gc: generation {k}", n * STEP_US + 500 * k, 40, Kind.USER_ANNOTATION) for k in range(2)]

    finding = found(look(garbage, training(rows)))
    assert finding.bound_ns == MEASURED * 80 * US
    assert finding.sentence.startswith("Python's garbage collector takes 8 % of the time (10 collections in 5 of 5 st")
    assert "gc.freeze()" in finding.confirm


def test_a_collection_within_the_call_that_asks_for_it_counts_once(look: Look) -> None:
    def rows(n: int) -> list[Event]:
        asked = call(COLLECT, n * STEP_US, 40, Kind.PYTHON_FUNCTION)
        within = call("gc: generation 2", n * STEP_US + 1, 38, Kind.USER_ANNOTATION)
        within.fields["parent"] = asked
        return [asked, within]

    finding = found(look(garbage, training(rows)))
    assert finding.bound_ns == MEASURED * 40 * US
    assert finding.sentence.startswith("gc.collect takes 4 % of the time (5 calls in 5 of 5 steps")


def full_collections(n: int, *, lasts: float = 10_000, smaller: bool = False) -> list[Event]:
    """A full collection in the middle of each step of 20 ms, in a function that samples see; and a smaller one."""
    at = n * 20_000
    rows = [
        call("/home/ann/train.py(20): free_memory", at + 5_000, lasts, Kind.SAMPLE, thread=1),
        call("gc: generation 2", at + 5_000, lasts, Kind.USER_ANNOTATION),
    ]
    return [*rows, *([call("gc: generation 1", at + 1_000, 1, Kind.USER_ANNOTATION)] if smaller and n == 3 else [])]


def collected(path: Path, **case: Any) -> str:
    events = [event for n in range(6) for event in full_collections(n, **case)]
    steps = [call(f"ProfilerStep#{n}", n * 20_000, 20_000, Kind.USER_ANNOTATION) for n in range(6)]
    return found(garbage.look(facts([*events, *steps], path, tracks=SAMPLED))).sentence


def test_full_collections_without_smaller_ones_between_were_asked_for(tmp_path: Path) -> None:
    said = "gc.collect takes 50 % of the time (5 calls in 5 of 5 steps, 10 ms each), in free_memory (train.py:20)."
    assert collected(tmp_path) == said


@pytest.mark.parametrize("case", [{"lasts": 9_999}, {"smaller": True}], ids=["short", "smaller"])
def test_full_collections_that_may_be_the_interpreter_s_own(case: Any, tmp_path: Path) -> None:
    said = collected(tmp_path, **case)
    assert said.startswith("Python's garbage collector takes 50 % of the time (")
    assert "free_memory" not in said


@pytest.mark.parametrize(("times", "lasts", "expected"), [(10, 20, True), (9, 90, False), (10, 19, False)])
def test_conversions(times: int, lasts: float, expected: bool, look: Look) -> None:
    def rows(n: int) -> list[Event]:
        return [call("aten::_to_copy", n * STEP_US + 95 * k, lasts) for k in range(times)]

    verdict = look(casts, training(rows))
    assert isinstance(verdict, Finding) == expected
    if expected:
        assert found(verdict).bound_ns == MEASURED * times * lasts * US


def updates(n: int, *, calls: int = 50, below: str = "") -> list[Event]:
    at = n * STEP_US + 500
    rows = [call("Optimizer.step#Adam.step", at, 400, Kind.USER_ANNOTATION)]
    for k in range(calls):
        one = call("aten::mul_", at + 5 + 7 * k, 2)
        if below:
            around = call(below, at + 4 + 7 * k, 4)
            one.fields["parent"] = around
            rows.append(around)
        rows.append(one)
    return rows


def test_an_optimizer_that_loops(look: Look) -> None:
    finding = found(look(optimizer_loop, training(updates)))
    assert finding.bound_ns == MEASURED * 400 * US
    assert "Adam.step updates parameters one by one: 50 calls a step, 40 % of the time" in finding.sentence


@pytest.mark.parametrize("case", [{"calls": 49}, {"below": "aten::_foreach_mul_"}])
def test_an_optimizer_that_does_not_loop(case: Any, look: Look) -> None:
    assert silent(look(optimizer_loop, training(lambda n: updates(n, **case))))


def test_memory_that_is_asked_of_the_driver(look: Look) -> None:
    """Not counted: the first step, which is not measured, and the second."""
    rows = training(lambda n: [call("cudaMalloc", n * STEP_US, 30, Kind.RUNTIME)])
    finding = found(look(allocator, rows))
    assert (finding.numbers["calls"], finding.bound_ns) == (4, 4 * 30 * US)
    early = training(lambda n: [call("cudaMalloc", n * STEP_US, 300, Kind.RUNTIME)] if n < 2 else [])
    assert silent(look(allocator, early))


def memory(n: int, kept: int, *, at: float = 500) -> list[Event]:
    """Each step allocates 8 MiB and frees all but `kept` bytes of it."""
    size = 8 << 20
    given = call("[memory]", n * STEP_US + at, 0, Kind.MEMORY, bytes=size)
    back = call("[memory]", n * STEP_US + at + 200, 0, Kind.MEMORY, bytes=kept - size)
    return [given, back]


def test_memory_that_is_kept(look: Look) -> None:
    finding = found(look(memory_growth, training(lambda n: memory(n, 1 << 20), steps=9)))
    assert finding.numbers == {"grown_bytes": 7 << 20, "steps": 7}
    assert finding.bound_ns is None


@pytest.mark.parametrize(
    "kept",
    [
        lambda n: 0,
        lambda n: 1000,  # less than a MiB in all
        lambda n: (1 << 20) if n % 2 else -(1 << 20),  # comes and goes
        lambda n: (4 << 20) if n < 4 else 0,  # a cache that is full
    ],
)
def test_memory_that_does_not_grow(kept: Any, look: Look) -> None:
    assert silent(look(memory_growth, training(lambda n: memory(n, kept(n)), steps=13)))


def test_memory_that_nobody_recorded(look: Look) -> None:
    verdict = look(memory_growth, training(lambda n: [], steps=9))
    assert isinstance(verdict, Silence)
    assert "--memory" in verdict.lacking
