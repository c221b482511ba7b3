"""What a request would mean for an attached process."""

from __future__ import annotations

import pytest
from profd.attached.agents.protocol import Hello
from profd.attached.sdk import planning
from profd.capture.choice import not_honoured
from profd.limits import CAPTURE_WINDOW_MAX_NS
from profd.model.capture import Options, Reason
from profd.model.shortfall import NO_OPERATORS, OBSERVER_FIX
from profd.sources.base import Plan

SECOND = 1_000_000_000


def hello(*can: str, framework: str = "") -> Hello:
    return Hello((1, 1), 1, framework=framework, can=frozenset(("ranges", *can)))


def plan(options: Options, said: Hello, rate: planning.EarlierTrace | None = None) -> Plan:
    return planning.plan(options, said, 1 << 26, rate)


def sentences(options: Options, found: Plan) -> tuple[str, ...]:
    """What is not honoured."""
    return not_honoured(planning.DECLARATION, options, found)


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
    assert (sentences(Options(duration_ns=2 * SECOND), found), found.risks, found.memory_bytes) == ((), (), 1 << 26)
    assert found.events is None
    assert found.deadline_ns > 2 * SECOND


RATE = planning.EarlierTrace(events=1e-3, seconds=1e-10)  # a tenth of one thread's time


def test_the_last_trace_tells_how_many_events_there_will_be_and_what_they_cost() -> None:
    found = plan(Options(duration_ns=2 * SECOND), hello(), RATE)
    assert found.events == 2_000_000
    assert found.trace_bytes == 2_000_000 * planning.EVENT_BYTES
    assert found.cost_ns == SECOND // 5


def test_an_estimate_has_64_bits_whatever_a_process_says_of_its_window() -> None:
    """It has a place in an answer about many processes, which would fail."""
    found = plan(Options(duration_ns=600 * SECOND), hello(), planning.EarlierTrace(events=1e9, seconds=1e12))
    told = found.events, found.trace_bytes, found.cost_ns
    assert all(number is not None and 0 < number < 1 << 63 for number in told), told


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
    words = [sentence.partition(":")[0] for sentence in sentences(asked, found)]
    assert words == ["torch", "stacks", "shapes", "memory", "modules", "flops", "native"]
    assert sentences(asked, plan(asked, hello("stacks", "modules", "observer", framework="torch 2.13.0"))) == (
        "native: it records Python stacks only; --source pyspy --native samples native ones",
    )


def test_c_calls_come_with_stacks_only() -> None:
    for options, said in ((Options(c_calls=True), ["add --stacks"]), (Options(c_calls=True, stacks=True), [])):
        missing = sentences(options, plan(options, hello("stacks")))
        assert [word in text for word, text in zip(said, missing, strict=True)] == [True] * len(said)


TORCH = hello("torch", framework="torch 2.13.0")
OBSERVED = hello("torch", "observer", framework="torch 2.13.0")


@pytest.mark.parametrize("said", [TORCH, OBSERVED])
def test_torchs_own_profiler_can_crash_the_job_and_is_refused_without_force(said: Hello) -> None:
    refused = plan(Options(torch="profiler"), said)
    assert not refused.serves
    assert "crash" in refused.refusal
    assert "--force" in refused.refusal
    forced = plan(Options(torch="profiler", force=True), said)
    assert forced.serves
    assert "crash" in forced.risks[0]
    assert planning.uses_torch_profiler(Options(torch="profiler", force=True), said)


@pytest.mark.parametrize("said", [TORCH, OBSERVED, hello("torch")])
def test_nothing_else_ever_uses_it(said: Hello) -> None:
    for options in (Options(), Options(force=True), Options(shapes=True), Options(torch="observer")):
        found = plan(options, said)
        assert not planning.uses_torch_profiler(options, said)
        assert not any("crash" in risk for risk in found.risks)


def test_cuda_events_can_end_a_job_that_captures_graphs_and_take_force() -> None:
    asked, forced = Options(gpu_fallback=True), Options(gpu_fallback=True, force=True)
    assert "--force" in plan(asked, OBSERVED).unserved["gpu_fallback"]
    assert "gpu_fallback" not in planning.words(asked)
    assert "gpu_fallback" not in plan(forced, OBSERVED).unserved
    assert "gpu_fallback" in planning.words(forced)
    assert any("captures a CUDA graph" in risk for risk in plan(forced, OBSERVED).risks)


def test_an_older_agent_is_told_to_use_the_observer_or_nothing() -> None:
    assert planning.words(Options(), {"ranges", "torch"}, torch=True) == ("ranges", "torch:observer")
    asked = Options(torch="profiler", force=True)
    assert planning.words(asked, {"ranges", "torch"}, torch=True) == ("ranges", "force", "torch:profiler")


def test_operators_that_are_missing_are_told_first_with_what_brings_them() -> None:
    asked = Options(stacks=True, shapes=True, memory=True)
    found = planning.plan(asked, TORCH, 1 << 26, None, "it is being built: ask again")
    assert found.serves
    first, *others = sentences(asked, found)
    assert first == f"{NO_OPERATORS} (it is being built: ask again)"
    assert [sentence.partition(":")[0] for sentence in others] == ["stacks", "shapes", "memory"]
    assert sentences(Options(), found) == (first,)
    asked = Options(shapes=True, memory=True)
    assert not sentences(asked, plan(asked, OBSERVED))
    said_by_the_agent = f"{NO_OPERATORS} ({OBSERVER_FIX})"
    assert planning.replaced(said_by_the_agent, "it is being built: ask again") == first


def test_no_collector_is_told_to_record_cuda_graphs_as_one() -> None:
    """A job died of it on a GPU: the setting is named in every plan and trace, and not followed."""
    whole = planning.Collecting(whole_graphs=True)
    assert planning.words(Options(), {"cuda"}, collecting=whole) == ("cuda",)
    assert "cuda" in planning.words(Options(), {"ranges", "cuda"}, cuda=True, collecting=whole)
    [said] = whole.refused()
    assert "gpu.cuda_graphs" in said
    assert "ends a job that replays a CUDA graph made before" in said
    assert planning.Collecting().refused() == ()


def test_the_collector_is_told_of_the_settings() -> None:
    both = planning.Collecting(cupti_python=True, detach=True)
    assert planning.words(Options(), {"cuda"}, collecting=both) == ("cuda:cupti-python+cupti-detach",)
    gone = planning.Collecting(detach=True)
    assert planning.words(Options(), {"cuda"}, collecting=gone) == ("cuda:cupti-detach",)
    theirs = planning.Collecting(cupti_python=True)
    assert planning.words(Options(), {"cuda"}, collecting=theirs) == ("cuda:cupti-python",)
    assert "cuda" in planning.words(Options(), {"ranges", "cuda"}, cuda=True)
