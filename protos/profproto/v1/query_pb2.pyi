from google.protobuf import struct_pb2 as _struct_pb2
from profproto.v1 import trace_pb2 as _trace_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AnswerKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ANSWER_UNSPECIFIED: _ClassVar[AnswerKind]
    ANSWER_VALUE: _ClassVar[AnswerKind]
    ANSWER_ROWS: _ClassVar[AnswerKind]
    ANSWER_BYTES: _ClassVar[AnswerKind]
    ANSWER_LIVE: _ClassVar[AnswerKind]

class ArgumentKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ARGUMENT_UNSPECIFIED: _ClassVar[ArgumentKind]
    ARGUMENT_INTEGER: _ClassVar[ArgumentKind]
    ARGUMENT_FLAG: _ClassVar[ArgumentKind]
    ARGUMENT_TEXT: _ClassVar[ArgumentKind]
    ARGUMENT_TEXTS: _ClassVar[ArgumentKind]
    ARGUMENT_TRACE: _ClassVar[ArgumentKind]
ANSWER_UNSPECIFIED: AnswerKind
ANSWER_VALUE: AnswerKind
ANSWER_ROWS: AnswerKind
ANSWER_BYTES: AnswerKind
ANSWER_LIVE: AnswerKind
ARGUMENT_UNSPECIFIED: ArgumentKind
ARGUMENT_INTEGER: ArgumentKind
ARGUMENT_FLAG: ArgumentKind
ARGUMENT_TEXT: ArgumentKind
ARGUMENT_TEXTS: ArgumentKind
ARGUMENT_TRACE: ArgumentKind

class Scope(_message.Message):
    __slots__ = ("trace", "capture", "host")
    TRACE_FIELD_NUMBER: _ClassVar[int]
    CAPTURE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    trace: str
    capture: str
    host: bool
    def __init__(self, trace: _Optional[str] = ..., capture: _Optional[str] = ..., host: bool = ...) -> None: ...

class QueryRequest(_message.Message):
    __slots__ = ("scope", "name", "arguments")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    scope: Scope
    name: str
    arguments: _struct_pb2.Struct
    def __init__(self, scope: _Optional[_Union[Scope, _Mapping]] = ..., name: _Optional[str] = ..., arguments: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class QueryHeader(_message.Message):
    __slots__ = ("name", "kind", "version", "traces", "capture")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TRACES_FIELD_NUMBER: _ClassVar[int]
    CAPTURE_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: AnswerKind
    version: int
    traces: _containers.RepeatedCompositeFieldContainer[_trace_pb2.Trace]
    capture: str
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[_Union[AnswerKind, str]] = ..., version: _Optional[int] = ..., traces: _Optional[_Iterable[_Union[_trace_pb2.Trace, _Mapping]]] = ..., capture: _Optional[str] = ...) -> None: ...

class QueryResponse(_message.Message):
    __slots__ = ("header", "data")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    header: QueryHeader
    data: bytes
    def __init__(self, header: _Optional[_Union[QueryHeader, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class QuestionArgument(_message.Message):
    __slots__ = ("name", "kind", "help", "default", "least", "most", "choices")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    HELP_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    LEAST_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: ArgumentKind
    help: str
    default: _struct_pb2.Value
    least: int
    most: int
    choices: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[_Union[ArgumentKind, str]] = ..., help: _Optional[str] = ..., default: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., least: _Optional[int] = ..., most: _Optional[int] = ..., choices: _Optional[_Iterable[str]] = ...) -> None: ...

class QuestionRow(_message.Message):
    __slots__ = ("name", "help", "answer", "arguments", "scope", "offline", "version", "scopes", "capture_arguments")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HELP_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    CAPTURE_ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    help: str
    answer: AnswerKind
    arguments: _containers.RepeatedCompositeFieldContainer[QuestionArgument]
    scope: str
    offline: bool
    version: int
    scopes: _containers.RepeatedScalarFieldContainer[str]
    capture_arguments: _containers.RepeatedCompositeFieldContainer[QuestionArgument]
    def __init__(self, name: _Optional[str] = ..., help: _Optional[str] = ..., answer: _Optional[_Union[AnswerKind, str]] = ..., arguments: _Optional[_Iterable[_Union[QuestionArgument, _Mapping]]] = ..., scope: _Optional[str] = ..., offline: bool = ..., version: _Optional[int] = ..., scopes: _Optional[_Iterable[str]] = ..., capture_arguments: _Optional[_Iterable[_Union[QuestionArgument, _Mapping]]] = ...) -> None: ...

class ListQuestionsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListQuestionsResponse(_message.Message):
    __slots__ = ("questions",)
    QUESTIONS_FIELD_NUMBER: _ClassVar[int]
    questions: _containers.RepeatedCompositeFieldContainer[QuestionRow]
    def __init__(self, questions: _Optional[_Iterable[_Union[QuestionRow, _Mapping]]] = ...) -> None: ...
