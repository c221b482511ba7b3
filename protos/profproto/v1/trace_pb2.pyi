from profproto.v1 import capture_pb2 as _capture_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TraceRef(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class Trace(_message.Message):
    __slots__ = ("id", "capture", "owner", "owner_uid", "source", "title", "created_ns", "start_ns", "end_ns", "events", "gpu_events", "bytes", "pinned", "shared_with", "lost", "host", "pid", "rank")
    ID_FIELD_NUMBER: _ClassVar[int]
    CAPTURE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    OWNER_UID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    CREATED_NS_FIELD_NUMBER: _ClassVar[int]
    START_NS_FIELD_NUMBER: _ClassVar[int]
    END_NS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    GPU_EVENTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    SHARED_WITH_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    id: str
    capture: str
    owner: str
    owner_uid: int
    source: str
    title: str
    created_ns: int
    start_ns: int
    end_ns: int
    events: int
    gpu_events: int
    bytes: int
    pinned: bool
    shared_with: _containers.RepeatedScalarFieldContainer[str]
    lost: _containers.RepeatedCompositeFieldContainer[_capture_pb2.Loss]
    host: str
    pid: int
    rank: int
    def __init__(self, id: _Optional[str] = ..., capture: _Optional[str] = ..., owner: _Optional[str] = ..., owner_uid: _Optional[int] = ..., source: _Optional[str] = ..., title: _Optional[str] = ..., created_ns: _Optional[int] = ..., start_ns: _Optional[int] = ..., end_ns: _Optional[int] = ..., events: _Optional[int] = ..., gpu_events: _Optional[int] = ..., bytes: _Optional[int] = ..., pinned: bool = ..., shared_with: _Optional[_Iterable[str]] = ..., lost: _Optional[_Iterable[_Union[_capture_pb2.Loss, _Mapping]]] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., rank: _Optional[int] = ...) -> None: ...

class ListTracesRequest(_message.Message):
    __slots__ = ("limit",)
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    limit: int
    def __init__(self, limit: _Optional[int] = ...) -> None: ...

class ListTracesResponse(_message.Message):
    __slots__ = ("traces",)
    TRACES_FIELD_NUMBER: _ClassVar[int]
    traces: _containers.RepeatedCompositeFieldContainer[Trace]
    def __init__(self, traces: _Optional[_Iterable[_Union[Trace, _Mapping]]] = ...) -> None: ...

class PinTraceRequest(_message.Message):
    __slots__ = ("id", "pinned")
    ID_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    id: str
    pinned: bool
    def __init__(self, id: _Optional[str] = ..., pinned: bool = ...) -> None: ...

class ShareTraceRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    WITH_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ..., **kwargs) -> None: ...

