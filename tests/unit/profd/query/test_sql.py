"""SQL on a trace: what it sees here, and what it cannot reach in a real, confined worker."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from profd.errors import BadInput, BadTrace, Denied, Exhausted, ProfdError
from profd.events import ArgColumn, Dictionary, Kind
from profd.limits import ARG_KEYS_MAX, QUERY_ROWS_MAX
from profd.query import sql as module
from profd.query.arrow import events_arrow
from profd.query.sql import sql
from profd.questions.jobs import DIRECTORIES, INDEXES, JOBS, find
from profd.segments.reader import TraceReader
from profd.workers.pool import WorkerPool

from tests.support import columns_read
from tests.support.importing import import_trace
from tests.support.tables import Event, store, table_of

SECRET = "nobody may read this"


def quiet(what: str, share: float) -> None:
    """Progress nobody looks at."""


def ask(directory: Path, question: Any, **more: Any) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out:
        find("sql")({"trace_dir": str(directory), "sql": question, **more}, [out.fileno()], quiet)
        out.seek(0)
        answer: dict[str, Any] = json.loads(out.read())
    return answer


@pytest.fixture(scope="module", params=[2, 1000])
def trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In segments of two rows, and in one."""
    events = [
        Event("ürgh\ud800", 10, 30, fields={"self_time": 15, "parent": None, "correlation": 4}),
        Event("inner", 12, 17, fields={"self_time": 5, "parent": 0}),
        Event("begun", 20, None),
        Event("gemm", 25, 45, Kind.KERNEL, 9, fields={"correlation": 4, "device": 1}),
        Event("inner", 40, 41),
    ]
    return store(table_of(events), tmp_path_factory.mktemp("sql") / "t", rows=request.param)


def test_the_columns_of_events(trace: Path) -> None:
    answer = ask(
        trace,
        'select "row", name, kind, device_type, start_ns, end_ns, duration_ns, self_ns, parent, correlation, device, '
        "stack, thread from events order by 1",
    )
    assert answer["rows"] == [
        [0, "ürgh?", "cpu_op", "CPU", 10, 30, 20, 15, None, 4, None, None, 0],
        [1, "inner", "cpu_op", "CPU", 12, 17, 5, 5, 0, None, None, None, 0],
        [2, "begun", "cpu_op", "CPU", 20, None, None, None, None, None, None, None, 0],
        [3, "gemm", "kernel", "CUDA", 25, 45, 20, None, None, 4, 1, None, 9],
        [4, "inner", "cpu_op", "CPU", 40, 41, 1, None, None, None, None, None, 0],
    ]
    assert answer["columns"][0] == {"name": "row", "type": "BIGINT"}
    grouped = ask(trace, "from events select name, count(*) n group by name having n > 1")
    assert grouped["rows"] == [["inner", 2]]


def test_late_patches_flows_and_tracks(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    event = {"ph": "X", "cat": "cpu_op", "pid": 7, "tid": "loader"}
    records = [
        {**event, "name": "outer", "ts": 0, "dur": 100},
        {**event, "name": "inner", "ts": 10, "dur": 40},
        {"ph": "s", "id": 3, "cat": "fwdbwd", "name": "fwdbwd", "pid": 7, "tid": "loader", "ts": 0},
        {"ph": "f", "bp": "e", "id": 3, "cat": "fwdbwd", "name": "fwdbwd", "pid": 7, "tid": "loader", "ts": 10},
        {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "python"}},
    ]
    path.write_text(json.dumps({"traceEvents": records}))
    import_trace(path, tmp_path / "t")
    joined = ask(
        tmp_path / "t",
        "select e.name, e.self_ns, t.id, p.id, p.name from events e join threads t using (thread) "
        "join processes p on p.process = t.process order by e.start_ns",
    )
    assert joined["rows"] == [["outer", 60_000, "loader", "7", "python"], ["inner", 40_000, "loader", "7", "python"]]
    flows = ask(
        tmp_path / "t",
        'select f.id, category, f.phase, e.name from flows f join events e using ("row") order by 4 desc',
    )
    assert flows["rows"] == [["3", "fwdbwd", "s", "outer"], ["3", "fwdbwd", "f", "inner"]]


def test_an_empty_trace(tmp_path: Path) -> None:
    path = store(table_of([]), tmp_path / "t")
    assert ask(path, "select count(*) from events")["rows"] == [[0]]
    assert ask(path, "select * from events")["rows"] == []


