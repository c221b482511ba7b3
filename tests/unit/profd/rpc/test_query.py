"""QueryService over a real server and channel: answers, refusals, and what a hostile Struct comes to."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format, struct_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from profd.limits import QUESTION_ARGUMENTS_MAX, QUESTION_LIST_MAX, RPC_CHUNK_BYTES
from profd.offline import run_here
from profd.questions.jobs import DIRECTORIES, INDEXES, JOBS
from profd.questions.library import Library
from profd.questions.table import QUESTIONS
from profd.rpc.answers import Answers
from profd.rpc.guard import Guard
from profd.rpc.query import QueryServicer, plain
from profd.rpc.server import RpcServer
from profd.rpc.traces import TraceServicer
from profd.store.store import Store, StoreLimits
from profd.telemetry.metrics import Metrics
from profd.trust import caller as callers
from profd.trust.token import Tokens
from profd.workers import gate
from profd.workers.pool import WorkerPool
from profproto.v1 import query_pb2 as pb
from profproto.v1 import query_pb2_grpc, trace_pb2, trace_pb2_grpc

from tests.support.old_answers import ANN, BOB, FIRST, SECOND, THEIRS, stored
from tests.unit.profd.store.stored import add

INT64_MAX = (1 << 63) - 1


class Rig:
    """A server with traces of Ann's, and a client that is Ann."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.denials: list[dict[str, object]] = []
        self.used: list[tuple[str, str]] = []
        self.store = store
        self.jobs: list[dict[str, Any]] = []
        library = Library(
            store, self.run, "node7", lambda action, caller, record: self.used.append((action, record.id))
        )
        answers = Answers(library, lambda uid: False)
        tokens = Tokens()
        add, add_old = (
            query_pb2_grpc.add_QueryServiceServicer_to_server,
            trace_pb2_grpc.add_TraceServiceServicer_to_server,
        )
        self.server = RpcServer(
            folder / "s",
            Guard(tokens, self, Metrics()),
            {
                "profd.v1.QueryService": (add, QueryServicer(library, answers)),
                "profd.v1.TraceService": (add_old, TraceServicer(library, self, answers)),
            },
        )
        self.metadata = (("profd-token", tokens.issue(ANN)),)
        self.channel = grpc.aio.insecure_channel(f"unix:{folder / 's'}")
        self.stub = query_pb2_grpc.QueryServiceStub(self.channel)

    async def run(self, job: str, args: dict[str, Any], fds: Any = (), on_progress: Any = None) -> dict[str, Any]:
        self.jobs.append(args)
        return await run_here(job, args, fds)

    def write(self, action: str, uid: int, **details: object) -> None:
        self.denials.append({"action": action, "uid": uid, **details})

    async def ask(
        self, name: str, arguments: Mapping[str, Any] | struct_pb2.Struct, trace: str = FIRST, capture: str = ""
    ) -> Any:
        """(header, bytes)."""
        scope = pb.Scope(capture=capture) if capture else pb.Scope(trace=trace)
        request = pb.QueryRequest(name=name, scope=scope)
        if isinstance(arguments, struct_pb2.Struct):
            request.arguments.CopyFrom(arguments)
        else:
            request.arguments.update(arguments)
        parts = [part async for part in self.stub.Query(request, metadata=self.metadata)]
        assert [part.WhichOneof("part") for part in parts] == ["header", *["data"] * (len(parts) - 1)]
        return parts[0].header, b"".join(part.data for part in parts[1:])

    async def refusal(self, *asked: Any, **more: Any) -> tuple[str, str]:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.ask(*asked, **more)
        return caught.value.code().name, str(caught.value.details())


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    store = await stored(tmp_path / "state")
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        rig = Rig(Path(name), store)
        await rig.server.open(lambda file: file.chmod(0o600))
        yield rig
        await rig.channel.close(None)
        await rig.server.close(0)
    store.close()


async def test_every_kind_of_answer(rig: Rig) -> None:
    header, value = await rig.ask("steps", {})
    assert (header.name, header.kind, header.version) == ("steps", pb.ANSWER_VALUE, 1)
    assert [(trace.id, trace.owner) for trace in header.traces] == [(FIRST, "ann")]
    assert json.loads(value)["n"] == 3
    header, rows = await rig.ask("tree", {"max_depth": "1"})
    assert (header.kind, len(rows.splitlines())) == (pb.ANSWER_ROWS, 3)
    header, file = await rig.ask("export", {"format": "folded"})
    assert (header.kind, file[:4]) == (pb.ANSWER_BYTES, b"7 / ")
    header, value = await rig.ask("diff", {"other": SECOND, "by": "path"})
    assert [trace.id for trace in header.traces] == [FIRST, SECOND]
    assert json.loads(value)["by"] == "path"
    header, value = await rig.ask("top", {"limit": 1, "group_by_input_shape": True}, trace="")
    assert (header.traces[0].id, len(json.loads(value))) == (SECOND, 1)  # the latest
    assert json.loads((await rig.ask("summary", {}))[1])["trace"]["id"] == FIRST
    told = [("steps", FIRST), ("tree", FIRST), ("export", FIRST), ("diff", FIRST), ("diff", SECOND), ("top", SECOND)]
    assert rig.used == [(f"trace.{verb}", trace) for verb, trace in [*told, ("show", FIRST)]]


