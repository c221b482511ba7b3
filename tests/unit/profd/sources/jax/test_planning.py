"""What a request would mean, said before anything is touched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.capture.choice import not_honoured
from profd.limits import CAPTURE_WINDOW_MAX_NS, JAX_WINDOWS_MAX
from profd.model.capture import Options
from profd.sources.jax.planning import DECLARATION, SECOND, WINDOW_NS, plan, windows

HALF = Options(duration_ns=SECOND // 2)
TEN = Options(duration_ns=10 * SECOND)


def named(options: Options) -> set[str]:
    return {text.partition(":")[0] for text in not_honoured(DECLARATION, options, plan(options, None, 0))}


def test_half_a_second_is_one_window() -> None:
    cut = windows(HALF)
    assert cut.single
    assert cut.count == 1
    assert named(HALF) == set()


def test_more_is_cut_unless_forced() -> None:
    cut = windows(TEN)
    assert (cut.one_ns, cut.count, cut.single) == (WINDOW_NS, 20, False)
    assert named(TEN) == {"duration"}
    forced = Options(duration_ns=10 * SECOND, force=True)
    assert windows(forced).single
    assert named(forced) == set()


def test_many_windows_are_spread_over_the_time() -> None:
    cut = windows(Options(duration_ns=600 * SECOND))
    assert cut.count == JAX_WINDOWS_MAX
    assert cut.period_ns == 10 * SECOND


@given(st.integers(1, CAPTURE_WINDOW_MAX_NS), st.booleans())
def test_windows_fit_their_limits_property(duration_ns: int, force: bool) -> None:
    options = Options(duration_ns=duration_ns, force=force)
    cut = windows(options)
    assert cut.one_ns <= cut.period_ns
    assert cut.count <= JAX_WINDOWS_MAX
    assert cut.count * cut.period_ns >= duration_ns
    assert force or cut.one_ns <= WINDOW_NS
    assert plan(options, None, 0).deadline_ns > duration_ns


def test_the_last_seconds_are_snapshots_of_half_a_second() -> None:
    asked = Options(last_ns=5 * SECOND)
    cut = windows(asked)
    assert (cut.one_ns, cut.last_ns, cut.open_ended, cut.single) == (WINDOW_NS, 5 * SECOND, True, False)
    assert windows(Options(last_ns=5 * SECOND, force=True)).one_ns == 5 * SECOND
    assert windows(Options(last_ns=5 * SECOND, duration_ns=SECOND)).total_ns == SECOND
    assert windows(Options(last_ns=SECOND // 10)).one_ns == SECOND // 10
    assert named(asked) == set()
    answer = plan(asked, 30 / SECOND, 0)
    assert answer.events == 5  # of an event a second
    assert answer.memory_bytes is not None
    assert any(risk.startswith("last:") for risk in answer.risks)


@pytest.mark.parametrize("option", ["shapes", "memory", "modules", "flops", "native", "c_calls"])
def test_what_it_cannot_record_is_named(option: str) -> None:
    assert named(Options(duration_ns=1, **{option: True})) == {option}  # type: ignore[arg-type]


def test_c_calls_come_with_stacks_and_operators_of_torch_never() -> None:
    assert named(Options(duration_ns=1, stacks=True, c_calls=True, torch="observer")) == {"torch"}
    assert named(Options(duration_ns=1, port=9999, collect_timeout_ns=1, last_ns=SECOND)) == set()


def test_stacks_are_recorded_and_cost() -> None:
    asked = Options(duration_ns=SECOND // 2, stacks=True)
    answer = plan(asked, None, 0)
    assert named(asked) == set()
    assert any("stacks" in risk for risk in answer.risks)


def test_the_estimate_is_the_worst_case_until_a_trace_has_been_seen() -> None:
    unknown, known = plan(HALF, None, 0), plan(HALF, 30 * 100_000 / SECOND, 0)  # 100k events/s
    assert unknown.events is None
    assert known.events == 50_000
    assert unknown.memory_bytes == 506_000_000
    assert known.memory_bytes == 50_000 * 440


def test_an_agreed_start_is_waited_for() -> None:
    near, far = plan(HALF, None, 0), plan(HALF, None, 100 * SECOND)
    assert far.latency_ns == 100 * SECOND
    assert far.deadline_ns == near.deadline_ns + 100 * SECOND


def test_how_long_collecting_may_take_can_be_said() -> None:
    patient = Options(duration_ns=SECOND, force=True, collect_timeout_ns=300 * SECOND)
    assert windows(patient).collect_seconds(SECOND) == 300
    usual = plan(Options(duration_ns=SECOND, force=True), None, 0)
    assert plan(patient, None, 0).deadline_ns == usual.deadline_ns + (300 - 45) * SECOND
