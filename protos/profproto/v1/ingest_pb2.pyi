from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class IngestOpen(_message.Message):
    __slots__ = ("version_min", "version_max", "incarnation", "epoch", "label")
    VERSION_MIN_FIELD_NUMBER: _ClassVar[int]
    VERSION_MAX_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    version_min: int
    version_max: int
    incarnation: int
    epoch: int
    label: str
    def __init__(self, version_min: _Optional[int] = ..., version_max: _Optional[int] = ..., incarnation: _Optional[int] = ..., epoch: _Optional[int] = ..., label: _Optional[str] = ...) -> None: ...

class IngestChunks(_message.Message):
    __slots__ = ("message", "data")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    message: int
    data: bytes
    def __init__(self, message: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class IngestLoss(_message.Message):
    __slots__ = ("stage", "reason", "count")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    stage: str
    reason: str
    count: int
    def __init__(self, stage: _Optional[str] = ..., reason: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class IngestFinish(_message.Message):
    __slots__ = ("lost", "recorded", "target_died")
    LOST_FIELD_NUMBER: _ClassVar[int]
    RECORDED_FIELD_NUMBER: _ClassVar[int]
    TARGET_DIED_FIELD_NUMBER: _ClassVar[int]
    lost: _containers.RepeatedCompositeFieldContainer[IngestLoss]
    recorded: int
    target_died: bool
    def __init__(self, lost: _Optional[_Iterable[_Union[IngestLoss, _Mapping]]] = ..., recorded: _Optional[int] = ..., target_died: bool = ...) -> None: ...

class IngestRequest(_message.Message):
    __slots__ = ("open", "chunks", "finish")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    open: IngestOpen
    chunks: IngestChunks
    finish: IngestFinish
    def __init__(self, open: _Optional[_Union[IngestOpen, _Mapping]] = ..., chunks: _Optional[_Union[IngestChunks, _Mapping]] = ..., finish: _Optional[_Union[IngestFinish, _Mapping]] = ...) -> None: ...

class IngestRejected(_message.Message):
    __slots__ = ("index", "reason")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    index: int
    reason: str
    def __init__(self, index: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class IngestReply(_message.Message):
    __slots__ = ("version", "credit_bytes", "acked", "rejected", "finished", "trace")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CREDIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    version: int
    credit_bytes: int
    acked: int
    rejected: _containers.RepeatedCompositeFieldContainer[IngestRejected]
    finished: bool
    trace: str
    def __init__(self, version: _Optional[int] = ..., credit_bytes: _Optional[int] = ..., acked: _Optional[int] = ..., rejected: _Optional[_Iterable[_Union[IngestRejected, _Mapping]]] = ..., finished: bool = ..., trace: _Optional[str] = ...) -> None: ...
