"""Detectors that look at run times, samples and event loops of threads, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from profd.answers.detectors import (
    cpu_contention,
    event_loop,
    python_functions,
)
from profd.answers.finding import Silence, Verdict
from profd.events import Kind, Tracks
from profd.model.run_times import RunTimes, ThreadTimes

from tests.support.stepped_traces import MEASURED, SAMPLED, STEP_US, US, call, facts, training
from tests.support.tables import Event
from tests.support.verdicts import Look, found, silent

TRACKS = Tracks(threads=[{"id": 7, "process": 0, "name": "MainThread"}])


def times(queued: int) -> RunTimes:
    ms = 1_000_000
    return RunTimes(1000 * ms, 4, [ThreadTimes(7, "python", 1000 * ms, 300 * ms, queued * ms)])


@pytest.mark.parametrize(("queued", "expected"), [(100, True), (99, False)])
def test_a_thread_that_waits_for_a_cpu(queued: int, expected: bool, tmp_path: Path) -> None:
    trace = facts(training(lambda n: [], steps=100), tmp_path, capture="c1", run_times=times(queued), tracks=TRACKS)
    verdict = cpu_contention.look(trace)
    if not expected:
        assert silent(verdict)
        return
    finding = found(verdict)
    assert finding.bound_ns == 99 * STEP_US * US // 10
    assert "MainThread waits for a CPU 10 % of the window: the program uses 0.3 of 4 cores" in finding.sentence


def test_a_thread_with_a_long_name_has_the_begin_of_it(tmp_path: Path) -> None:
    tracks = Tracks(threads=[{"id": 7, "process": 0, "name": "x" * 5000}])
    trace = facts(training(lambda n: [], steps=100), tmp_path, capture="c1", run_times=times(100), tracks=tracks)
    assert found(cpu_contention.look(trace)).sentence.startswith(f"{'x' * 39}… waits for a CPU")


def test_a_thread_waits_for_a_cpu_no_longer_than_the_window(tmp_path: Path) -> None:
    """GIVEN the kernel's count of its waits is a little more than the time between two looks at it."""
    ms = 1_000_000
    of = RunTimes(100 * ms, 2, [ThreadTimes(7, "python", 100 * ms, ms, 101 * ms)])
    trace = facts(training(lambda n: [], steps=100), tmp_path, capture="c1", run_times=of, tracks=TRACKS)
    finding = found(cpu_contention.look(trace))
    assert finding.sentence.startswith("MainThread waits for a CPU 100 % of the window")
    assert finding.bound_ns == 99 * STEP_US * US


@pytest.mark.parametrize(
    ("cores", "siblings_ran", "advised"), [(1, 0, "cgroup"), (1, 600, "fewer threads"), (4, 0, "cgroup")]
)
def test_fewer_threads_are_advised_where_others_of_the_program_run(
    cores: int, siblings_ran: int, advised: str, tmp_path: Path
) -> None:
    """GIVEN a thread that ran for 900 ms less what its siblings did WHEN it waited for 100 ms THEN the advice
    depends on who had that time."""
    ms = 1_000_000
    mine = ThreadTimes(7, "python", 1000 * ms, (900 - siblings_ran) * ms, 100 * ms)
    of = RunTimes(1000 * ms, cores, [mine, ThreadTimes(8, "pool", 1000 * ms, siblings_ran * ms, 0)])
    trace = facts(training(lambda n: [], steps=100), tmp_path, capture="c1", run_times=of, tracks=TRACKS)
    assert advised in found(cpu_contention.look(trace)).confirm


DUMPS, METRIC = "json/encoder.py(205): JSONEncoder.iterencode", "/home/ann/train.py(10): Metric.compute"


def sampled(n: int, lasts: float) -> list[Event]:
    """An operator of 500 us, and then a function, for so long, that calls the standard library, as samples see them."""
    metric = call(METRIC, n * STEP_US + 400, 100 + lasts, Kind.SAMPLE, thread=1)
    dumps = call(DUMPS, n * STEP_US + 400, 100 + lasts, Kind.SAMPLE, thread=1, parent=metric)
    return [call("aten::mm", n * STEP_US, 500), metric, dumps]


