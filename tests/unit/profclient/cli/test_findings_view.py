"""What `profctl explain` and the answer of a capture say of findings, to people."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from profclient.cli.findings_view import leading_lines, print_findings
from profclient.cli.summary_view import _print_with_findings
from profclient.errors import UnreachableError
from profclient.traces import Answer, RemoteTraces, Traces
from profproto.v1 import capture_pb2


def finding(rank: int, name: str, **fields: Any) -> dict[str, Any]:
    return {
        "rank": rank,
        "id": name,
        "sentence": "The program waits\x1b[2J.",
        "bound_ns": 30,
        "bound_share": 0.3,
        "symptom_of": [],
        "evidence": {"rows": [5, 7], "numbers": {}, "steps": []},
        "assumptions": ["it could"],
        "confirm": "try it",
        **fields,
    }


def answer(*findings: dict[str, Any], message: str | None = None) -> dict[str, Any]:
    measured = {"steps": 4, "first_step": 6, "last_step": 9, "duration_ns": 5_000_000}
    return {"measured": {"steps_left_out": 1, **measured}, "findings": list(findings), "message": message, "looked": []}


class Said:
    """Traces of which every question has one answer."""

    def __init__(self, value: object) -> None:
        self._value = value

    @classmethod
    def of(cls, value: object) -> Traces:
        """As the interface that `leading_lines` wants, of which it asks questions alone."""
        return cast(Traces, cls(value))

    def ask(self, question: str, trace: str, **arguments: Any) -> Answer:
        if isinstance(self._value, Exception):
            raise self._value
        return Answer(iter([json.dumps(self._value).encode()]))


def test_all_of_a_finding(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    slow = finding(2, "slow-steps", bound_share=None, symptom_of=["data-loading"])
    slow["evidence"] = {"rows": [], "numbers": {}, "steps": [3, 7]}
    print_findings(answer(finding(1, "data-loading"), slow), "t1")
    assert capsys.readouterr().out.splitlines() == [
        "2 findings in steps 6..9 (5.00 ms; the first step, which warms up, left out)",
        "",
        "1  data-loading  (at most 30 % less time)",
        "    The program waits\N{REPLACEMENT CHARACTER}[2J.",
        "    rows     5, 7  (profctl tree t1 --row N)",
        "    assumes  it could",
        "    to know  try it",
        "",
        "2  slow-steps  (memory, not time)",
        "    The program waits\N{REPLACEMENT CHARACTER}[2J.",
        "    A symptom: data-loading may be why.",
        "    steps    3, 7",
        "    assumes  it could",
        "    to know  try it",
        "",
        "Bounds overlap: they do not add up.",
    ]


def test_nothing_found_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    print_findings(answer(message="Nothing found: 14 rules could look."), "")
    assert capsys.readouterr().out == "Nothing found: 14 rules could look.\n"


def test_an_answer_begins_with_three() -> None:
    lines = leading_lines(Said.of(answer(*(finding(n, f"f{n}") for n in range(1, 6)))), "t1")
    sentence = "The program waits\N{REPLACEMENT CHARACTER}[2J. (at most 30 % less time)"
    assert lines == [("finding", sentence)] * 3 + [("", "(2 more, and the evidence: profctl explain t1)")]


@pytest.mark.parametrize(("events", "order"), [(250_000, ["finding", "trace"]), (250_001, ["trace", "finding"])])
def test_findings_of_a_large_trace_follow_its_summary(
    events: int, order: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    trace = {"id": "t1", "title": "job", "source": "sdk", "pid": 7, "created_ns": 1, "events": events}
    traces = Said.of({**answer(finding(1, "data-loading")), "trace": trace})
    _print_with_findings(cast(RemoteTraces, traces), capture_pb2.TargetStatus(trace="t1", events=events))
    words = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert [word for word in words if word in order] == order


def test_an_answer_without_findings_says_nothing_of_them() -> None:
    assert leading_lines(Said.of(answer(message="Nothing found.")), "t1") == []


def test_findings_that_cannot_be_had_keep_no_summary_back() -> None:
    assert leading_lines(Said.of(UnreachableError("no daemon")), "t1") == [("findings", "not available: no daemon")]


@pytest.mark.parametrize(("trace", "said"), [("t1", "profctl tree t1 --merged"), ("", "profctl tree --merged")])
def test_a_command_that_tells_more_can_be_copied(trace: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_findings(answer(finding(1, "event-loop", confirm="profctl tree TRACE --merged shows it")), trace)
    assert f"to know  {said} shows it" in capsys.readouterr().out
