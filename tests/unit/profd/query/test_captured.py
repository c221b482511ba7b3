"""A capture asked as one: what its traces answer together is what each of them answers, added up."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from profd.errors import BadInput, BadTrace, Exhausted
from profd.events import Kind
from profd.query import average_rows
from profd.query.captured import Captured
from profd.query.diff import diff
from profd.query.gpu import gpu_of_trace
from profd.query.steps import steps_of_trace
from profd.query.top import top
from profd.questions.table import QUESTIONS
from profd.segments.reader import TraceReader

from tests.support import columns_read
from tests.support.importing import import_trace
from tests.support.many_ranks import CAPTURE, ask, member, training
from tests.support.tables import Event

SUMMED = ("count", "cpu_time_total_ns", "self_cpu_time_total_ns", "self_device_time_total_ns", "device_time_total_ns")
QUESTION = QUESTIONS["top"].checked({})


@pytest.fixture
def ranks(tmp_path: Path) -> list[Path]:
    """Ranks 0, 1 and 3, a child of rank 1, and a process without a rank; on two hosts."""
    return [
        member(tmp_path, 3, training(3, slower_ns=400), host="node1"),
        member(tmp_path, None, [Event("load", 5, 25)], "loader"),
        member(tmp_path, 0, training(0)),
        member(tmp_path, 1, training(1)),
        member(tmp_path, 1, [Event("aten::mm", 100, 200)], "child"),
    ]


def added_up(directories: list[Path], key: Any = lambda reader: "", **given: Any) -> dict[Any, dict[str, int]]:
    """What `top` says of each trace, added up by (key of the trace, name, device type)."""
    sums: dict[Any, dict[str, int]] = defaultdict(lambda: dict.fromkeys(SUMMED, 0))
    for directory in directories:
        reader = TraceReader(directory)
        for row in top(reader, **{**QUESTION, **given}):
            for field in SUMMED:
                sums[key(reader.meta), row["name"], row["device_type"]][field] += row[field]
    return dict(sums)


@pytest.mark.parametrize("by", ["", "rank", "host", "trace"])
@pytest.mark.parametrize("raw", [False, True])
def test_rows_are_the_sums_of_those_of_the_traces(ranks: list[Path], by: str, raw: bool) -> None:
    answer = ask("top", ranks, by=by, raw=raw)
    expected = added_up(ranks, lambda meta: getattr(meta, by) if by else "", raw=raw)
    found = {
        (row[by] if by else "", row["name"], row["device_type"]): {field: row[field] for field in SUMMED}
        for row in answer["rows"]
    }
    assert found == expected
    assert len(answer["rows"]) == len(expected)


def test_which_traces_answer_and_which_ranks_there_are_not(ranks: list[Path]) -> None:
    answer = ask("top", ranks)
    assert answer["capture"] == CAPTURE
    assert [one["trace"] for one in answer["traces"]] == ["rank0", "child", "rank1", "rank3", "loader"]
    assert (answer["missing_ranks"], answer["shared_ranks"], answer["left_out"]) == ([[2, 2]], [1], [])
    rows = {row["name"]: row for row in answer["rows"]}
    assert (rows["aten::mm"]["ranks"], rows["aten::mm"]["traces"]) == (3, 4)
    assert (rows["load"]["ranks"], rows["load"]["traces"]) == (0, 1)
    assert (rows["aten::mm"]["rank"], rows["aten::mm"]["host"]) == (None, None)  # several
    of_rank = {row["name"]: row for row in ask("top", ranks, by="rank")["rows"] if row["rank"] == 1}
    assert (of_rank["aten::mm"]["traces"], of_rank["aten::mm"]["trace"], of_rank["aten::mm"]["host"]) == (
        2,
        None,
        "node0",
    )


def test_rows_are_sorted_and_cut_after_they_are_added_up(ranks: list[Path]) -> None:
    names = [row["name"] for row in ask("top", ranks, sort_by="count", limit=2)["rows"]]
    assert names == ["aten::mm", "ProfilerStep*"]
    assert [row["name"] for row in ask("top", ranks, sort_by="name", limit=1)["rows"]] == ["ProfilerStep*"]


def test_an_annotation_stays_apart_from_an_op_of_its_name(tmp_path: Path) -> None:
    both = [Event("work", 0, 10), Event("work", 20, 50, Kind.USER_ANNOTATION)]
    rows = ask("top", [member(tmp_path, rank, both) for rank in range(2)])["rows"]
    assert [(row["name"], row["self_cpu_time_total_ns"]) for row in rows] == [("work", 60), ("work", 20)]


def test_names_that_are_no_unicode(tmp_path: Path) -> None:
    rows = ask("top", [member(tmp_path, rank, [Event("ü\ud800", 0, 10)]) for rank in range(2)])["rows"]
    assert [(row["name"], row["count"]) for row in rows] == [("ü\ud800", 2)]


def test_sums_may_be_larger_than_64_bits(tmp_path: Path) -> None:
    ends = (1 << 63) - 5
    rows = ask("top", [member(tmp_path, rank, [Event("long", 0, ends)]) for rank in range(3)])["rows"]
    assert rows[0]["cpu_time_total_ns"] == 3 * ends


def test_a_window_is_counted_from_the_first_event_of_all(tmp_path: Path) -> None:
    late = [member(tmp_path, rank, [Event("op", rank * 100, rank * 100 + 50)]) for rank in range(3)]
    rows = ask("top", late, from_ns=110, to_ns=230, by="rank")["rows"]
    assert {row["rank"]: row["cpu_time_total_ns"] for row in rows} == {1: 40, 2: 30}
    with pytest.raises(BadInput, match="the capture lasts"):
        ask("top", late, from_ns=10_000)


def test_a_trace_without_the_step_is_named_and_the_others_answer(ranks: list[Path]) -> None:
    answer = ask("top", ranks, first_step=2)
    assert [one["trace"] for one in answer["left_out"]] == ["child", "loader"]
    assert {row["name"]: row["count"] for row in answer["rows"]}["aten::mm"] == 3
    with pytest.raises(BadInput, match="no step 77"):
        ask("top", ranks, first_step=77)


def test_a_damaged_trace_is_named(ranks: list[Path]) -> None:
    (ranks[2] / "segment-00000.parquet").write_bytes(b"no parquet")
    with pytest.raises(BadTrace, match="rank0"):
        ask("top", ranks)
    for question in ("select count(*), max(name) from events", "from events"):
        with pytest.raises(BadTrace, match="rank0") as told:
            sql(ranks, question)
        assert "Traceback" not in str(told.value)
    with pytest.raises(BadInput, match="no_such"):
        sql(ranks, "select no_such from events")


def test_only_so_many_events_are_looked_at_at_once(tmp_path: Path) -> None:
    """A trace that is larger than that has it alone."""
    capture = Captured([member(tmp_path, rank, training(rank)) for rank in range(8)])
    held: list[int] = []

    def look(one: Any) -> int:
        held.append(one.events)
        return int(one.rank)

    found = []
    for one, rank in capture.each(look, most=2 * 16):
        assert one.rank == rank
        assert len(held) - len(found) <= 2  # begun, and not yet let go of
        found.append(rank)
    assert found == list(range(8))
    assert [rank for _, rank in capture.each(look, most=1)] == list(range(8))


def test_too_many_rows_are_refused(ranks: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(average_rows, "CAPTURE_ROWS_MAX", 5)
    with pytest.raises(Exhausted, match="more than 5 rows"):
        ask("top", ranks)


def test_steps_of_all_ranks(ranks: list[Path]) -> None:
    answer = ask("steps", ranks)
    assert (answer["numbered_by"], answer["asked"]) == ("program", None)
    own = {"rank": 3, "host": "node1", "trace": "rank3"}
    assert [row for row in answer["steps"] if row["rank"] == 3] == [
        {**own, **row} for row in steps_of_trace(TraceReader(ranks[0]))["steps"]
    ]
    assert [one["trace"] for one in answer["left_out"]] == ["child", "loader"]
    last = answer["by_number"][-1]
    assert (last["number"], last["traces"], last["start_ns"]) == (3, 3, 3000)
    assert (last["duration_min_ns"], last["duration_p50_ns"], last["duration_max_ns"]) == (1000, 1000, 1400)
    assert last["slowest"] == own


def test_whose_numbers_steps_have_and_which_were_asked_for(tmp_path: Path) -> None:
    named: dict[str, Any] = {"options": {"begin_step": 1, "iterations": 2}}
    numbered = [member(tmp_path, rank, training(rank), **named) for rank in range(2)]
    answer = ask("steps", numbered)
    assert (answer["numbered_by"], answer["asked"]) == ("program", {"first": 1, "n": 2})
    # An optimizer's steps are counted from where each rank began: the first of two ranks may be neighbours.
    ended = [Event("Optimizer.step#SGD.step", at, at + 10, Kind.USER_ANNOTATION) for at in (100, 200, 300)]
    answer = ask("steps", [numbered[0], member(tmp_path, 2, ended)])
    assert (answer["numbered_by"], answer["asked"]) == ("window", None)
    without = ask("steps", [member(tmp_path, 3, [Event("aten::mm", 0, 10)])])
    assert (without["n"], without["numbered_by"]) == (0, None)


def test_devices_of_all_ranks(ranks: list[Path]) -> None:
    answer = ask("gpu", ranks)
    alone = gpu_of_trace(TraceReader(ranks[3]))
    for name in ("devices", "streams", "ops"):
        rows = [row for row in answer[name] if row["trace"] == "rank1"]
        assert rows == [{"rank": 1, "host": "node0", "trace": "rank1", **row} for row in alone[name]]
    assert [row["rank"] for row in answer["devices"]] == [0, 1, 3]
    assert answer["links"]["device_events"] == 12
    assert answer["message"] is None
    assert ask("gpu", ranks[1:2])["message"]


@pytest.mark.parametrize("by", ["name", "path", "module"])
def test_captures_of_one_trace_compare_as_the_traces(ranks: list[Path], by: str) -> None:
    first, second = ranks[0], ranks[2]
    answer = ask("diff", [first], [second], by=by)
    assert [one["traces"][0]["trace"] for one in answer.pop("captures")] == ["rank3", "rank0"]
    assert answer == diff(TraceReader(first), TraceReader(second), by)


def test_a_step_of_any_rank_is_a_step_of_the_capture(tmp_path: Path) -> None:
    few = [member(tmp_path / "few", rank, training(0), f"few{rank}") for rank in range(2)]
    many = [member(tmp_path / "many", rank, training(0), f"many{rank}") for rank in range(6)]
    answer = ask("diff", few, many)
    assert (answer["per"], answer["steps"]) == ("step", [8, 24])
    assert {row["change"] for row in answer["rows"]} == {"same"}  # more ranks are not slower
    longer = [member(tmp_path / "slow", rank, training(20), f"slow{rank}") for rank in range(2)]
    changed = {row["name"]: row["delta_ns"] for row in ask("diff", few, longer)["totals"]}
    assert changed["step"] == 0


def test_without_steps_a_share_of_a_trace_is_compared(tmp_path: Path) -> None:
    few = [member(tmp_path / "few", rank, [Event("op", 0, 10, fields={"self_time": 10})]) for rank in range(2)]
    many = [member(tmp_path / "many", rank, [Event("op", 0, 10, fields={"self_time": 10})]) for rank in range(5)]
    (row,) = ask("diff", few, many)["rows"]
    assert (row["change"], row["a_ns"], row["b_ns"], row["a_count"]) == ("same", 10, 10, 1)


def test_more_than_can_be_compared_is_refused(ranks: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profd.query.diff.DIFF_CELLS_MAX", 20)
    with pytest.raises(Exhausted, match=f"{CAPTURE} has more than 20 times to compare"):
        ask("diff", ranks, ranks)


def sql(directories: list[Path], question: str, **given: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(b"".join(ask("sql", directories, sql=question, **given)))
    return answer


def test_sql_sees_the_rows_of_all_traces(ranks: list[Path]) -> None:
    counted = sql(ranks, "select rank, host, trace, count(*) from events group by all order by trace")["rows"]
    assert counted == [
        [1, "node0", "child", 1],
        [None, "node0", "loader", 1],
        [0, "node0", "rank0", 16],
        [1, "node0", "rank1", 16],
        [3, "node1", "rank3", 16],
    ]
    joined = sql(
        ranks, "select count(*) from events a join events b on a.trace = b.trace and a.parent = b.row where b.rank = 3"
    )
    assert joined["rows"] == [[4]]
    assert sql(ranks, "select trace from threads where rank is null")["rows"] == []  # of a trace without tracks
    assert len(sql(ranks, "from events", limit=3)["rows"]) == 3


def test_sql_has_the_arguments_of_any_trace_as_columns(tmp_path: Path) -> None:
    """GIVEN a key that one rank has, and one that is of another type in each."""
    for rank, args in enumerate([{"mine": 1, "both": 2}, {"both": "x"}]):
        event = {"ph": "X", "name": "op", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": args}
        (tmp_path / f"{rank}.json").write_text(json.dumps([event]))
        import_trace(tmp_path / f"{rank}.json", tmp_path / f"r{rank}", rank=rank)
    found = sql([tmp_path / "r0", tmp_path / "r1"], 'select rank, "arg.mine", "arg.both" from events order by rank')
    assert found["rows"] == [[0, 1, "2"], [1, None, "x"]]


@pytest.mark.parametrize(
    "question",
    [
        "select {} from events e order by all",
        "from events select {} order by all",
        "with w as (select {} from events) select w from w order by all",
        "select {} from query('select * from events') order by all",
        "select e.NAME, e.duration_ns, (select max(self_ns) from events i where i.trace = e.trace) from events e "
        "order by all",
        "select e from events e order by all",
        "select * from events pivot (count(*) for name in ('gemm', 'aten::mm')) order by all",
        "select columns('na.*') from events order by all",
        "select count(*) from events natural join (select name, duration_ns from events)",
        "select count(*) from events a join events b using (trace, correlation)",
        "summarize select {} from events",
        "describe events",
    ],
)
def test_columns_that_a_question_does_not_name_do_not_change_its_answer(
    ranks: list[Path], question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = question.format("name, duration_ns, op")
    fast = sql(ranks, question)
    monkeypatch.setattr("profd.query.sql_names._words", lambda nodes: None)
    assert sql(ranks, question) == fast


def test_only_named_columns_are_read(ranks: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    read = columns_read.noted(monkeypatch)
    sql(ranks, "select name, sum(duration_ns) from events group by name")
    assert read == {"name", "end"}
    assert sql(ranks, "select * from query('select count(*) from flo' || 'ws')")["rows"] == [[0]]  # found all the same
