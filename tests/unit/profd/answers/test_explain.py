"""The question `explain`: what is looked at, in which order findings stand, and what an answer without any says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from profd.answers import explain as rules
from profd.answers.explain import explain, ranked
from profd.answers.finding import Finding
from profd.errors import Exhausted
from profd.events import Kind

from tests.support.stepped_traces import STEP_US, US, call, kernel, stored, training
from tests.support.tables import Event

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def loading(n: int) -> list[Event]:
    """200 us of loading while the device waits, and more of waiting that nothing explains."""
    at = n * STEP_US
    return [call(LOADER, at, 200), *kernel(at + 210, 500, launch=at + 205), *kernel(at + 810, 190, launch=at + 805)]


def ids(answer: dict[str, Any]) -> list[str]:
    return [one["id"] for one in answer["findings"]]


@pytest.mark.parametrize("rows", [3, 1000])
def test_causes_stand_before_symptoms(rows: int, tmp_path: Path) -> None:
    """The symptom has the larger bound. The answer is the same however the trace is cut into segments."""
    answer = explain(stored(training(loading), tmp_path, rows))
    assert answer["status"] == "found"
    assert answer["message"] is None
    assert answer["measured"] == {
        "steps": 5,
        "first_step": 1,
        "last_step": 5,
        "steps_left_out": 1,
        "from": "ProfilerStep",
        "duration_ns": 5 * STEP_US * US,
    }
    cause, symptom = answer["findings"]
    assert (cause["id"], cause["rank"], cause["symptom_of"]) == ("data-loading", 1, [])
    assert (symptom["id"], symptom["rank"], symptom["symptom_of"]) == ("host-bound", 2, ["data-loading"])
    assert cause["bound_ns"] == 5 * 200 * US
    assert cause["bound_share"] == pytest.approx(0.2)
    assert symptom["bound_ns"] > cause["bound_ns"]


def test_every_detector_says_what_it_did(tmp_path: Path) -> None:
    answer = explain(stored(training(loading), tmp_path))
    looked = {one["id"]: (one["status"], one["message"]) for one in answer["looked"]}
    assert len(looked) == 22
    assert looked["data-loading"] == ("found", None)
    assert looked["casts"] == ("nothing found", None)
    assert looked["slow-steps"] == ("not enough data", "10 steps or more")


def test_nothing_to_name_is_an_answer(tmp_path: Path) -> None:
    answer = explain(stored(training(lambda n: [call("aten::mm", n * STEP_US, 900)]), tmp_path))
    assert (answer["status"], answer["findings"]) == ("nothing found", [])
    assert answer["message"].startswith("Nothing found: 7 of 22 rules could look")


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([], "none found"),
        ([call("aten::mm", 0, 900)], "none found: mark them with profclient.step()"),
        (training(loading, steps=1), "1 of the trace's steps can be measured"),
        (training(loading, steps=2), "2 of the trace's steps can be measured"),
    ],
)
def test_too_little_to_look_at(events: list[Event], why: str, tmp_path: Path) -> None:
    answer = explain(stored(events, tmp_path))
    assert (answer["status"], answer["findings"]) == ("not enough data", [])
    assert why in answer["message"]


def test_a_long_second_step_is_enough(tmp_path: Path) -> None:
    """Two steps of 150 ms: the second one is measured."""
    events = [call(f"ProfilerStep#{n}", n * 150_000, 150_000, Kind.USER_ANNOTATION) for n in range(2)]
    events += [call(LOADER, n * 150_000, 60_000) for n in range(2)]
    answer = explain(stored(events, tmp_path))
    assert (ids(answer), answer["measured"]["steps"], answer["measured"]["first_step"]) == (["data-loading"], 1, 1)


def test_device_work_without_launches_says_so(tmp_path: Path) -> None:
    answer = explain(stored(training(lambda n: kernel(n * STEP_US, 100)), tmp_path))
    (host,) = (one for one in answer["looked"] if one["id"] == "host-bound")
    assert host["message"] == "the trace does not say which calls launched device work"


def test_a_symptom_of_other_steps_is_none() -> None:
    def one(name: str, bound: int, steps: list[int], **more: Any) -> Finding:
        return Finding(name, "", bound, {}, steps=steps, **more)

    compiles = one("recompilation", 5, [3, 7])
    for steps, order in (([3, 7, 11], ["recompilation", "slow-steps"]), ([4, 8, 7], ["slow-steps", "recompilation"])):
        found = ranked([one("slow-steps", 9, steps, symptom_of=["recompilation"]), compiles])
        assert [finding.id for finding in found] == order


def test_a_trace_of_any_size_is_looked_at_where_little_of_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [*training(loading), *(call("aten::add", n * 10, 5) for n in range(5000))]
    trace = stored(events, tmp_path)
    want = explain(trace)
    monkeypatch.setattr("profd.query.whole.QUERY_ROWS_MAX", len(events) // 10)
    assert explain(trace) == want
    assert ids(want)


def test_a_trace_too_large_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = stored(training(loading), tmp_path)
    for limit in ("profd.answers.facts.DEVICE_WORK_MAX", "profd.query.whole.QUERY_ROWS_MAX"):
        monkeypatch.setattr(limit, 5)
        with pytest.raises(Exhausted, match="ask about a step or a window"):
            explain(trace)
        monkeypatch.undo()


@pytest.mark.parametrize("rows", [3, 1000])
def test_the_launches_of_work_are_not_held(rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor other calls of a runtime. Launches that lie in other segments than their work are found there."""
    calls = [call("cudaEventQuery", n * 5 + 1, 1, Kind.RUNTIME) for n in range(1000)]
    trace = stored([*training(loading), *calls], tmp_path, rows)
    want = explain(stored([*training(loading), *calls], tmp_path / "once"))
    monkeypatch.setattr("profd.query.whole.QUERY_ROWS_MAX", 100)
    assert explain(trace) == want
    assert ids(want) == ["data-loading", "host-bound"]