class DeleteTraceResponse(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class KeyAveragesRequest(_message.Message):
    __slots__ = ("id", "limit", "sort_by", "group_by_input_shape", "group_by_stack_n", "raw", "group_by", "with_backward")
    ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    SORT_BY_FIELD_NUMBER: _ClassVar[int]
    GROUP_BY_INPUT_SHAPE_FIELD_NUMBER: _ClassVar[int]
    GROUP_BY_STACK_N_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    GROUP_BY_FIELD_NUMBER: _ClassVar[int]
    WITH_BACKWARD_FIELD_NUMBER: _ClassVar[int]
    id: str
    limit: int
    sort_by: str
    group_by_input_shape: bool
    group_by_stack_n: int
    raw: bool
    group_by: str
    with_backward: bool
    def __init__(self, id: _Optional[str] = ..., limit: _Optional[int] = ..., sort_by: _Optional[str] = ..., group_by_input_shape: bool = ..., group_by_stack_n: _Optional[int] = ..., raw: bool = ..., group_by: _Optional[str] = ..., with_backward: bool = ...) -> None: ...

class KeyAverage(_message.Message):
    __slots__ = ("name", "device_type", "count", "cpu_time_total_ns", "self_cpu_time_total_ns", "device_time_total_ns", "self_device_time_total_ns", "input_shapes", "stack", "flops", "module", "backward_time_total_ns", "cpu_memory_usage", "self_cpu_memory_usage", "device_memory_usage", "self_device_memory_usage", "node_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    CPU_TIME_TOTAL_NS_FIELD_NUMBER: _ClassVar[int]
    SELF_CPU_TIME_TOTAL_NS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TIME_TOTAL_NS_FIELD_NUMBER: _ClassVar[int]
    SELF_DEVICE_TIME_TOTAL_NS_FIELD_NUMBER: _ClassVar[int]
    INPUT_SHAPES_FIELD_NUMBER: _ClassVar[int]
    STACK_FIELD_NUMBER: _ClassVar[int]
    FLOPS_FIELD_NUMBER: _ClassVar[int]
    MODULE_FIELD_NUMBER: _ClassVar[int]
    BACKWARD_TIME_TOTAL_NS_FIELD_NUMBER: _ClassVar[int]
    CPU_MEMORY_USAGE_FIELD_NUMBER: _ClassVar[int]
    SELF_CPU_MEMORY_USAGE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_MEMORY_USAGE_FIELD_NUMBER: _ClassVar[int]
    SELF_DEVICE_MEMORY_USAGE_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    device_type: str
    count: int
    cpu_time_total_ns: int
    self_cpu_time_total_ns: int
    device_time_total_ns: int
    self_device_time_total_ns: int
    input_shapes: str
    stack: _containers.RepeatedScalarFieldContainer[str]
    flops: int
    module: str
    backward_time_total_ns: int
    cpu_memory_usage: int
    self_cpu_memory_usage: int
    device_memory_usage: int
    self_device_memory_usage: int
    node_id: int
    def __init__(self, name: _Optional[str] = ..., device_type: _Optional[str] = ..., count: _Optional[int] = ..., cpu_time_total_ns: _Optional[int] = ..., self_cpu_time_total_ns: _Optional[int] = ..., device_time_total_ns: _Optional[int] = ..., self_device_time_total_ns: _Optional[int] = ..., input_shapes: _Optional[str] = ..., stack: _Optional[_Iterable[str]] = ..., flops: _Optional[int] = ..., module: _Optional[str] = ..., backward_time_total_ns: _Optional[int] = ..., cpu_memory_usage: _Optional[int] = ..., self_cpu_memory_usage: _Optional[int] = ..., device_memory_usage: _Optional[int] = ..., self_device_memory_usage: _Optional[int] = ..., node_id: _Optional[int] = ...) -> None: ...

class KeyAveragesResponse(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[KeyAverage]
    def __init__(self, rows: _Optional[_Iterable[_Union[KeyAverage, _Mapping]]] = ...) -> None: ...

class TreeRequest(_message.Message):
    __slots__ = ("id", "max_depth", "from_row")
    ID_FIELD_NUMBER: _ClassVar[int]
    MAX_DEPTH_FIELD_NUMBER: _ClassVar[int]
    FROM_ROW_FIELD_NUMBER: _ClassVar[int]
    id: str
    max_depth: int
    from_row: int
    def __init__(self, id: _Optional[str] = ..., max_depth: _Optional[int] = ..., from_row: _Optional[int] = ...) -> None: ...

class SummaryResponse(_message.Message):
    __slots__ = ("trace", "summary_json")
    TRACE_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_JSON_FIELD_NUMBER: _ClassVar[int]
    trace: Trace
    summary_json: bytes
    def __init__(self, trace: _Optional[_Union[Trace, _Mapping]] = ..., summary_json: _Optional[bytes] = ...) -> None: ...

class ExportRequest(_message.Message):
    __slots__ = ("id", "format", "from_ns", "to_ns", "min_duration_ns", "gzip", "redact", "first_step", "last_step")
    ID_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    FROM_NS_FIELD_NUMBER: _ClassVar[int]
    TO_NS_FIELD_NUMBER: _ClassVar[int]
    MIN_DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    GZIP_FIELD_NUMBER: _ClassVar[int]
    REDACT_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    id: str
    format: str
    from_ns: int
    to_ns: int
    min_duration_ns: int
    gzip: bool
    redact: _containers.RepeatedScalarFieldContainer[str]
    first_step: int
    last_step: int
    def __init__(self, id: _Optional[str] = ..., format: _Optional[str] = ..., from_ns: _Optional[int] = ..., to_ns: _Optional[int] = ..., min_duration_ns: _Optional[int] = ..., gzip: bool = ..., redact: _Optional[_Iterable[str]] = ..., first_step: _Optional[int] = ..., last_step: _Optional[int] = ...) -> None: ...

class DiffRequest(_message.Message):
    __slots__ = ("id", "other", "by")
    ID_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    id: str
    other: str
    by: str
    def __init__(self, id: _Optional[str] = ..., other: _Optional[str] = ..., by: _Optional[str] = ...) -> None: ...

class SqlRequest(_message.Message):
    __slots__ = ("id", "sql", "limit")
    ID_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    id: str
    sql: str
    limit: int
    def __init__(self, id: _Optional[str] = ..., sql: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class TimelineRequest(_message.Message):
    __slots__ = ("id", "lines", "rules")
    ID_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    id: str
    lines: _containers.RepeatedScalarFieldContainer[str]
    rules: str
    def __init__(self, id: _Optional[str] = ..., lines: _Optional[_Iterable[str]] = ..., rules: _Optional[str] = ...) -> None: ...

class DataChunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class ImportChunk(_message.Message):
    __slots__ = ("filename", "data", "dialect", "capture")
    FILENAME_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    DIALECT_FIELD_NUMBER: _ClassVar[int]
    CAPTURE_FIELD_NUMBER: _ClassVar[int]
    filename: str
    data: bytes
    dialect: str
    capture: str
    def __init__(self, filename: _Optional[str] = ..., data: _Optional[bytes] = ..., dialect: _Optional[str] = ..., capture: _Optional[str] = ...) -> None: ...

class ImportResponse(_message.Message):
    __slots__ = ("trace",)
    TRACE_FIELD_NUMBER: _ClassVar[int]
    trace: Trace
    def __init__(self, trace: _Optional[_Union[Trace, _Mapping]] = ...) -> None: ...

class EvictionsRequest(_message.Message):
    __slots__ = ("bytes",)
    BYTES_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    def __init__(self, bytes: _Optional[int] = ...) -> None: ...

class EvictionsResponse(_message.Message):
    __slots__ = ("limit_bytes", "stored_bytes", "share_bytes", "own_bytes", "own_pinned_bytes", "traces", "others", "refusal", "more")
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHARE_BYTES_FIELD_NUMBER: _ClassVar[int]
    OWN_BYTES_FIELD_NUMBER: _ClassVar[int]
    OWN_PINNED_BYTES_FIELD_NUMBER: _ClassVar[int]
    TRACES_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    limit_bytes: int
    stored_bytes: int
    share_bytes: int
    own_bytes: int
    own_pinned_bytes: int
    traces: _containers.RepeatedCompositeFieldContainer[Trace]
    others: int
    refusal: str
    more: int
    def __init__(self, limit_bytes: _Optional[int] = ..., stored_bytes: _Optional[int] = ..., share_bytes: _Optional[int] = ..., own_bytes: _Optional[int] = ..., own_pinned_bytes: _Optional[int] = ..., traces: _Optional[_Iterable[_Union[Trace, _Mapping]]] = ..., others: _Optional[int] = ..., refusal: _Optional[str] = ..., more: _Optional[int] = ...) -> None: ...
