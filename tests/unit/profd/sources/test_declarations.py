"""Every source answers for every option, and the daemon makes of the answers what is refused and what is missing."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from pathlib import Path
from typing import Any

import profd.attached
import profd.sources
import pytest
from profd.capture.choice import choose, not_honoured
from profd.capture.estimate import Headroom
from profd.model.capture import (
    CommonOptions,
    HandlingOptions,
    Options,
    Reason,
    SamplingOptions,
    ServerOptions,
    TorchOptions,
    option_word,
)
from profd.sources import declaration
from profd.sources.base import Plan, Source
from profd.sources.declaration import ByProcess, Declaration, OptionAnswer, Refuses, Served, Unserved
from profd.sources.pyspy.permission import Rights
from profd.sources.pyspy.source import PySpySource

from tests.support.captures import SECOND_NS, process

PAIRS = (
    (CommonOptions, declaration.CommonAnswers),
    (TorchOptions, declaration.TorchAnswers),
    (SamplingOptions, declaration.SamplingAnswers),
    (ServerOptions, declaration.ServerAnswers),
)
ASKED: dict[str, Any] = {  # each option, not as it is by default
    "duration_ns": SECOND_NS,
    "iterations": 3,
    "start_at_ns": 5,
    "begin_step": 7,
    "at_least_ns": 5,
    "stacks": True,
    "c_calls": True,
    "max_overhead": 0.02,
    "torch": "observer",
    "shapes": True,
    "memory": True,
    "modules": True,
    "flops": True,
    "gpu_fallback": True,
    "sample_hz": 100.0,
    "native": True,
    "port": 9999,
    "collect_timeout_ns": 5,
    "last_ns": 5,
}


def names(group: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(group)]


def declared() -> list[Declaration]:
    """Of all sources in the package, also those that nobody has registered."""
    for room in (profd.sources, profd.attached):
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    found, left = [], [*Source.__subclasses__()]
    while left:
        source = left.pop()
        left += source.__subclasses__()
        if source.__module__.startswith("profd."):
            found.append(source.declaration)
    return sorted(found, key=lambda each: each.rank)


DECLARED = declared()
EACH = pytest.mark.parametrize("source", DECLARED, ids=lambda each: each.name)


def test_the_best_first() -> None:
    assert [each.name for each in DECLARED] == ["sdk", "kineto", "jax", "cuda", "pyspy"]
    assert len({each.rank for each in DECLARED}) == len(DECLARED)


def test_each_group_of_options_has_a_group_of_answers() -> None:
    for options, answers in PAIRS:
        assert names(answers) == names(options)
    grouped = [name for options, _ in PAIRS for name in names(options)]
    assert sorted([*grouped, *names(HandlingOptions)]) == sorted(names(Options))
    assert sorted(ASKED) == sorted(grouped)


@EACH
def test_every_option_has_an_answer(source: Declaration) -> None:
    answers = source.answers
    assert list(answers) == [name for options, _ in PAIRS for name in names(options)]
    assert all(type(answer) in (Served, Unserved, ByProcess, Refuses) for answer in answers.values())
    assert all(isinstance(answer, OptionAnswer) for answer in answers.values())


@EACH
@pytest.mark.parametrize("name", ASKED)
def test_no_option_is_left_out_in_silence(source: Declaration, name: str) -> None:
    options, answer = Options(**{name: ASKED[name]}), source.answers[name]
    said = not_honoured(source, options, Plan(True, unserved={name: "not here"}))
    plain = not_honoured(source, options, Plan(True))
    match answer:
        case Unserved(why):
            assert said == plain == (f"{option_word(name)}: {why}",)
        case ByProcess():
            assert (said, plain) == ((f"{option_word(name)}: not here",), ())
        case Served() | Refuses():
            assert plain == ()


@EACH
def test_a_default_is_not_asked(source: Declaration) -> None:
    assert Options().asked == Options(torch="auto").asked == frozenset()
    missing = dict.fromkeys(ASKED, "not here")
    by_default = [name for name, answer in source.answers.items() if answer == ByProcess(by_default=True)]
    assert not_honoured(source, Options(), Plan(True, unserved=missing)) == tuple(
        f"{name}: not here" for name in by_default
    )


def sampled(**options: Any) -> Any:
    source = PySpySource(Path("/opt/py-spy"), Rights(0, True, 0))
    asked = Options(duration_ns=SECOND_NS, source="pyspy", **options)
    return choose(process(), asked, [source], [], lambda: Headroom(None, None))


def test_options_that_sampling_has_no_place_for_are_named_and_strictly_refused() -> None:
    chosen = sampled(c_calls=True, torch="observer")
    assert [text.partition(":")[0] for text in chosen.not_honoured] == ["c_calls", "torch"]
    refused = sampled(c_calls=True, torch="observer", strict=True)
    assert (refused.source, refused.reason) == (None, Reason.NOT_HONOURED)
    assert refused.message == f"--strict, and pyspy would not honour: {'; '.join(chosen.not_honoured)}"


def test_a_request_is_refused_for_an_option_that_it_makes_no_sense_without() -> None:
    refused = sampled(iterations=3)
    assert (refused.reason, refused.message) == (
        Reason.NOT_HONOURED,
        "pyspy samples from outside and sees no iterations. Give --duration.",
    )
    assert "does not serve" in sampled(last_ns=SECOND_NS).message
    assert "does not serve" in sampled(max_overhead=0.02, native=True).message


def rows_of_options() -> list[str]:
    """The table in `docs/captures.md`, as the declarations have it."""
    said = {Served: "yes", Unserved: "no", ByProcess: "depends", Refuses: "refused"}
    return [
        f"| `{option_word(name).replace('_', '-')}` | "
        + " | ".join(said[type(source.answers[name])] for source in DECLARED)
        + " |"
        for name in DECLARED[0].answers
    ]


def test_the_table_of_options_is_what_sources_declare() -> None:
    text = (Path(__file__).parents[4] / "docs" / "captures.md").read_text()
    header = f"| option | {' | '.join(source.name for source in DECLARED)} |"
    lines = text.splitlines()
    begin = lines.index(header) + 2
    assert lines[begin : begin + len(ASKED)] == rows_of_options()