def late(n: int) -> list[Event]:
    """Loads from its fourth step on."""
    return loading(n) if n > 2 else kernel(n * STEP_US + 5, STEP_US - 6, launch=n * STEP_US)


@pytest.mark.parametrize("rows", [3, 1000])
def test_of_steps_or_a_window_alone(rows: int, tmp_path: Path) -> None:
    trace = stored(training(late, steps=8), tmp_path, rows)
    assert explain(trace, first_step=1, last_step=2)["findings"] == []
    of_steps = explain(trace, first_step=4, last_step=5)
    assert of_steps["measured"] == {
        "steps": 2,
        "first_step": 4,
        "last_step": 5,
        "steps_left_out": 4,
        "from": "ProfilerStep",
        "duration_ns": 2 * STEP_US * US,
    }
    assert ids(of_steps) == ["data-loading", "host-bound"]
    assert of_steps["findings"][0]["bound_ns"] == 2 * 200 * US
    assert explain(trace, from_ns=4 * STEP_US * US, to_ns=6 * STEP_US * US) == of_steps
    one = explain(trace, first_step=5)
    assert (one["measured"]["steps"], ids(one)) == (1, ["data-loading", "host-bound"])
    first = explain(trace, first_step=0)
    assert (first["measured"]["steps"], first["measured"]["first_step"]) == (1, 0)
    assert explain(trace, first_step=0, last_step=2)["measured"]["first_step"] == 1


def test_a_window_of_all_is_as_the_whole(tmp_path: Path) -> None:
    trace = stored(training(late, steps=20), tmp_path)
    whole, part = explain(trace), explain(trace, from_ns=0, to_ns=1 << 50)
    told = {one["id"] for one in part["looked"] if one["message"] == "it is told of the whole trace alone"}
    assert told == {"gil-contention", "cpu-contention", "memory-grows"}
    for answer in (whole, part):
        answer["looked"] = [one for one in answer["looked"] if one["id"] not in told]
        del answer["message"]
    assert part == whole


def test_a_window_without_a_whole_step_says_so(tmp_path: Path) -> None:
    answer = explain(stored(training(loading), tmp_path), from_ns=3 * STEP_US * US, to_ns=3 * STEP_US * US + 500)
    assert (answer["status"], answer["measured"]["duration_ns"]) == ("not enough data", 500)
    assert "no whole step lies in this window" in answer["message"]


def test_times_at_the_end_of_time(tmp_path: Path) -> None:
    """A file says what it likes: ends beyond 64 bits, work before its launch, steps of no length."""
    last = (1 << 63) - 1
    events = [
        Event("ProfilerStep#0", 0, 10, Kind.USER_ANNOTATION),
        Event("ProfilerStep#1", 10, last, Kind.USER_ANNOTATION),
        Event("ProfilerStep#2", last, last, Kind.USER_ANNOTATION),
        Event(LOADER, 10, last),
        Event("gemm", 12, last, Kind.KERNEL, 9),
        Event("gemm", last - 1, None, Kind.KERNEL, 9, fields={"linked": 3}),
        Event("cudaStreamSynchronize", -(1 << 62), last, Kind.RUNTIME),
    ]
    answer = explain(stored(events, tmp_path))
    assert answer["measured"]["steps"] == 1


def test_each_detector_states_its_rule_and_when_it_is_wrong() -> None:
    detectors = (*rules._OF_STEPS, *rules._OF_DEVICES, *rules._OF_THE_WINDOW)
    for detector in detectors:
        for part in ("\nRule", "Bound: ", "\nWrong where: ", "\nSource: "):
            assert part in (detector.__doc__ or ""), detector.__name__
    names = {path.stem for path in Path(rules.__file__).parent.joinpath("detectors").glob("[a-z]*.py")}
    assert names == {detector.__name__.rpartition(".")[2] for detector in detectors}
