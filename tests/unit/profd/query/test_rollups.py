"""Rollups: what was kept of a trace answers as its events do, and what is not as it should be is not believed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profd.events import Kind
from profd.limits import ROLLUP_BYTES_MAX
from profd.model.question import Scope
from profd.query.averages import Average
from profd.questions.answer import answer
from profd.questions.table import QUESTIONS
from profd.segments import rollups
from profd.segments.rollup_files import parsed

from tests.support.many_ranks import member, training
from tests.support.tables import Event

ASKED: list[tuple[str, dict[str, Any]]] = [
    ("top", {"sort_by": "count"}),
    ("top", {"raw": True, "limit": 3}),
    ("top", {"group_by": "module", "sort_by": "name"}),
    ("top", {"group_by": "module", "raw": True}),
    ("diff", {"by": "name"}),
    ("diff", {"by": "module"}),
    ("steps", {}),
    ("gpu", {}),
    ("summary", {}),
    ("merged_tree", {}),
    ("merged_tree", {"of": "operators"}),
    ("explain", {}),
]
EXPLAIN = {"explain", "explain-steps"}  # the answer, and the steps that a part of the trace is asked by
NOT_KEPT: list[tuple[str, dict[str, Any]]] = [
    ("diff", {"by": "path"}),
    ("top", {"group_by_input_shape": True}),
    ("top", {"group_by_stack_n": 2}),
    ("top", {"with_backward": True}),
    ("top", {"from_ns": 0}),
    ("top", {"first_step": 1}),
    ("merged_tree", {"limit": 3}),
    ("merged_tree", {"from_ns": 0}),
]


def ask(name: str, traces: Any, fresh: Path | None = None, kept: Path | None = None, **given: Any) -> str:
    """The answer of a question's job, as JSON. `kept` has the rollups of each trace in a folder of its name."""
    question = QUESTIONS[name]
    args: dict[str, Any] = {"trace_dir": traces, **given}
    if question.others:
        args |= {"other": "", "other_dir": traces}
    for argument in ("trace", *(other.name for other in question.others)):
        if kept is not None:
            of = kept_of(kept, traces)
            args[f"{argument}_index"] = of
    if fresh is not None:
        args["staging"] = str(fresh)
    scope = Scope.CAPTURE if isinstance(traces, list) else Scope.TRACE
    assert scope in question.scopes
    with open(traces[0] + ".answer" if isinstance(traces, list) else traces + ".answer", "w+b") as out:
        answer(question, args, [out.fileno()], lambda what, share: None)
        out.seek(0)
        return out.read().decode()


def kept_of(kept: Path, traces: Any) -> Any:
    return str(kept / Path(traces).name) if isinstance(traces, str) else [str(kept / Path(one).name) for one in traces]


def take(fresh: Path, traces: list[str], kept: Path) -> set[str]:
    """Put what was written about these where it is kept; the names."""
    names = set()
    for file in fresh.iterdir():
        place, name = parsed(file.name) or (-1, "")
        folder = kept / Path(traces[place % len(traces)]).name
        folder.mkdir(parents=True, exist_ok=True)
        file.rename(folder / name)
        names.add(name)
    return names


NAMES = st.sampled_from(["aten::mm", "aten::add", "ü\ud800", "_ZN1a1bEv", "ProfilerStep#7", "cudaLaunchKernel", ""])
KINDS = st.sampled_from(
    [Kind.CPU_OP, Kind.USER_ANNOTATION, Kind.RUNTIME, Kind.KERNEL, Kind.PYTHON_FUNCTION, Kind.MEMCPY]
)