CAPTURE = "c0123456789ab"


async def test_a_capture_is_a_scope(rig: Rig) -> None:
    mine = [add(rig.store, ANN, capture=CAPTURE, rank=rank) for rank in range(2)]
    add(rig.store, BOB, capture=CAPTURE, rank=2)
    header, value = await rig.ask("top", {"by": "rank"}, capture="c0123")
    assert (header.capture, list(header.traces)) == (CAPTURE, [])
    answer = json.loads(value)
    assert [one["trace"] for one in answer["traces"]] == [one.id for one in mine]
    assert {row["rank"] for row in answer["rows"]} == {0, 1}
    assert sorted(rig.used) == sorted(("trace.top", one.id) for one in mine)
    code, says = await rig.refusal("tree", {}, capture=CAPTURE)
    assert (code, says.partition(":")[0]) == ("INVALID_ARGUMENT", "tree cannot be asked of a capture")
    assert (await rig.refusal("top", {}, capture="c99"))[0] == "NOT_FOUND"


async def test_a_capture_in_a_confined_worker(tmp_path: Path) -> None:
    store = Store(tmp_path / "state", StoreLimits(free_share_min=0.0))
    for rank in range(3):
        add(store, ANN, capture=CAPTURE, rank=rank)
    pool = WorkerPool(1, gates=tmp_path / "state" / gate.FOLDER, known=JOBS, directories=DIRECTORIES, beside=INDEXES)
    await pool.open()
    library = Library(store, pool.run)
    callers.enter(ANN)

    async def ask(name: str, **arguments: Any) -> Any:
        asked = await library.asked(ANN, name, "", arguments, CAPTURE)
        return json.loads(b"".join([piece async for piece in Answers(library, lambda uid: False).pieces(asked)]))

    by_rank = await ask("top", by="rank")
    assert {row["rank"] for row in by_rank["rows"]} == {0, 1, 2}
    # What the worker has written about each trace is read by a worker in the place of its events.
    assert len([*store.root.glob("index/*/top")]) == 3
    segments = {file: file.read_bytes() for file in store.traces.glob("*/segment-*")}
    for file in segments:
        file.write_bytes(b"")
    assert await ask("top", by="rank") == by_rank
    for file, data in segments.items():
        file.write_bytes(data)
    answer = await ask("sql", sql="select rank, count(*) from events group by 1 order by 1")
    assert answer["rows"] == [[0, 50], [1, 50], [2, 50]]
    assert len((await ask("diff", other=CAPTURE))["captures"][1]["traces"]) == 3
    await pool.close()
    store.close()


async def test_no_scope_is_the_latest(rig: Rig) -> None:
    parts = [part async for part in rig.stub.Query(pb.QueryRequest(name="steps"), metadata=rig.metadata)]
    assert parts[0].header.traces[0].id == SECOND


async def test_answers_are_those_of_the_old_rpcs(rig: Rig) -> None:
    old = trace_pb2_grpc.TraceServiceStub(rig.channel)
    calls = old.Sql(trace_pb2.SqlRequest(id=FIRST, sql="from events"), metadata=rig.metadata)
    assert (await rig.ask("sql", {"sql": "from events"}))[1] == b"".join([chunk.data async for chunk in calls])
    summary = await old.Summary(trace_pb2.TraceRef(id=FIRST), metadata=rig.metadata)
    value = json.loads((await rig.ask("summary", {}))[1])
    assert {**json.loads(summary.summary_json), "trace": value["trace"]} == value


async def test_64_bits_arrive(rig: Rig) -> None:
    """A Struct's numbers are doubles, so integers go as decimal strings; whole numbers are taken up to 2^53."""
    await rig.ask("export", {"format": "folded", "to_ns": str(INT64_MAX)})
    assert rig.jobs[-1]["to_ns"] == INT64_MAX
    await rig.ask("export", {"format": "folded", "to_ns": float(1 << 53)})
    assert rig.jobs[-1]["to_ns"] == 1 << 53
    code, says = await rig.refusal("export", {"to_ns": float(1 << 54)})
    assert (code, says) == ("INVALID_ARGUMENT", "'to_ns' must be an integer.")
    code, says = await rig.refusal("tree", {"from_row": str(INT64_MAX)})
    assert says == f"the trace has no row {INT64_MAX}: its rows are 0 to 14"
    assert (await rig.refusal("tree", {"from_row": str(INT64_MAX + 1)}))[0] == "INVALID_ARGUMENT"


