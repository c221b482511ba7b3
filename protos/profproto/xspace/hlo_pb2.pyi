from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HloProto(_message.Message):
    __slots__ = ("hlo_module",)
    HLO_MODULE_FIELD_NUMBER: _ClassVar[int]
    hlo_module: HloModule
    def __init__(self, hlo_module: _Optional[_Union[HloModule, _Mapping]] = ...) -> None: ...

class HloModule(_message.Message):
    __slots__ = ("name", "computations", "stack_frame_index")
    NAME_FIELD_NUMBER: _ClassVar[int]
    COMPUTATIONS_FIELD_NUMBER: _ClassVar[int]
    STACK_FRAME_INDEX_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    computations: _containers.RepeatedCompositeFieldContainer[HloComputation]
    stack_frame_index: StackFrameIndex
    def __init__(self, name: _Optional[bytes] = ..., computations: _Optional[_Iterable[_Union[HloComputation, _Mapping]]] = ..., stack_frame_index: _Optional[_Union[StackFrameIndex, _Mapping]] = ...) -> None: ...

class HloComputation(_message.Message):
    __slots__ = ("instructions",)
    INSTRUCTIONS_FIELD_NUMBER: _ClassVar[int]
    instructions: _containers.RepeatedCompositeFieldContainer[HloInstruction]
    def __init__(self, instructions: _Optional[_Iterable[_Union[HloInstruction, _Mapping]]] = ...) -> None: ...

class HloInstruction(_message.Message):
    __slots__ = ("name", "metadata")
    NAME_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    metadata: OpMetadata
    def __init__(self, name: _Optional[bytes] = ..., metadata: _Optional[_Union[OpMetadata, _Mapping]] = ...) -> None: ...

class OpMetadata(_message.Message):
    __slots__ = ("op_type", "op_name", "source_file", "source_line", "stack_frame_id")
    OP_TYPE_FIELD_NUMBER: _ClassVar[int]
    OP_NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FILE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LINE_FIELD_NUMBER: _ClassVar[int]
    STACK_FRAME_ID_FIELD_NUMBER: _ClassVar[int]
    op_type: bytes
    op_name: bytes
    source_file: bytes
    source_line: int
    stack_frame_id: int
    def __init__(self, op_type: _Optional[bytes] = ..., op_name: _Optional[bytes] = ..., source_file: _Optional[bytes] = ..., source_line: _Optional[int] = ..., stack_frame_id: _Optional[int] = ...) -> None: ...

class StackFrameIndex(_message.Message):
    __slots__ = ("file_names", "file_locations", "stack_frames")
    class FileLocation(_message.Message):
        __slots__ = ("file_name_id", "line")
        FILE_NAME_ID_FIELD_NUMBER: _ClassVar[int]
        LINE_FIELD_NUMBER: _ClassVar[int]
        file_name_id: int
        line: int
        def __init__(self, file_name_id: _Optional[int] = ..., line: _Optional[int] = ...) -> None: ...
    class StackFrame(_message.Message):
        __slots__ = ("file_location_id",)
        FILE_LOCATION_ID_FIELD_NUMBER: _ClassVar[int]
        file_location_id: int
        def __init__(self, file_location_id: _Optional[int] = ...) -> None: ...
    FILE_NAMES_FIELD_NUMBER: _ClassVar[int]
    FILE_LOCATIONS_FIELD_NUMBER: _ClassVar[int]
    STACK_FRAMES_FIELD_NUMBER: _ClassVar[int]
    file_names: _containers.RepeatedScalarFieldContainer[bytes]
    file_locations: _containers.RepeatedCompositeFieldContainer[StackFrameIndex.FileLocation]
    stack_frames: _containers.RepeatedCompositeFieldContainer[StackFrameIndex.StackFrame]
    def __init__(self, file_names: _Optional[_Iterable[bytes]] = ..., file_locations: _Optional[_Iterable[_Union[StackFrameIndex.FileLocation, _Mapping]]] = ..., stack_frames: _Optional[_Iterable[_Union[StackFrameIndex.StackFrame, _Mapping]]] = ...) -> None: ...
