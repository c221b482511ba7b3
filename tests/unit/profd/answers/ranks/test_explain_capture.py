"""The question `explain` of a capture: late ranks, and what is found in the traces."""

from __future__ import annotations

from pathlib import Path

import pytest
from profclient.cli.findings_view import print_findings
from profd.errors import BadInput

from tests.support.many_ranks import ask
from tests.support.simulated_job import Plan
from tests.unit.profd.answers.ranks.test_ranks import stored


def test_a_late_rank_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask("explain", stored(tmp_path, Plan(late={1: 1_000_000})))
    first = answer["findings"][0]
    assert (first["rank"], first["id"], first["trace"], first["of_ranks"]) == (1, "late-rank", "t1", [1])
    assert first["bound_share"] == pytest.approx(0.09, abs=0.01)
    assert {one["id"]: one["status"] for one in answer["looked"]}["late-rank"] == "found"
    print_findings(answer, "c0123456789ab")
    out, err = capsys.readouterr()
    assert "aten::sort" in out
    assert "3 traces, ranks 0-2" in err


def test_what_all_ranks_have_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """GIVEN device work that waits 2 ms a step in collectives on ranks 0 and 1 WHEN asked THEN it is one finding."""
    answer = ask("explain", stored(tmp_path, Plan(late={2: 2_000_000}, device=True)))
    named = [one["id"] for one in answer["findings"]]
    assert named[0] == "late-rank"
    (exposed,) = (one for one in answer["findings"] if one["id"] == "exposed-communication")
    assert (exposed["of_ranks"], exposed["traces"]) == ([0, 1], 2)
    print_findings(answer, "c0123456789ab")
    assert "In 2 traces, ranks 0, 1" in capsys.readouterr().out


def test_a_part_is_of_one_trace(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="name a trace of the capture"):
        ask("explain", stored(tmp_path, Plan(ranks=1, steps=1)), first_step="1")


def test_nothing_to_look_at_is_an_answer(tmp_path: Path) -> None:
    answer = ask("explain", stored(tmp_path, Plan(ranks=1, steps=1)))
    assert (answer["status"], answer["findings"]) == ("not enough data", [])
    assert answer["message"]