def nested(levels: int) -> struct_pb2.Struct:
    struct = struct_pb2.Struct()
    place = struct
    for _ in range(levels):
        place.fields["limit"].struct_value.SetInParent()
        place = place.fields["limit"].struct_value
    return struct


def nested_lists(levels: int) -> struct_pb2.Struct:
    struct = struct_pb2.Struct()
    place = struct.fields["lines"]
    for _ in range(levels):
        place = place.list_value.values.add()
    return struct


def unset() -> struct_pb2.Struct:
    struct = struct_pb2.Struct()
    struct.fields["lines"].list_value.values.add()
    return struct


REFUSED: list[tuple[str, Any, str]] = [
    ("colour", {}, "there is no question 'colour'; there are: summary, top,"),
    ("x" * 100_000, {}, f"there is no question '{'x' * 100}'; there are: "),
    ("", {}, "there is no question ''; there are: "),
    ("steps", {"trace_dir": "/etc"}, "steps has no argument 'trace_dir'; it has none"),
    ("top", {"y" * 9999: 1}, f"top has no argument '{'y' * 100}'; it has: group_by, "),
    ("top", {str(n): 1 for n in range(99)}, f"99 arguments, the limit is {QUESTION_ARGUMENTS_MAX}"),
    ("top", {"limit": float("nan")}, "'limit' must be an integer."),
    ("top", {"limit": float("inf")}, "'limit' must be an integer."),
    ("top", {"limit": 1.5}, "'limit' must be an integer."),
    ("top", {"limit": True}, "'limit' must be an integer."),
    ("top", {"limit": "many"}, "'limit' must be an integer."),
    ("top", {"limit": -1}, "limit must be a number from 0, not -1"),
    ("top", {"limit": ["5"]}, "'limit' must be an integer."),
    ("top", nested(1), "'limit' must be an integer."),
    ("top", nested(30), "'limit' must be an integer."),
    ("top", {"raw": "yes"}, "'raw' must be true or false."),
    ("top", {"sort_by": 5}, "'sort_by' must be a string."),
    ("top", {"sort_by": "z" * 60_000}, "cannot sort by 'zzz"),
    ("timeline", {"lines": "ops"}, "'lines' must be a list of strings."),
    ("timeline", {"lines": [{"a": 1}]}, "'lines' must be a list of strings."),
    ("timeline", nested_lists(25), "'lines' must be a list of strings."),
    ("timeline", unset(), "'lines' must be a list of strings."),
    ("timeline", {"lines": ["ops"] * 10_000}, f"'lines' is a list of 10000, the limit is {QUESTION_LIST_MAX}"),
    ("timeline", {"lines": ["ops", "opps"]}, "there are no lines 'opps'; there are: steps, "),
    ("diff", {"other": "o" * 5000}, "other is longer than 4096 bytes, the limit"),
    ("sql", {}, "say what to ask, like"),
    ("sql", {"sql": "x" * 70_000}, "the question is longer than 65536 bytes, the limit"),
    ("sql", {"sql": "select 1", "limit": 1_000_001}, "limit must be a number from 0 (meaning 1000000) to 1000000, not"),
]


@pytest.mark.parametrize(("name", "arguments", "says"), REFUSED)
async def test_what_is_refused_says_so(rig: Rig, name: str, arguments: Any, says: str) -> None:
    code, said = await rig.refusal(name, arguments)
    assert (code, said[: len(says)]) == ("INVALID_ARGUMENT", says)
    assert not rig.jobs or name == "sql"  # no worker has seen it


async def test_structs_deeper_than_protobuf_goes(rig: Rig) -> None:
    """Those do not parse, whatever they hold."""
    inner = b""
    for _ in range(3000):
        value = b"\x2a" + _varint(len(inner)) + inner  # Value.struct_value
        entry = b"\x0a\x05limit\x12" + _varint(len(value)) + value
        inner = b"\x0a" + _varint(len(entry)) + entry
    request = b"\x12\x03top\x1a" + _varint(len(inner)) + inner
    call = rig.channel.unary_stream("/profd.v1.QueryService/Query", None, None)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        [_ async for _ in call(request, metadata=rig.metadata)]
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "the request is none of /profd.v1.QueryService/Query"


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