@st.composite
def events(draw: Any) -> list[Event]:
    some = []
    for number in range(draw(st.integers(0, 12))):
        start = draw(st.integers(0, 2000))
        end = draw(st.none() | st.integers(start, 3000))
        fields = {"thread": draw(st.integers(0, 2)), "self_time": draw(st.integers(0, 1000))}
        if draw(st.booleans()):
            fields |= {"module": draw(st.sampled_from(["net", "net.layer"])), "bytes": number}
        some.append(Event(draw(NAMES), start, end, draw(KINDS), fields=fields))
    return some + (training(draw(st.integers(0, 5))) if draw(st.booleans()) else [])


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ranks=st.lists(events(), min_size=1, max_size=3))
def test_an_answer_by_rollups_is_that_of_the_events(tmp_path_factory: pytest.TempPathFactory, ranks: Any) -> None:
    folder = tmp_path_factory.mktemp("rolled")
    members = [str(member(folder, rank, some)) for rank, some in enumerate(ranks)]
    fresh, kept = folder / "fresh", folder / "kept"
    fresh.mkdir()
    for name, asked in ASKED:
        traces = members if Scope.CAPTURE in QUESTIONS[name].scopes else members[0]
        told = ask(name, traces, fresh, **asked)
        assert ask(name, traces, **asked) == told
        assert len(take(fresh, members, kept)) == (len(EXPLAIN) if name == "explain" else 1)
        # GIVEN them WHEN it is asked again THEN it is answered so, and nothing is worked out again
        assert ask(name, traces, fresh, kept, **asked) == told
        assert ask(name, members[0], fresh, kept, **asked) == ask(name, members[0], **asked)
        assert not any(fresh.iterdir())


@pytest.mark.parametrize(("name", "asked"), ASKED)
def test_by_what_was_kept_alone(tmp_path: Path, name: str, asked: dict[str, Any]) -> None:
    """A glance: it is that of the events, or says that it needs these before anything is read of them or written."""
    trace, fresh, kept = str(member(tmp_path, 0, training(0, steps=6))), tmp_path / "fresh", tmp_path / "kept"
    fresh.mkdir()
    (kept / "rank0").mkdir(parents=True)
    assert ask(name, trace, None, kept, kept_only=True, **asked) == ""
    told = ask(name, trace, fresh, **asked)
    take(fresh, [trace], kept)
    assert ask(name, trace, None, kept, kept_only=True, **asked) == told


@pytest.mark.parametrize(("name", "asked"), NOT_KEPT)
def test_what_is_not_kept_is_no_glance(tmp_path: Path, name: str, asked: dict[str, Any]) -> None:
    trace = str(member(tmp_path, 0, training(0, steps=6)))
    assert ask(name, trace, kept_only=True, **asked) == ""


class Rank:
    """A trace, and what was kept of it."""

    def __init__(self, folder: Path) -> None:
        self.trace = str(member(folder, 0, training(0, steps=6)))
        self.fresh, self.kept = folder / "fresh", folder / "kept"
        self.fresh.mkdir()

    def ask(self, name: str, **given: Any) -> str:
        return ask(name, self.trace, self.fresh, self.kept, **given)

    def file(self, name: str) -> Path:
        return self.kept / "rank0" / name

    def keep(self) -> set[str]:
        return take(self.fresh, [self.trace], self.kept)


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    return Rank(tmp_path)


def test_what_rollups_do_not_answer_is_not_kept(rank: Rank) -> None:
    for name, asked in NOT_KEPT:
        rank.ask(name, **asked)
        assert rank.keep() == set()


def rewritten(path: Path, **header: Any) -> None:
    """The same file with another header, its sum being right."""
    head, _, body = path.read_bytes().partition(b"\n")
    magic, _, text = head.partition(b" ")
    fields = json.loads(text)
    body = header.pop("body", body)
    packed = rollups._CODEC.compress(header.pop("plain_body"), asbytes=True) if "plain_body" in header else body
    path.write_bytes(
        magic + b" " + json.dumps({**fields, "crc": zlib.crc32(packed), **header}).encode() + b"\n" + packed
    )


def table_of(path: Path) -> pa.Table:
    body = path.read_bytes().partition(b"\n")[2]
    plain = json.loads(path.read_bytes().partition(b"\n")[0].split(b" ", 1)[1])["plain"]
    return pa.ipc.open_stream(rollups._CODEC.decompress(body, plain)).read_all()


