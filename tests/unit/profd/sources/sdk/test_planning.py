"""What a request would mean for an attached process."""

from __future__ import annotations

import pytest
from profd.agents.protocol import Hello
from profd.capture.model import Options, Reason
from profd.limits import CAPTURE_WINDOW_MAX_NS
from profd.sources.sdk import planning

SECOND = 1_000_000_000


def hello(*can: str, framework: str = "") -> Hello:
    return Hello((1, 1), 1, framework=framework, can=frozenset(("ranges", *can)))


def plan(options: Options, said: Hello, rate: planning.Rate | None = None) -> planning.Plan:
    return planning.plan(options, said, 1 << 26, rate)


def test_options_in_the_protocols_words() -> None:
    assert planning.words(Options()) == ("ranges", "torch:auto")
    assert planning.words(Options(modules=True, c_calls=True, shapes=True, torch="profiler", force=True)) == (
        "ranges",
        "shapes",
        "stacks",
        "c_calls",
        "modules",
        "force",
        "torch:profiler",
    )


def test_ranges_of_a_plain_process_are_whole() -> None:
    found = plan(Options(duration_ns=2 * SECOND), hello("stacks"))
    assert found.serves
    assert (found.not_honoured, found.risks, found.memory_bytes) == ((), (), 1 << 26)
    assert found.events is None
    assert found.deadline_ns > 2 * SECOND


RATE = planning.Rate(events=1e-3, seconds=1e-10)  # a tenth of one thread's time


def test_the_last_trace_tells_how_many_events_there_will_be_and_what_they_cost() -> None:
    found = plan(Options(duration_ns=2 * SECOND), hello(), RATE)
    assert found.events == 2_000_000
    assert found.trace_bytes == 2_000_000 * planning.EVENT_BYTES
    assert found.cost_ns == SECOND // 5


def test_a_trace_tells_of_requests_that_record_the_same() -> None:
    first = planning.alike(Options(duration_ns=SECOND))
    assert first == planning.alike(Options(duration_ns=2 * SECOND, force=True, strict=True))
    for other in (Options(stacks=True), Options(modules=True), Options(memory=True), Options(shapes=True)):
        assert first != planning.alike(other)


def test_an_open_ended_one_has_a_deadline_and_no_estimate() -> None:
    found = plan(Options(), hello(), RATE)
    assert (found.events, found.trace_bytes, found.cost_ns) == (None, None, None)
    assert found.deadline_ns > CAPTURE_WINDOW_MAX_NS


@pytest.mark.parametrize(
    ("options", "said", "word"),
    [
        (Options(torch="observer"), hello("torch", framework="torch 2.13.0"), "profctl torch build"),
        (Options(torch="profiler"), hello(), "imported torch"),
    ],
)
def test_what_it_cannot_do_at_all_is_refused(options: Options, said: Hello, word: str) -> None:
    found = plan(options, said)
    assert not found.serves
    assert found.refusal_code is Reason.NOT_HONOURED
    assert word in found.refusal


def test_what_is_missing_is_named_option_by_option() -> None:
    asked = Options(stacks=True, modules=True, memory=True, flops=True, shapes=True, native=True)
    found = plan(asked, hello(framework="torch 2.13.0"))
    assert [sentence.partition(":")[0] for sentence in found.not_honoured] == [
        "stacks",
        "modules",
        "shapes",
        "flops",
        "memory",
        "native",
    ]
    assert plan(asked, hello("stacks", "modules", "observer", framework="torch 2.13.0")).not_honoured == (
        "native: it records Python stacks only; --source pyspy --native samples native ones",
    )


def test_c_calls_come_with_stacks_only() -> None:
    assert "add --stacks" in plan(Options(c_calls=True), hello("stacks")).not_honoured[0]
    assert not plan(Options(c_calls=True, stacks=True), hello("stacks")).not_honoured


def test_torchs_own_profiler_is_a_risk_where_it_would_be_used() -> None:
    def risks(options: Options, said: Hello) -> str:
        return " ".join(plan(options, said).risks)

    torch = hello("torch", framework="torch 2.13.0")
    both = hello("torch", "observer", framework="torch 2.13.0")
    assert "GIL" in risks(Options(), torch)
    assert "GIL" in risks(Options(torch="profiler"), both)
    assert "GIL" not in risks(Options(), both)
    assert "GIL" not in risks(Options(), hello("torch"))  # it can import torch, and has not


def test_the_collector_is_told_what_to_make_of_cuda_graphs() -> None:
    whole = planning.Collecting(whole_graphs=True)
    assert planning.words(Options(), {"cuda"}, collecting=whole) == ("cuda:whole",)
    assert "cuda:whole" in planning.words(Options(), {"ranges", "cuda"}, cuda=True, collecting=whole)
    both = planning.Collecting(whole_graphs=True, cupti_python=True)
    assert planning.words(Options(), {"cuda"}, collecting=both) == ("cuda:whole+cupti-python",)
    theirs = planning.Collecting(cupti_python=True)
    assert planning.words(Options(), {"cuda"}, collecting=theirs) == ("cuda:cupti-python",)
    assert "cuda" in planning.words(Options(), {"ranges", "cuda"}, cuda=True)
