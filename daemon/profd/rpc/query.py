"""QueryService: any question of the table, and the table itself."""

# ruff: noqa: N802, D102 - the names are gRPC's, and query.proto describes the calls

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

from google.protobuf import struct_pb2
from profproto.v1 import query_pb2 as pb
from profproto.v1 import query_pb2_grpc

from profd.capture.host_watch import HostWatch
from profd.errors import BadInput
from profd.limits import QUESTION_ARGUMENTS_MAX, QUESTION_LIST_MAX, RPC_CHUNK_BYTES
from profd.model.arguments import Argument
from profd.model.question import Question, Scope
from profd.questions.library import Library
from profd.questions.reading import Asked
from profd.questions.table import QUESTIONS, find
from profd.rpc.answers import Answers
from profd.rpc.live import lines
from profd.rpc.traces import trace_message
from profd.trust import caller as callers


class QueryServicer(query_pb2_grpc.QueryServiceServicer):
    """All calls of the service."""

    def __init__(self, library: Library, answers: Answers, live: HostWatch | None = None) -> None:
        """`live`: None, and nothing is said of the host."""
        self._library = library
        self._answers = answers
        self._live = live

    async def Query(self, request: pb.QueryRequest, context: object) -> AsyncIterator[pb.QueryResponse]:
        values = plain(request.arguments)
        scope = request.scope
        if scope.WhichOneof("of") == "host":
            async with contextlib.aclosing(self._of_host(request.name, values)) as answer:
                async for part in answer:
                    yield part
            return
        capture = scope.capture if scope.WhichOneof("of") == "capture" else None
        asked = await self._library.asked(callers.current(), request.name, scope.trace, values, capture)
        yield pb.QueryResponse(header=_header(asked))
        async with contextlib.aclosing(self._answers.pieces(asked)) as answer:
            async for piece in answer:
                yield pb.QueryResponse(data=piece)

    async def _of_host(self, name: str, values: dict[str, object]) -> AsyncGenerator[pb.QueryResponse, None]:
        question = find(name)
        question.checked(values, Scope.HOST)
        if self._live is None:
            raise BadInput("nothing is watched here; ask the daemon of the host")
        yield pb.QueryResponse(header=pb.QueryHeader(name=name, kind=_kind(question), version=question.version))
        async with contextlib.aclosing(lines(self._live, callers.current())) as answer:
            async for line in answer:
                for at in range(0, len(line), RPC_CHUNK_BYTES):
                    yield pb.QueryResponse(data=line[at : at + RPC_CHUNK_BYTES])

    async def ListQuestions(self, request: pb.ListQuestionsRequest, context: object) -> pb.ListQuestionsResponse:
        return pb.ListQuestionsResponse(questions=map(_row, QUESTIONS.values()))


def plain(arguments: struct_pb2.Struct) -> dict[str, object]:
    """The arguments as the table checks them; it refuses a value that no argument can have. Raises BadInput."""
    if len(arguments.fields) > QUESTION_ARGUMENTS_MAX:
        raise BadInput(f"{len(arguments.fields)} arguments, the limit is {QUESTION_ARGUMENTS_MAX}")
    return {name: _plain(name, value) for name, value in arguments.fields.items()}


def _plain(name: str, value: struct_pb2.Value) -> object:
    kind = value.WhichOneof("kind")
    if kind is None or kind == "null_value":
        return None
    if kind != "list_value":
        return getattr(value, kind)
    items = value.list_value.values
    if len(items) > QUESTION_LIST_MAX:
        raise BadInput(f"{name[:100]!r} is a list of {len(items)}, the limit is {QUESTION_LIST_MAX}")
    return [getattr(item, item.WhichOneof("kind") or "null_value") for item in items]


def _header(asked: Asked) -> pb.QueryHeader:
    question = asked.question
    traces = [] if asked.capture else map(trace_message, asked.traces)
    return pb.QueryHeader(
        name=question.name, kind=_kind(question), version=question.version, traces=traces, capture=asked.capture
    )


def _kind(question: Question) -> str:
    return f"ANSWER_{question.answer.name}"


def _row(question: Question) -> pb.QuestionRow:
    return pb.QuestionRow(
        name=question.name,
        help=question.help,
        answer=_kind(question),
        arguments=map(_argument, question.arguments),
        scope=question.scopes[0],
        scopes=question.scopes,
        capture_arguments=map(_argument, question.capture_arguments),
        offline=question.offline,
        version=question.version,
    )


def _argument(argument: Argument) -> pb.QuestionArgument:
    default, sent = argument.default, struct_pb2.Struct()
    plain = str(default) if type(default) is int else list(default) if type(default) is tuple else default
    sent.update({"default": plain})
    return pb.QuestionArgument(
        name=argument.name,
        kind=f"ARGUMENT_{argument.kind.name}",
        help=argument.help,
        default=sent.fields["default"],
        least=argument.least,
        most=argument.most,
        choices=argument.choices,
    )