def of_samples(lasts: float, ran: int, path: Path) -> Verdict:
    """Of a thread that was off the CPU the rest of its window."""
    run_times = RunTimes(
        lasted_ns=1000, threads=[ThreadTimes(id=7, name="python", lasted_ns=1000, ran_ns=ran, queued_ns=0)]
    )
    events = training(lambda n: sampled(n, lasts))
    return python_functions.look(facts(events, path, tracks=SAMPLED, run_times=run_times))


def test_a_function_that_samples_see_outside_operators(tmp_path: Path) -> None:
    finding = found(of_samples(300, 1000, tmp_path))
    assert finding.bound_ns == MEASURED * 300 * US
    assert finding.sentence.startswith("Metric.compute (train.py:10) takes 30 % of the time of MainThread, in Python")


@pytest.mark.parametrize(("lasts", "ran"), [(249, 1000), (300, 940)], ids=["short", "may-sleep"])
def test_functions_that_take_little_of_the_time(lasts: float, ran: int, tmp_path: Path) -> None:
    assert silent(of_samples(lasts, ran, tmp_path))


def test_what_the_garbage_collector_takes_is_not_the_function_s(tmp_path: Path) -> None:
    """GIVEN a function in which samples see 300 us, of which 100 are a collection THEN the rest is its own."""
    run_times = RunTimes(
        lasted_ns=1000, threads=[ThreadTimes(id=7, name="python", lasted_ns=1000, ran_ns=1000, queued_ns=0)]
    )

    def asked(collects: float) -> Verdict:
        def rows(n: int) -> list[Event]:
            return [*sampled(n, 300), call("gc: generation 2", n * STEP_US + 600, collects, Kind.USER_ANNOTATION)]

        traced = facts(training(rows), tmp_path / str(collects), tracks=SAMPLED, run_times=run_times)
        return python_functions.look(traced)

    assert found(asked(40)).bound_ns == MEASURED * 260 * US
    assert silent(asked(100))


def test_the_engine_of_autograd_is_no_function_that_computes_in_python(tmp_path: Path) -> None:
    """GIVEN samples see torch's call of its engine for 40 % of the time, as where DDP waits in it THEN silence."""
    times = RunTimes(lasted_ns=1000, threads=[ThreadTimes(7, "python", 1000, 1000, 0)])

    def asked(name: str) -> Verdict:
        rows = training(lambda n: [call(name, n * STEP_US, 400, Kind.SAMPLE, thread=1)])
        return python_functions.look(facts(rows, tmp_path / name.rpartition(" ")[2], tracks=SAMPLED, run_times=times))

    assert silent(asked("torch/autograd/graph.py(966): _engine_run_backward"))
    assert found(asked("torch/autograd/graph.py(966): mine"))


def test_functions_that_nobody_sampled(look: Look) -> None:
    verdict = look(python_functions, training(lambda n: []))
    assert isinstance(verdict, Silence)
    assert "samples" in verdict.lacking


def test_a_thread_of_profd_is_never_blamed(tmp_path: Path) -> None:
    """GIVEN no steps, and a thread of profd busier than the program's own WHEN asked THEN it is not looked at."""
    tracks = Tracks(
        threads=[{"id": 7, "process": 0, "name": "MainThread"}, {"id": 8, "process": 0, "name": "profd-agent"}]
    )
    seen = call("/opt/site/profclient/gpu.py(36): start", 0, 1000, Kind.SAMPLE, thread=1)
    own = call(METRIC, 0, 400, Kind.SAMPLE)

    def asked(theirs: str) -> Verdict:
        threads = [ThreadTimes(8, theirs, 1000, 1000, 0), ThreadTimes(7, "python", 1000, 900, 0)]
        path = tmp_path / theirs
        return python_functions.look(facts([seen, own], path, tracks=tracks, run_times=RunTimes(1000, threads=threads)))

    assert found(asked("profd-agent")).numbers["name"] == METRIC
    assert found(asked("worker")).sentence.startswith("start (gpu.py:36) takes 100 %")