async def test_what_is_not_theirs_is_denied_and_written_down(rig: Rig) -> None:
    for arguments, trace in (({}, THEIRS), ({"other": THEIRS}, FIRST)):
        code, says = await rig.refusal("diff", arguments, trace=trace)
        assert (code, says.partition(" belongs")[0]) == ("PERMISSION_DENIED", f"Trace {THEIRS}")
    told = [(entry["action"], entry["uid"], entry["method"]) for entry in rig.denials]
    assert told == [("denied", ANN.uid, "/profd.v1.QueryService/Query")] * 2
    assert rig.used == [("trace.diff", FIRST)]
    assert not rig.jobs
    assert (await rig.refusal("steps", {}, trace="zzz"))[0] == "NOT_FOUND"


async def test_nobody_asks_without_a_token(rig: Rig) -> None:
    for call in (rig.stub.Query(pb.QueryRequest(name="top")), rig.stub.ListQuestions(pb.ListQuestionsRequest())):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await (call if not hasattr(call, "__aiter__") else anext(aiter(call)))
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_long_short_answers_come_in_pieces(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profd.rpc.answers.RPC_CHUNK_BYTES", 100)
    _, value = await rig.ask("top", {})
    assert len(value) > 100
    assert json.loads(value)[0]["name"] == "ProfilerStep*"
    assert RPC_CHUNK_BYTES > 100


async def test_the_table_is_served(rig: Rig) -> None:
    answer = await rig.stub.ListQuestions(pb.ListQuestionsRequest(), metadata=rig.metadata)
    rows = {row.name: row for row in answer.questions}
    assert [*rows] == [*QUESTIONS]
    assert [*rows["tree"].scopes] == ["trace"]
    assert [*rows["top"].scopes] == ["trace", "capture"]
    assert ([*rows["watch_host"].scopes], rows["watch_host"].answer) == (["host"], pb.ANSWER_LIVE)
    assert [one.name for one in rows["top"].capture_arguments] == ["by"]
    assert (rows["tree"].answer, rows["tree"].scope, rows["tree"].offline) == (pb.ANSWER_ROWS, "trace", True)
    arguments = {(name, one.name): one for name, row in rows.items() for one in row.arguments}
    limit = arguments["sql", "limit"]
    assert (limit.kind, limit.least, limit.most) == (pb.ARGUMENT_INTEGER, 0, 1_000_000)
    assert limit.default.string_value == "0"
    assert arguments["tree", "from_row"].default.WhichOneof("kind") == "null_value"
    assert arguments["diff", "other"].kind == pb.ARGUMENT_TRACE
    assert arguments["top", "sort_by"].default.string_value in arguments["top", "sort_by"].choices
    # AND what it says is taken, default by default
    for name, row in rows.items():
        for one in row.arguments:
            assert QUESTIONS[name].checked(plain(struct_pb2.Struct(fields={one.name: one.default})))


@pytest.mark.parametrize(
    ("name", "scope", "says"),
    [
        ("watch_host", pb.Scope(trace=FIRST), "watch_host is asked of the host, and of no trace"),
        ("watch_host", pb.Scope(capture="c0"), "watch_host is asked of the host, and of no capture"),
        ("top", pb.Scope(host=True), "top cannot be asked of the host: ask a trace (`profctl list`)"),
        ("colour", pb.Scope(host=True), "there is no question 'colour'"),
    ],
)
async def test_the_host_is_asked_what_is_of_it(rig: Rig, name: str, scope: pb.Scope, says: str) -> None:
    call = rig.stub.Query(pb.QueryRequest(name=name, scope=scope), metadata=rig.metadata)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await anext(aiter(call))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert says in str(caught.value.details())
    assert rig.used == []


async def test_reflection_lists_it(rig: Rig) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(rig.channel)
    asked = iter([reflection_pb2.ServerReflectionRequest(file_containing_symbol="profd.v1.QueryService")])
    (answer,) = [answer async for answer in stub.ServerReflectionInfo(asked)]
    assert any(b"ListQuestions" in file for file in answer.file_descriptor_response.file_descriptor_proto)


async def test_the_request_of_the_docs_is_answered(rig: Rig) -> None:
    """As a client that knows JSON and reflection sends it."""
    text = (Path(__file__).parents[4] / "docs" / "questions.md").read_text()
    (asked,) = re.findall(r"ask -d '(.*)' [^']*profd\.v1\.QueryService/Query", text)
    request = json_format.Parse(asked, pb.QueryRequest())
    parts = [part async for part in rig.stub.Query(request, metadata=rig.metadata)]
    assert len(json.loads(parts[1].data)) == 5
    assert rig.jobs[-1]["limit"] == 5
