from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetHostStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SourceStatus(_message.Message):
    __slots__ = ("name", "available", "detail", "processes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    name: str
    available: bool
    detail: str
    processes: int
    def __init__(self, name: _Optional[str] = ..., available: bool = ..., detail: _Optional[str] = ..., processes: _Optional[int] = ...) -> None: ...

class Check(_message.Message):
    __slots__ = ("name", "verdict", "detail", "fix")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    FIX_FIELD_NUMBER: _ClassVar[int]
    name: str
    verdict: str
    detail: str
    fix: str
    def __init__(self, name: _Optional[str] = ..., verdict: _Optional[str] = ..., detail: _Optional[str] = ..., fix: _Optional[str] = ...) -> None: ...

class HostStatus(_message.Message):
    __slots__ = ("version", "host", "started_ns", "pid", "mode", "enabled", "disabled_why", "state_dir", "store_bytes", "store_limit_bytes", "disk_free_bytes", "captures_active", "sources", "checks")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    STARTED_NS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    DISABLED_WHY_FIELD_NUMBER: _ClassVar[int]
    STATE_DIR_FIELD_NUMBER: _ClassVar[int]
    STORE_BYTES_FIELD_NUMBER: _ClassVar[int]
    STORE_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CAPTURES_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    version: str
    host: str
    started_ns: int
    pid: int
    mode: str
    enabled: bool
    disabled_why: str
    state_dir: str
    store_bytes: int
    store_limit_bytes: int
    disk_free_bytes: int
    captures_active: int
    sources: _containers.RepeatedCompositeFieldContainer[SourceStatus]
    checks: _containers.RepeatedCompositeFieldContainer[Check]
    def __init__(self, version: _Optional[str] = ..., host: _Optional[str] = ..., started_ns: _Optional[int] = ..., pid: _Optional[int] = ..., mode: _Optional[str] = ..., enabled: bool = ..., disabled_why: _Optional[str] = ..., state_dir: _Optional[str] = ..., store_bytes: _Optional[int] = ..., store_limit_bytes: _Optional[int] = ..., disk_free_bytes: _Optional[int] = ..., captures_active: _Optional[int] = ..., sources: _Optional[_Iterable[_Union[SourceStatus, _Mapping]]] = ..., checks: _Optional[_Iterable[_Union[Check, _Mapping]]] = ...) -> None: ...