def with_table(path: Path, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    plain = sink.getvalue().to_pybytes()
    rewritten(path, plain=len(plain), plain_body=plain)


def with_value(path: Path, value: Any) -> None:
    plain = json.dumps(value).encode()
    rewritten(path, plain=len(plain), plain_body=plain)


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def changed(path: Path, column: str, value: Any) -> None:
    table = table_of(path)
    at = table.schema.get_field_index(column)
    with_table(path, table.set_column(at, table.schema.field(at), pa.array(value, table.schema.field(at).type)))


WRONG: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "of other rules": ("top", lambda path: rewritten(path, rules="0.0.1 top 1")),
    "of another trace": ("top", lambda path: rewritten(path, trace="rank1")),
    "of other events": ("top", lambda path: rewritten(path, events=1)),
    "of a later format": ("top", lambda path: rewritten(path, format=2)),
    "a byte lost": ("top", flipped),
    "cut": ("top", lambda path: path.write_bytes(path.read_bytes()[:-9])),
    "empty": ("top", lambda path: path.write_bytes(b"")),
    "zeros": ("top", lambda path: path.write_bytes(bytes(4096))),
    "no header": ("top", lambda path: path.write_bytes(b"profd-rollup [1]\n")),
    "a header without end": ("top", lambda path: path.write_bytes(b"profd-rollup " + b"[" * 100_000)),
    "larger than it may be": ("top", lambda path: rewritten(path, plain=ROLLUP_BYTES_MAX + 1)),
    "smaller than nothing": ("top", lambda path: rewritten(path, plain=-1)),
    "a directory": ("top", lambda path: (path.unlink(), path.mkdir())),
    "no table": ("top", lambda path: with_value(path, {})),
    "other columns": ("top", lambda path: with_table(path, table_of(path).drop_columns(["name"]))),
    "a row without a name": ("top", lambda path: changed(path, "name", [None] * len(table_of(path)))),
    "a row whose name is no text": ("top", lambda path: changed(path, "name", [b"\xc3"] * len(table_of(path)))),
    "a row without a time": ("top", lambda path: changed(path, "cpu_time_total_ns", [None] * len(table_of(path)))),
    "a row with shapes": ("top", lambda path: changed(path, "input_shapes", [b"{"] * len(table_of(path)))),
    "no row": ("diff-name", lambda path: with_table(path, table_of(path).slice(0, 0))),
    "two rows": ("diff-name", lambda path: with_table(path, pa.concat_tables([table_of(path)] * 2))),
    "a list that is none": ("diff-name", lambda path: changed(path, "key", [None])),
    "a time that is none": ("diff-name", lambda path: changed(path, "ns", [[None]])),
    "lists of other lengths": ("diff-name", lambda path: changed(path, "count", [[1]])),
    "a path that is not there": ("diff-name", lambda path: changed(path, "names", [[]])),
    "a name twice": ("diff-name", lambda path: changed(path, "names", [[b"gemm"] * 50])),
    "a name that is no text": ("diff-name", lambda path: changed(path, "names", [[b"\xff"] * 50])),
    "a step that is not there": ("diff-name", lambda path: changed(path, "step_ns", [[1]])),
    "no value": ("steps", lambda path: with_table(path, pa.table({}))),
    "another value": ("steps", lambda path: with_value(path, [1])),
    "a step without a number": ("steps", lambda path: with_value(path, {**json.loads(STEPS), "steps": [{}]})),
    "no list of devices": ("gpu", lambda path: with_value(path, {**json.loads(GPU), "devices": 5})),
    "no findings": ("explain", lambda path: with_value(path, {"findings": {}})),
    "no nodes": ("merged-calls", lambda path: with_value(path, {"window_ns": 1, "nodes": {}})),
    "no accounting": ("summary", lambda path: with_value(path, {"accounting": [], "next": ""})),
    "no sum": ("gpu", lambda path: with_value(path, {**json.loads(GPU), "links": {"linked": "1"}})),
}  # fmt: skip
STEPS = '{"n": 1, "from": "", "message": null, "outliers": null, "steps": []}'
GPU = json.dumps(
    {**dict.fromkeys(("window_ns", "streams_left_out", "copies_left_out"), 0), "message": None}
    | {"links": dict.fromkeys(("device_events", "linked", "stated"), 0)}
    | {key: [] for key in ("devices", "streams", "copies", "ops", "metrics")}
)