def test_values_that_json_has_no_type_for(trace: Path) -> None:
    question = (
        "select 'nan'::double, date '2020-01-02', [1, null], {'a': 1.5::double}, 1.25::decimal(4, 2), 2::hugeint ** 0"
    )
    assert ask(trace, question)["rows"] == [[None, "2020-01-02", [1, None], {"a": 1.5}, "1.25", 1.0]]
    assert ask(trace, "select 170141183460469231731687303715884105727")["rows"] == [[2**127 - 1]]


def test_rows_are_limited(trace: Path) -> None:
    cut = ask(trace, "select range from range(1000000000000)", limit=3)
    assert (cut["rows"], cut["truncated"]) == ([[0], [1], [2]], True)
    whole = ask(trace, "select range from range(3)", limit=3)
    assert (len(whole["rows"]), whole["truncated"]) == (3, False)
    with pytest.raises(BadInput, match="limit must be"):
        ask(trace, "select 1", limit=-1)


def test_the_answer_is_limited(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SQL_RESULT_BYTES_MAX", 1 << 20)
    with pytest.raises(Exhausted, match="larger than 1 MiB"):
        ask(trace, "select repeat('x', 100000) from range(100)")


@pytest.mark.parametrize(
    "question",
    [
        "",
        None,
        "--",
        "selec",
        "select nothing from events",
        "select 1; select 2",
        "create table t as select 1",
        "insert into events values (1)",
        "drop view events",
        "set threads = 8",
        "pragma version",
        "select " + "(" * 20_000 + "1" + ")" * 20_000,
        "select '" + "x" * (1 << 17) + "'",
        "select * from quiet",  # no variable of Python's
    ],
)
def test_what_is_no_question(trace: Path, question: Any) -> None:
    with pytest.raises(BadInput):
        ask(trace, question)


def test_a_runaway_join_is_stopped(trace: Path) -> None:
    join = "select count(*) from range(1000000000) a, range(1000000000) b where a.range < b.range"
    with pytest.raises(Exhausted, match=r"longer than 0\.1 s, the limit, and was stopped"):
        list(sql(TraceReader(trace), sql=join, seconds=0.1))
    assert ask(trace, "select 1")["rows"] == [[1]]


def test_a_question_that_needs_too_much_memory(trace: Path) -> None:
    with pytest.raises(Exhausted, match="1024 MiB"):
        ask(trace, "select list(a.range) from range(1000000000) a")


@pytest.fixture
async def pool(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WorkerPool]:
    pool = WorkerPool(
        1, gates=tmp_path_factory.mktemp("state") / "gates", known=JOBS, directories=DIRECTORIES, beside=INDEXES
    )
    await pool.open()
    yield pool
    await pool.close()


ESCAPES = [
    "select * from read_text('{secret}')",
    "select * from read_csv('{secret}')",
    "select * from read_blob('{secret}')",
    "select * from '{secret}'",
    "select * from glob('{folder}/*')",
    "select * from read_parquet('{folder}/*.parquet')",
    "select * from sniff_csv('{secret}')",
    "attach '{folder}/x.db'",
    "load httpfs",
    "install httpfs",
    "load '{folder}/x.duckdb_extension'",
    "copy (select 1) to '{folder}/written'",
    "explain analyze copy (select 1) to '{folder}/written'",
    "export database '{folder}/written'",
    "select * from query('copy (select 1) to ''{folder}/written''')",
    "set enable_external_access = true",
    "explain analyze set enable_external_access = true",
    "select 1; set lock_configuration = false",
]


@pytest.mark.slow
async def test_nothing_but_the_trace_is_reached_from_a_worker(pool: WorkerPool, trace: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text(SECRET)
    tmp_path.chmod(0o777)
    with tempfile.TemporaryFile() as out:
        for escape in ESCAPES:
            question = escape.format(secret=secret, folder=tmp_path)
            with pytest.raises((Denied, BadInput)) as refused:
                await pool.run("sql", {"trace_dir": str(trace), "sql": question}, [out.fileno()])
            assert SECRET not in str(refused.value)
        out.seek(0)
        assert SECRET.encode() not in out.read()
        out.truncate(0)
        out.seek(0)
        await pool.run("sql", {"trace_dir": str(trace), "sql": "select count(*) from events"}, [out.fileno()])
        out.seek(0)
        assert json.loads(out.read())["rows"] == [[5]]
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]
    assert pool.statistics().workers_died == 0


def test_every_error_is_ours(trace: Path) -> None:
    for question in (
        "select 1 / 'x'",
        "select cast('x' as int)",
        "select 9223372036854775807 + 1::bigint",
        "from x.y.z",
    ):
        with pytest.raises(ProfdError):
            ask(trace, question)


def test_arguments_and_tensors_are_tables(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    args = {"seen": 3, "rate": 1.5, "note": "a b", "grid": [1, 2], "External id": 4}
    path.write_text(
        json.dumps([{"ph": "X", "name": "op", "pid": 1, "tid": 1, "ts": 0, "dur": 1, "id": 9, "args": args}])
    )
    import_trace(path, tmp_path / "t")
    found = ask(tmp_path / "t", 'select "row", key, value, number from Args order by key')["rows"]
    assert found == [
        [0, "grid", "[1, 2]", None],
        [0, "note", "a b", None],
        [0, "rate", "1.5", 1.5],
        [0, "seen", "3", 3.0],
    ]
    assert ask(tmp_path / "t", "select count(*) from tensors")["rows"] == [[0]]

    table = table_of([Event("mul", 0, 5, fields={"process": 0})])
    for key, values in (("impl_ptrs", [7, 0]), ("storage_ptrs", [64, 0])):
        table.args[key, "ints"] = ArgColumn("ints", np.zeros(2, dtype=np.int64), np.array(values))
    trace = store(table, tmp_path / "u")
    assert ask(trace, "from tensors")["rows"] == [[0, 0, 7, 64, 0], [0, 1, None, None, None]]
    assert ask(trace, "select key, value from args")["rows"] == [["impl_ptrs", "[7, 0]"], ["storage_ptrs", "[64, 0]"]]


def with_args(folder: Path, *args: dict[str, Any]) -> Path:
    """An imported trace of an event for each of these arguments."""
    folder.mkdir(parents=True)
    event = {"ph": "X", "name": "op", "pid": 1, "tid": 1, "dur": 1}
    rows = [{**event, "ts": 10 * row, "args": some} for row, some in enumerate(args)]
    (folder / "t.json").write_text(json.dumps(rows))
    import_trace(folder / "t.json", folder / "t")
    return folder / "t"


@pytest.mark.parametrize("large", [False, True])
def test_arguments_are_columns_where_they_are_named(
    large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = {"seen": 3, "rate": 1.5, "note": "a b", "mixed": 1, "shape": [1, 2], "a.b": "dot", 'q"': 1, "@at": 5}
    trace = with_args(tmp_path / "one", first, {"seen": 4, "rate": 2, "mixed": "x"}, {})
    monkeypatch.setattr(module, "QUERY_ROWS_MAX", 0 if large else QUERY_ROWS_MAX)

    def of(names: str) -> list[list[Any]]:
        return ask(trace, f"select {names} from events order by row")["rows"]

    assert of('"arg.seen", "arg.rate", "arg.note"') == [[3, 1.5, "a b"], [4, 2.0, None], [None, None, None]]
    assert of('"arg.mixed", "arg.shape", "arg.a.b"') == [["1", "[1, 2]", "dot"], ["x", None, None], [None, None, None]]
    assert of('"arg.q""", "arg.@at"') == [[1, 5], [None, None], [None, None]]
    assert [row[-1] for row in of('*, "arg.seen"')] == [3, 4, None]
    assert ask(trace, 'select sum("arg.seen") from events where "ARG.rate" > 1')["rows"] == [[7]]
    assert ask(trace, "select key from args where key[1] = '@'")["rows"] == [["@at"]]
    with pytest.raises(BadInput, match=r'"arg\.sene" not found'):
        of('"arg.sene"')


def test_arguments_that_differ_by_case_alone_are_not_mixed_up(tmp_path: Path) -> None:
    trace = with_args(tmp_path / "one", {"Name": 1, "name": 2})
    assert ask(trace, 'select "arg.Name" from events')["rows"] == [[1]]
    assert ask(trace, 'select "arg.name" from events')["rows"] == [[2]]
    with pytest.raises(BadInput, match="differ by case alone"):
        ask(trace, 'select "arg.name", "arg.Name" from events')


def test_no_argument_is_left_out_however_many_keys_there_are(tmp_path: Path) -> None:
    """GIVEN more keys than get a column of their own, of which the others are one object."""
    rows = [{f"key {n}": n, f"said {n}": "\ud800"} for n in range(ARG_KEYS_MAX)]
    trace = with_args(tmp_path / "many", *rows, {"@late": 1.5, "flag": True, "shape": [1]})
    found = ask(trace, "select count(*), count(distinct key), count(number) from args")["rows"]
    assert found == [[2 * ARG_KEYS_MAX + 3, 2 * ARG_KEYS_MAX + 3, ARG_KEYS_MAX + 1]]
    last = ARG_KEYS_MAX - 1
    assert ask(trace, f"select key, value, number from args where row = {last}")["rows"] == [
        [f"key {last}", str(last), last],
        [f"said {last}", "\ufffd", None],
    ]
    question = f'select "arg.key 1", "arg.key {last}", "arg.@late", "arg.flag", "arg.shape" from events order by row'
    asked = ask(trace, question)["rows"]
    assert (asked[1], asked[last]) == (["1", *[None] * 4], [None, str(last), *[None] * 3])
    assert asked[-1] == [None, None, "1.5", "true", "[1]"]


@pytest.mark.parametrize("text", ["[1]", "{", '{"a": ' + "[" * 100_000])
def test_arguments_beyond_the_limit_that_are_no_object_are_damage(text: str, tmp_path: Path) -> None:
    table = table_of([Event("mul", 0, 5, fields={"process": 0})])
    words = Dictionary([text])
    table.args["@extra", "json"] = ArgColumn("json", np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int32), words)
    trace = store(table, tmp_path / "t")
    for question in ("select * from args", 'select "arg.a" from events'):
        with pytest.raises(BadTrace, match="no JSON"):
            ask(trace, question)


def test_numbers_beyond_the_limit_of_keys_are_as_they_came(tmp_path: Path) -> None:
    table = table_of([Event("mul", 0, 5, fields={"process": 0})])
    huge = "9" * 5000
    words = Dictionary([f'{{"huge": {huge}, "wide": 1e999, "big": {2**70}, "half": 0.5}}'])
    table.args["@extra", "json"] = ArgColumn("json", np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int32), words)
    trace = store(table, tmp_path / "t")
    assert ask(trace, "select key, value, number from args")["rows"] == [
        ["huge", huge, None],
        ["wide", "1e999", None],
        ["big", str(2**70), None],
        ["half", "0.5", 0.5],
    ]


def test_the_operator_around_each_event(tmp_path: Path) -> None:
    rows = [
        Event("note", 0, 100, Kind.USER_ANNOTATION, fields={"parent": -1}),
        Event("aten::mm", 10, 50, fields={"parent": 0}),
        Event("cudaLaunchKernel", 20, 30, Kind.RUNTIME, fields={"parent": 1}),
        Event("[memory]", 25, 25, Kind.MEMORY, fields={"parent": 2}),
        Event("gemm", 60, 90, Kind.KERNEL, fields={"parent": 2}),
    ]
    trace = store(table_of(rows), tmp_path / "t", rows=2)
    assert ask(trace, 'select op from events order by "row"')["rows"] == [[None], [1], [1], [1], [1]]


NESTED = [
    Event("note", 0, 100, Kind.USER_ANNOTATION, fields={"parent": -1}),
    Event("aten::mm", 10, 50, fields={"parent": 0}),
    Event("cudaLaunchKernel", 20, 30, Kind.RUNTIME, fields={"parent": 1}),
    Event("aten::add", 40, None, fields={"parent": 1}),
    Event("gemm", 60, 90, Kind.KERNEL, fields={"parent": 2, "correlation": 4}),
    Event("aten::mm", 95, 99, fields={"parent": 0}),
]
QUESTIONS = [
    "select * from events order by row",
    "select row, op from events order by row",
    "select name, count(*), sum(duration_ns) from events group by all order by all",
    "select a.name, b.name from events a join events b on a.parent = b.row order by all",
    "select e from events e order by e.row",
    "with w as (select name from events) select w from w order by all",
    "select count(*) from query('select * from events')",
    "summarize select kind, duration_ns from events",
    "select count(*) from events natural join (select name, row from events)",
]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("part", [{}, {"from_ns": 30, "to_ns": 70}, {"from_ns": 95}], ids=str)
def test_a_large_trace_is_read_as_it_is_asked(
    question: str, part: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = store(table_of(NESTED), tmp_path / "t", rows=2, start_ns=0, end_ns=100)
    whole = ask(trace, question, **part)
    monkeypatch.setattr(module, "QUERY_ROWS_MAX", 0)
    assert ask(trace, question, **part) == whole


@pytest.mark.parametrize("rows", [1, 2, 1000])
def test_of_a_window_there_are_the_events_with_a_part_in_it(rows: int, tmp_path: Path) -> None:
    """All windows by the table that DuckDB is given, which takes a tenth of a question's time; some by questions."""
    trace = store(table_of(NESTED), tmp_path / "t", rows=rows, start_ns=0, end_ns=100)
    reader, columns = TraceReader(trace), ("row", "start_ns", "end_ns")
    for low in range(0, 101, 5):
        for high in range(low + 5, 106, 5):
            inside = [
                [row, event.start, event.end]
                for row, event in enumerate(NESTED)
                if event.start < high and (event.start >= low or event.end is None or event.end > low)
            ]
            table = events_arrow(reader, columns, (low, high))
            assert [list(row.values()) for row in table.select(columns).to_pylist()] == inside
            if low % 50 == 0 and high % 25 == 0:
                question = "select row, start_ns, end_ns from events order by row"
                assert ask(trace, question, from_ns=low, to_ns=high)["rows"] == inside
    # The operator around the kernel is the one that launched it, before the window.
    assert ask(trace, "select name, op from events", from_ns=55, to_ns=60)["rows"] == [
        ["note", None],
        ["aten::add", 3],
    ]
    assert ask(trace, "select op from events where name = 'gemm'", from_ns=60, to_ns=61)["rows"] == [[1]]


def test_of_a_step_there_are_its_events_and_their_arguments(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    event = {"ph": "X", "pid": 1, "tid": 1}
    steps = [{**event, "cat": "user_annotation", "name": f"ProfilerStep#{n}", "ts": 10 * n, "dur": 9} for n in (1, 2)]
    ops = [{**event, "cat": "cpu_op", "name": "op", "ts": 10 * n + 2, "dur": 2, "args": {"seen": n}} for n in (1, 2)]
    path.write_text(json.dumps(steps + ops))
    import_trace(path, tmp_path / "t")
    assert ask(tmp_path / "t", "select name from events order by row", first_step=2)["rows"] == [
        ["ProfilerStep#2"],
        ["op"],
    ]
    found = ask(tmp_path / "t", "select row, a.value from events join args a using (row)", first_step=2)["rows"]
    assert found == [[3, "2"]]
    with pytest.raises(BadInput, match="no step 3"):
        ask(tmp_path / "t", "select 1", first_step=3)


def test_what_would_take_too_long_to_read_says_what_to_add(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUERY_ROWS_MAX", 4)
    monkeypatch.setattr(module, "SQL_VALUES_PER_SECOND", 1 / 6)  # ten values in 60 s
    assert ask(trace, "select name, count(*) from events group by name order by all limit 1")["truncated"] is False
    read = "reads 3 columns of 5 events, about 90 s, and 60 s is the limit: ask about a step or a window "
    with pytest.raises(Exhausted, match=read + r"\(--step, --window\)"):
        ask(trace, "select name, kind, start_ns from events order by name limit 1")
    with pytest.raises(Exhausted, match="reads 2 columns of 5 events"):
        ask(trace, "select a.name from events a join events b on a.parent = b.parent")
    assert len(ask(trace, "select * from events limit 2")["rows"]) == 2
    assert len(ask(trace, "describe events")["rows"]) > 20


def test_a_window_with_few_enough_events_is_not_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = store(table_of(NESTED), tmp_path / "t", rows=2, start_ns=0, end_ns=100)
    monkeypatch.setattr(module, "QUERY_ROWS_MAX", 4)
    monkeypatch.setattr(module, "SQL_VALUES_PER_SECOND", 1e-9)
    with pytest.raises(Exhausted, match="reads 39 columns"):
        ask(trace, "from events")
    assert len(ask(trace, "from events", to_ns=15)["rows"]) == 2


def test_only_named_columns_are_read(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = columns_read.noted(monkeypatch)
    ask(trace, "select name, sum(duration_ns) from events group by all order by all")
    assert read == {"name", "end"}


def test_all_tables_are_listed(trace: Path) -> None:
    names = {"events", "flows", "backward", "threads", "processes"}
    for question in ("show tables", "select table_name from information_schema.tables", "describe"):
        assert names <= {cell for row in ask(trace, question)["rows"] for cell in row if isinstance(cell, str)}