RUN = "asyncio/events.py(78): Handle._run"
FETCH, SELECT = "/home/ann/server.py(12): fetch", "selectors.py(451): EpollSelector.select"


def looped(spent: float, ran: int, looks: int, below: str, path: Path, states: str = "") -> Verdict:
    """A callback that takes so much of 1000 us, in the standard library; then the loop waits for work."""
    loop = call("/home/ann/server.py(1): <module>", 0, 1000, Kind.SAMPLE, thread=1)
    run = call(below, 0, spent, Kind.SAMPLE, thread=1, parent=loop)
    fetch = call(FETCH, 0, spent, Kind.SAMPLE, thread=1, parent=run)
    reads = call("socket.py(693): SocketIO.readinto", 0, spent, Kind.SAMPLE, thread=1, parent=fetch)
    waits = call(SELECT, spent, 1000 - spent, Kind.SAMPLE, thread=1, parent=loop)
    times = ThreadTimes(7, "python", 1000, ran, 100, looks=looks, in_gil=5, states=states)
    looked = [n * 50 * US for n in range(len(states))]
    events = [loop, run, fetch, reads, waits]
    of = RunTimes(1000, threads=[times], looked_ns=looked)
    return event_loop.look(facts(events, path, tracks=SAMPLED, run_times=of))


def test_a_callback_that_blocks_the_event_loop(tmp_path: Path) -> None:
    finding = found(looped(700, 100, 0, RUN, tmp_path))
    assert finding.sentence.startswith(
        "fetch (server.py:12) blocks asyncio's event loop: it takes 70 % of the time of MainThread and waits for 50 %"
    )
    assert (finding.bound_ns, finding.numbers["waits_ns"]) == (700 * US, 500 * US)


@pytest.mark.parametrize(
    ("spent", "ran", "looks", "below"),
    [(700, 501, 0, RUN), (299, 100, 0, RUN), (700, 100, 10, RUN), (700, 100, 0, "/home/ann/server.py(3): main")],
    ids=["computes", "waits-for-work", "wants-the-gil", "no-loop"],
)
def test_event_loops_that_nothing_blocks(spent: float, ran: int, looks: int, below: str, tmp_path: Path) -> None:
    assert silent(looped(spent, ran, looks, below, tmp_path))


@pytest.mark.parametrize(
    ("states", "waits"),
    [("." * 7 + "r" * 7 + "." * 6, 350), ("r" * 13 + "....", None), ("ggggggg.rrrrrr", None)],
)
def test_looks_say_what_a_callback_does_on_a_busy_host(states: str, waits: int | None, tmp_path: Path) -> None:
    """GIVEN a thread that is ready most of the time WHEN it was looked at in the function THEN that is believed."""
    verdict = looped(700, 800, 0, RUN, tmp_path, states)
    if waits is None:
        assert silent(verdict)
    else:
        assert found(verdict).numbers["waits_ns"] == waits * US


def test_what_a_forked_process_does_is_not_its_parents(tmp_path: Path) -> None:
    """GIVEN a worker of multiprocessing, forked below the module WHEN it sends THEN the module is not blamed."""
    module = call("/home/ann/pool.py(1): <module>", 0, 1000, Kind.SAMPLE, thread=1)
    began = call(
        "multiprocessing/process.py(303): BaseProcess._bootstrap", 0, 1000, Kind.SAMPLE, thread=1, parent=module
    )
    sends = call("multiprocessing/connection.py(381): Connection._send", 0, 600, Kind.SAMPLE, thread=1, parent=began)
    work = call("/home/ann/pool.py(7): work", 600, 400, Kind.SAMPLE, thread=1, parent=began)
    events = [module, began, sends, work]
    ran = RunTimes(1000, threads=[ThreadTimes(7, "python", 1000, 1000, 0)])
    seen = facts(events, tmp_path, tracks=SAMPLED, run_times=ran)
    names = [name for name, _, _ in seen.sampled_in(seen.measured.spans)]
    assert names == [sends.name, work.name]


def test_run_times_that_are_not_known(look: Look) -> None:
    verdict = look(cpu_contention, training(lambda n: []))
    assert isinstance(verdict, Silence)
    assert "an imported trace has no run times" in verdict.lacking