@pytest.mark.parametrize("what", WRONG)
def test_what_is_not_as_it_should_be_is_worked_out_again(rank: Rank, what: str) -> None:
    file, wrong = WRONG[what]
    name, _, by = file.partition("-")
    name, given = ("merged_tree", {"of": by}) if name == "merged" else (name, {"by": by} if by else {})
    told = rank.ask(name, **given)
    assert rank.keep() == (EXPLAIN if name == "explain" else {file})
    wrong(rank.file(file))
    assert rank.ask(name, **given) == told
    assert [path.name.partition(".")[2] for path in rank.fresh.iterdir()][:1] == [file]


NO_STEPS = {"start": [], "end": [], "thread": [], "name": [], "how": ""}
WRONG_STEPS: dict[str, Any] = {
    "nothing": {},
    "no list": {**NO_STEPS, "start": 1},
    "lists of other lengths": {**NO_STEPS, "start": [1]},
    "no number": {"start": [1], "end": ["2"], "thread": [0], "name": ["ProfilerStep#1"], "how": ""},
    "beyond 64 bits": {"start": [1], "end": [1 << 63], "thread": [0], "name": ["ProfilerStep#1"], "how": ""},
    "no name": {"start": [1], "end": [2], "thread": [0], "name": [None], "how": ""},
    "no thread": {"start": [1], "end": [2], "thread": [1 << 31], "name": ["ProfilerStep#1"], "how": ""},
    "out of order": {"start": [2, 1], "end": [3, 3], "thread": [0, 0], "name": ["a", "b"], "how": ""},
}


@pytest.mark.parametrize("what", WRONG_STEPS)
def test_steps_that_are_not_as_they_should_be_are_found_again(rank: Rank, what: str) -> None:
    told = rank.ask("explain", first_step=2)
    assert rank.keep() == {"explain-steps"}
    with_value(rank.file("explain-steps"), WRONG_STEPS[what])
    assert rank.ask("explain", first_step=2) == told
    assert rank.keep() == {"explain-steps"}


def test_findings_of_a_part_know_the_steps_by_what_was_kept(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the trace would be read from its begin for each step that somebody looks at."""
    alone = rank.ask("explain", first_step=2), rank.ask("explain", from_ns=0)
    for path in rank.fresh.iterdir():
        path.unlink()
    rank.ask("explain")
    assert rank.keep() == EXPLAIN
    monkeypatch.setattr("profd.query.part.StepMarks", None)
    assert (rank.ask("explain", first_step=2), rank.ask("explain", from_ns=0)) == alone
    assert not any(rank.fresh.iterdir())


def test_a_rollup_of_the_right_shape_is_what_answers(rank: Rank) -> None:
    """Or the test above could not fail."""
    rank.ask("steps")
    rank.keep()
    with_value(rank.file("steps"), json.loads(STEPS))
    assert json.loads(rank.ask("steps"))["n"] == 1
    assert not any(rank.fresh.iterdir())


def test_what_is_too_large_is_not_kept(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollups, "ROLLUP_BYTES_MAX", 100)
    rank.ask("steps")
    rank.ask("top")
    assert rank.keep() == set()


def test_sums_beyond_64_bits_are_answered_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of columns could not hold them."""
    huge = [Average("long", "CPU", 1 << 63, 0, 0, 0, 0)]
    monkeypatch.setattr("profd.query.top.averages_of_trace", lambda *_, **__: huge)
    rank = Rank(tmp_path)
    assert json.loads(rank.ask("top", group_by="module"))[0]["count"] == 1 << 63
    assert rank.keep() == set()
