from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATE_UNSPECIFIED: _ClassVar[State]
    STATE_REQUESTED: _ClassVar[State]
    STATE_ARMED: _ClassVar[State]
    STATE_RECORDING: _ClassVar[State]
    STATE_DRAINING: _ClassVar[State]
    STATE_COLLATING: _ClassVar[State]
    STATE_STORED: _ClassVar[State]
    STATE_PARTIAL: _ClassVar[State]
    STATE_FAILED: _ClassVar[State]
    STATE_BUSY: _ClassVar[State]
    STATE_REFUSED: _ClassVar[State]
    STATE_CANCELLED: _ClassVar[State]

class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASON_UNSPECIFIED: _ClassVar[Reason]
    REASON_NO_SOURCE: _ClassVar[Reason]
    REASON_LAUNCHER: _ClassVar[Reason]
    REASON_NOT_PERMITTED: _ClassVar[Reason]
    REASON_CAPTURE_RUNNING: _ClassVar[Reason]
    REASON_OTHER_PROFILER: _ClassVar[Reason]
    REASON_TARGET_ENDED: _ClassVar[Reason]
    REASON_TARGET_SILENT: _ClassVar[Reason]
    REASON_NO_FILE: _ClassVar[Reason]
    REASON_FILE_REFUSED: _ClassVar[Reason]
    REASON_UNREADABLE: _ClassVar[Reason]
    REASON_TRUNCATED: _ClassVar[Reason]
    REASON_NO_GPU_RECORDS: _ClassVar[Reason]
    REASON_DISK_FULL: _ClassVar[Reason]
    REASON_STORE_UNAVAILABLE: _ClassVar[Reason]
    REASON_DISABLED: _ClassVar[Reason]
    REASON_OVER_LIMIT: _ClassVar[Reason]
    REASON_NOT_HONOURED: _ClassVar[Reason]
    REASON_WORKER_DIED: _ClassVar[Reason]
    REASON_DAEMON_RESTARTED: _ClassVar[Reason]
    REASON_CANCELLED_BY_USER: _ClassVar[Reason]
    REASON_CLIENT_GONE: _ClassVar[Reason]
    REASON_TARGET_ENDING: _ClassVar[Reason]
    REASON_TIMEOUT: _ClassVar[Reason]
    REASON_SOURCE_FAILED: _ClassVar[Reason]
    REASON_LOSSES: _ClassVar[Reason]
    REASON_STEP_MISSED: _ClassVar[Reason]
STATE_UNSPECIFIED: State
STATE_REQUESTED: State
STATE_ARMED: State
STATE_RECORDING: State
STATE_DRAINING: State
STATE_COLLATING: State
STATE_STORED: State
STATE_PARTIAL: State
STATE_FAILED: State
STATE_BUSY: State
STATE_REFUSED: State
STATE_CANCELLED: State
REASON_UNSPECIFIED: Reason
REASON_NO_SOURCE: Reason
REASON_LAUNCHER: Reason
REASON_NOT_PERMITTED: Reason
REASON_CAPTURE_RUNNING: Reason
REASON_OTHER_PROFILER: Reason
REASON_TARGET_ENDED: Reason
REASON_TARGET_SILENT: Reason
REASON_NO_FILE: Reason
REASON_FILE_REFUSED: Reason
REASON_UNREADABLE: Reason
REASON_TRUNCATED: Reason
REASON_NO_GPU_RECORDS: Reason
REASON_DISK_FULL: Reason
REASON_STORE_UNAVAILABLE: Reason
REASON_DISABLED: Reason
REASON_OVER_LIMIT: Reason
REASON_NOT_HONOURED: Reason
REASON_WORKER_DIED: Reason
REASON_DAEMON_RESTARTED: Reason
REASON_CANCELLED_BY_USER: Reason
REASON_CLIENT_GONE: Reason
REASON_TARGET_ENDING: Reason
REASON_TIMEOUT: Reason
REASON_SOURCE_FAILED: Reason
REASON_LOSSES: Reason
REASON_STEP_MISSED: Reason

class Options(_message.Message):
    __slots__ = ("duration_ns", "iterations", "shapes", "stacks", "memory", "modules", "flops", "source", "strict", "force", "start_at_ns", "sample_hz", "native", "c_calls", "torch", "max_overhead", "port", "collect_timeout_ns", "no_gpu_metrics", "last_ns", "gpu_fallback", "begin_step", "at_least_ns")
    DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    SHAPES_FIELD_NUMBER: _ClassVar[int]
    STACKS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    MODULES_FIELD_NUMBER: _ClassVar[int]
    FLOPS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    START_AT_NS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_HZ_FIELD_NUMBER: _ClassVar[int]
    NATIVE_FIELD_NUMBER: _ClassVar[int]
    C_CALLS_FIELD_NUMBER: _ClassVar[int]
    TORCH_FIELD_NUMBER: _ClassVar[int]
    MAX_OVERHEAD_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    COLLECT_TIMEOUT_NS_FIELD_NUMBER: _ClassVar[int]
    NO_GPU_METRICS_FIELD_NUMBER: _ClassVar[int]
    LAST_NS_FIELD_NUMBER: _ClassVar[int]
    GPU_FALLBACK_FIELD_NUMBER: _ClassVar[int]
    BEGIN_STEP_FIELD_NUMBER: _ClassVar[int]
    AT_LEAST_NS_FIELD_NUMBER: _ClassVar[int]
    duration_ns: int
    iterations: int
    shapes: bool
    stacks: bool
    memory: bool
    modules: bool
    flops: bool
    source: str
    strict: bool
    force: bool
    start_at_ns: int
    sample_hz: float
    native: bool
    c_calls: bool
    torch: str
    max_overhead: float
    port: int
    collect_timeout_ns: int
    no_gpu_metrics: bool
    last_ns: int
    gpu_fallback: bool
    begin_step: int
    at_least_ns: int
    def __init__(self, duration_ns: _Optional[int] = ..., iterations: _Optional[int] = ..., shapes: bool = ..., stacks: bool = ..., memory: bool = ..., modules: bool = ..., flops: bool = ..., source: _Optional[str] = ..., strict: bool = ..., force: bool = ..., start_at_ns: _Optional[int] = ..., sample_hz: _Optional[float] = ..., native: bool = ..., c_calls: bool = ..., torch: _Optional[str] = ..., max_overhead: _Optional[float] = ..., port: _Optional[int] = ..., collect_timeout_ns: _Optional[int] = ..., no_gpu_metrics: bool = ..., last_ns: _Optional[int] = ..., gpu_fallback: bool = ..., begin_step: _Optional[int] = ..., at_least_ns: _Optional[int] = ...) -> None: ...

class Selector(_message.Message):
    __slots__ = ("pids", "users", "jobs", "gpus", "ranks", "children")
    PIDS_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_FIELD_NUMBER: _ClassVar[int]
    pids: _containers.RepeatedScalarFieldContainer[int]
    users: _containers.RepeatedScalarFieldContainer[str]
    jobs: _containers.RepeatedScalarFieldContainer[str]
    gpus: _containers.RepeatedScalarFieldContainer[int]
    ranks: _containers.RepeatedScalarFieldContainer[int]
    children: bool
    def __init__(self, pids: _Optional[_Iterable[int]] = ..., users: _Optional[_Iterable[str]] = ..., jobs: _Optional[_Iterable[str]] = ..., gpus: _Optional[_Iterable[int]] = ..., ranks: _Optional[_Iterable[int]] = ..., children: bool = ...) -> None: ...

class Loss(_message.Message):
    __slots__ = ("stage", "reason", "count")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    stage: str
    reason: str
    count: int
    def __init__(self, stage: _Optional[str] = ..., reason: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class Cost(_message.Message):
    __slots__ = ("how", "step_ratio", "seconds", "detail")
    HOW_FIELD_NUMBER: _ClassVar[int]
    STEP_RATIO_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    how: str
    step_ratio: float
    seconds: float
    detail: str
    def __init__(self, how: _Optional[str] = ..., step_ratio: _Optional[float] = ..., seconds: _Optional[float] = ..., detail: _Optional[str] = ...) -> None: ...

class Stretch(_message.Message):
    __slots__ = ("lasted_ns", "cpu_ns", "run_queue_ns", "waits", "preemptions")
    LASTED_NS_FIELD_NUMBER: _ClassVar[int]
    CPU_NS_FIELD_NUMBER: _ClassVar[int]
    RUN_QUEUE_NS_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    lasted_ns: int
    cpu_ns: int
    run_queue_ns: int
    waits: int
    preemptions: int
    def __init__(self, lasted_ns: _Optional[int] = ..., cpu_ns: _Optional[int] = ..., run_queue_ns: _Optional[int] = ..., waits: _Optional[int] = ..., preemptions: _Optional[int] = ...) -> None: ...

class Load(_message.Message):
    __slots__ = ("before", "during", "after")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    DURING_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    before: Stretch
    during: Stretch
    after: Stretch
    def __init__(self, before: _Optional[_Union[Stretch, _Mapping]] = ..., during: _Optional[_Union[Stretch, _Mapping]] = ..., after: _Optional[_Union[Stretch, _Mapping]] = ...) -> None: ...

class Phase(_message.Message):
    __slots__ = ("name", "duration_ns")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    name: str
    duration_ns: int
    def __init__(self, name: _Optional[str] = ..., duration_ns: _Optional[int] = ...) -> None: ...

class ProgramSteps(_message.Message):
    __slots__ = ("begun", "running_ns", "step_ns")
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    RUNNING_NS_FIELD_NUMBER: _ClassVar[int]
    STEP_NS_FIELD_NUMBER: _ClassVar[int]
    begun: int
    running_ns: int
    step_ns: int
    def __init__(self, begun: _Optional[int] = ..., running_ns: _Optional[int] = ..., step_ns: _Optional[int] = ...) -> None: ...

class RecordedSteps(_message.Message):
    __slots__ = ("count", "step_ns", "first")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    STEP_NS_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    count: int
    step_ns: int
    first: int
    def __init__(self, count: _Optional[int] = ..., step_ns: _Optional[int] = ..., first: _Optional[int] = ...) -> None: ...

class TargetStatus(_message.Message):
    __slots__ = ("host", "pid", "start_time_ticks", "user", "command", "rank", "gpus", "job", "sources", "state", "reason", "message", "trace", "start_ns", "end_ns", "events", "gpu_events", "lost", "not_honoured", "cost", "warnings", "waterfall", "doing", "uid", "load", "steps")
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    START_TIME_TICKS_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    START_NS_FIELD_NUMBER: _ClassVar[int]
    END_NS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    GPU_EVENTS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    NOT_HONOURED_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    WATERFALL_FIELD_NUMBER: _ClassVar[int]
    DOING_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    host: str
    pid: int
    start_time_ticks: int
    user: str
    command: str
    rank: int
    gpus: _containers.RepeatedScalarFieldContainer[int]
    job: str
    sources: _containers.RepeatedScalarFieldContainer[str]
    state: State
    reason: Reason
    message: str
    trace: str
    start_ns: int
    end_ns: int
    events: int
    gpu_events: int
    lost: _containers.RepeatedCompositeFieldContainer[Loss]
    not_honoured: _containers.RepeatedScalarFieldContainer[str]
    cost: Cost
    warnings: _containers.RepeatedScalarFieldContainer[str]
    waterfall: _containers.RepeatedCompositeFieldContainer[Phase]
    doing: str
    uid: int
    load: Load
    steps: RecordedSteps
    def __init__(self, host: _Optional[str] = ..., pid: _Optional[int] = ..., start_time_ticks: _Optional[int] = ..., user: _Optional[str] = ..., command: _Optional[str] = ..., rank: _Optional[int] = ..., gpus: _Optional[_Iterable[int]] = ..., job: _Optional[str] = ..., sources: _Optional[_Iterable[str]] = ..., state: _Optional[_Union[State, str]] = ..., reason: _Optional[_Union[Reason, str]] = ..., message: _Optional[str] = ..., trace: _Optional[str] = ..., start_ns: _Optional[int] = ..., end_ns: _Optional[int] = ..., events: _Optional[int] = ..., gpu_events: _Optional[int] = ..., lost: _Optional[_Iterable[_Union[Loss, _Mapping]]] = ..., not_honoured: _Optional[_Iterable[str]] = ..., cost: _Optional[_Union[Cost, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ..., waterfall: _Optional[_Iterable[_Union[Phase, _Mapping]]] = ..., doing: _Optional[str] = ..., uid: _Optional[int] = ..., load: _Optional[_Union[Load, _Mapping]] = ..., steps: _Optional[_Union[RecordedSteps, _Mapping]] = ...) -> None: ...

class Fleet(_message.Message):
    __slots__ = ("id", "host", "hosts", "found", "clock")
    ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    id: str
    host: str
    hosts: int
    found: str
    clock: HostClock
    def __init__(self, id: _Optional[str] = ..., host: _Optional[str] = ..., hosts: _Optional[int] = ..., found: _Optional[str] = ..., clock: _Optional[_Union[HostClock, _Mapping]] = ...) -> None: ...

class HostClock(_message.Message):
    __slots__ = ("ahead_ns", "within_ns", "error_ns", "synchronised")
    AHEAD_NS_FIELD_NUMBER: _ClassVar[int]
    WITHIN_NS_FIELD_NUMBER: _ClassVar[int]
    ERROR_NS_FIELD_NUMBER: _ClassVar[int]
    SYNCHRONISED_FIELD_NUMBER: _ClassVar[int]
    ahead_ns: int
    within_ns: int
    error_ns: int
    synchronised: bool
    def __init__(self, ahead_ns: _Optional[int] = ..., within_ns: _Optional[int] = ..., error_ns: _Optional[int] = ..., synchronised: bool = ...) -> None: ...

class Capture(_message.Message):
    __slots__ = ("id", "request_id", "owner", "owner_uid", "options", "state", "targets", "created_ns", "finished_ns", "open_ended", "fleet", "reason")
    ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    OWNER_UID_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    CREATED_NS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_NS_FIELD_NUMBER: _ClassVar[int]
    OPEN_ENDED_FIELD_NUMBER: _ClassVar[int]
    FLEET_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    id: str
    request_id: str
    owner: str
    owner_uid: int
    options: Options
    state: State
    targets: _containers.RepeatedCompositeFieldContainer[TargetStatus]
    created_ns: int
    finished_ns: int
    open_ended: bool
    fleet: Fleet
    reason: str
    def __init__(self, id: _Optional[str] = ..., request_id: _Optional[str] = ..., owner: _Optional[str] = ..., owner_uid: _Optional[int] = ..., options: _Optional[_Union[Options, _Mapping]] = ..., state: _Optional[_Union[State, str]] = ..., targets: _Optional[_Iterable[_Union[TargetStatus, _Mapping]]] = ..., created_ns: _Optional[int] = ..., finished_ns: _Optional[int] = ..., open_ended: bool = ..., fleet: _Optional[_Union[Fleet, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class StartCaptureRequest(_message.Message):
    __slots__ = ("request_id", "selector", "options", "open_ended", "fleet")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    OPEN_ENDED_FIELD_NUMBER: _ClassVar[int]
    FLEET_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    selector: Selector
    options: Options
    open_ended: bool
    fleet: Fleet
    def __init__(self, request_id: _Optional[str] = ..., selector: _Optional[_Union[Selector, _Mapping]] = ..., options: _Optional[_Union[Options, _Mapping]] = ..., open_ended: bool = ..., fleet: _Optional[_Union[Fleet, _Mapping]] = ...) -> None: ...

class EstimateCaptureRequest(_message.Message):
    __slots__ = ("selector", "options", "steps")
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    selector: Selector
    options: Options
    steps: bool
    def __init__(self, selector: _Optional[_Union[Selector, _Mapping]] = ..., options: _Optional[_Union[Options, _Mapping]] = ..., steps: bool = ...) -> None: ...

class TargetEstimate(_message.Message):
    __slots__ = ("target", "source", "choice", "permission", "latency_ns", "events", "memory_bytes", "trace_bytes", "risks", "not_honoured", "cost_ns", "steps")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    LATENCY_NS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    TRACE_BYTES_FIELD_NUMBER: _ClassVar[int]
    RISKS_FIELD_NUMBER: _ClassVar[int]
    NOT_HONOURED_FIELD_NUMBER: _ClassVar[int]
    COST_NS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    target: TargetStatus
    source: str
    choice: str
    permission: str
    latency_ns: int
    events: int
    memory_bytes: int
    trace_bytes: int
    risks: _containers.RepeatedScalarFieldContainer[str]
    not_honoured: _containers.RepeatedScalarFieldContainer[str]
    cost_ns: int
    steps: ProgramSteps
    def __init__(self, target: _Optional[_Union[TargetStatus, _Mapping]] = ..., source: _Optional[str] = ..., choice: _Optional[str] = ..., permission: _Optional[str] = ..., latency_ns: _Optional[int] = ..., events: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., trace_bytes: _Optional[int] = ..., risks: _Optional[_Iterable[str]] = ..., not_honoured: _Optional[_Iterable[str]] = ..., cost_ns: _Optional[int] = ..., steps: _Optional[_Union[ProgramSteps, _Mapping]] = ...) -> None: ...

class EstimateCaptureResponse(_message.Message):
    __slots__ = ("targets",)
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedCompositeFieldContainer[TargetEstimate]
    def __init__(self, targets: _Optional[_Iterable[_Union[TargetEstimate, _Mapping]]] = ...) -> None: ...

class CaptureRef(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ListCapturesRequest(_message.Message):
    __slots__ = ("limit",)
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    limit: int
    def __init__(self, limit: _Optional[int] = ...) -> None: ...

class ListCapturesResponse(_message.Message):
    __slots__ = ("captures", "left_out")
    CAPTURES_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    captures: _containers.RepeatedCompositeFieldContainer[Capture]
    left_out: int
    def __init__(self, captures: _Optional[_Iterable[_Union[Capture, _Mapping]]] = ..., left_out: _Optional[int] = ...) -> None: ...

class WatchCaptureRequest(_message.Message):
    __slots__ = ("id", "lease")
    ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    id: str
    lease: bool
    def __init__(self, id: _Optional[str] = ..., lease: bool = ...) -> None: ...

class ListTargetsRequest(_message.Message):
    __slots__ = ("selector", "all")
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    selector: Selector
    all: bool
    def __init__(self, selector: _Optional[_Union[Selector, _Mapping]] = ..., all: bool = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ("pid", "user", "command", "job", "rank", "gpus", "framework", "sources", "state", "reason", "fix", "ppid", "uid", "attached")
    PID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    FRAMEWORK_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FIX_FIELD_NUMBER: _ClassVar[int]
    PPID_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    pid: int
    user: str
    command: str
    job: str
    rank: int
    gpus: _containers.RepeatedScalarFieldContainer[int]
    framework: str
    sources: _containers.RepeatedScalarFieldContainer[str]
    state: str
    reason: str
    fix: str
    ppid: int
    uid: int
    attached: bool
    def __init__(self, pid: _Optional[int] = ..., user: _Optional[str] = ..., command: _Optional[str] = ..., job: _Optional[str] = ..., rank: _Optional[int] = ..., gpus: _Optional[_Iterable[int]] = ..., framework: _Optional[str] = ..., sources: _Optional[_Iterable[str]] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., fix: _Optional[str] = ..., ppid: _Optional[int] = ..., uid: _Optional[int] = ..., attached: bool = ...) -> None: ...

class ListTargetsResponse(_message.Message):
    __slots__ = ("targets",)
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedCompositeFieldContainer[Target]
    def __init__(self, targets: _Optional[_Iterable[_Union[Target, _Mapping]]] = ...) -> None: ...

class WhereRequest(_message.Message):
    __slots__ = ("selector", "native")
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    NATIVE_FIELD_NUMBER: _ClassVar[int]
    selector: Selector
    native: bool
    def __init__(self, selector: _Optional[_Union[Selector, _Mapping]] = ..., native: bool = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("function", "file", "line")
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    function: str
    file: str
    line: int
    def __init__(self, function: _Optional[str] = ..., file: _Optional[str] = ..., line: _Optional[int] = ...) -> None: ...

class ThreadStack(_message.Message):
    __slots__ = ("thread", "name", "active", "owns_gil", "frames", "incomplete", "joins", "lock_holder", "waits_gil", "stopped")
    THREAD_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    OWNS_GIL_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    INCOMPLETE_FIELD_NUMBER: _ClassVar[int]
    JOINS_FIELD_NUMBER: _ClassVar[int]
    LOCK_HOLDER_FIELD_NUMBER: _ClassVar[int]
    WAITS_GIL_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    thread: int
    name: str
    active: bool
    owns_gil: bool
    frames: _containers.RepeatedCompositeFieldContainer[Frame]
    incomplete: bool
    joins: int
    lock_holder: int
    waits_gil: bool
    stopped: bool
    def __init__(self, thread: _Optional[int] = ..., name: _Optional[str] = ..., active: bool = ..., owns_gil: bool = ..., frames: _Optional[_Iterable[_Union[Frame, _Mapping]]] = ..., incomplete: bool = ..., joins: _Optional[int] = ..., lock_holder: _Optional[int] = ..., waits_gil: bool = ..., stopped: bool = ...) -> None: ...

class ProcessStacks(_message.Message):
    __slots__ = ("pid", "command", "threads", "error", "rank")
    PID_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    pid: int
    command: str
    threads: _containers.RepeatedCompositeFieldContainer[ThreadStack]
    error: str
    rank: int
    def __init__(self, pid: _Optional[int] = ..., command: _Optional[str] = ..., threads: _Optional[_Iterable[_Union[ThreadStack, _Mapping]]] = ..., error: _Optional[str] = ..., rank: _Optional[int] = ...) -> None: ...

class MissingRank(_message.Message):
    __slots__ = ("name", "last", "at", "what")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    name: str
    last: int
    at: Frame
    what: str
    def __init__(self, name: _Optional[str] = ..., last: _Optional[int] = ..., at: _Optional[_Union[Frame, _Mapping]] = ..., what: _Optional[str] = ...) -> None: ...

class Collectives(_message.Message):
    __slots__ = ("job", "state", "sentences", "group", "sequence", "operation", "waited_ns", "missing", "waiting", "waits_at", "notes", "pids")
    JOB_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SENTENCES_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    WAITED_NS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    WAITS_AT_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    PIDS_FIELD_NUMBER: _ClassVar[int]
    job: str
    state: str
    sentences: _containers.RepeatedScalarFieldContainer[str]
    group: str
    sequence: int
    operation: str
    waited_ns: int
    missing: _containers.RepeatedCompositeFieldContainer[MissingRank]
    waiting: _containers.RepeatedScalarFieldContainer[str]
    waits_at: Frame
    notes: _containers.RepeatedScalarFieldContainer[str]
    pids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, job: _Optional[str] = ..., state: _Optional[str] = ..., sentences: _Optional[_Iterable[str]] = ..., group: _Optional[str] = ..., sequence: _Optional[int] = ..., operation: _Optional[str] = ..., waited_ns: _Optional[int] = ..., missing: _Optional[_Iterable[_Union[MissingRank, _Mapping]]] = ..., waiting: _Optional[_Iterable[str]] = ..., waits_at: _Optional[_Union[Frame, _Mapping]] = ..., notes: _Optional[_Iterable[str]] = ..., pids: _Optional[_Iterable[int]] = ...) -> None: ...

class WhereResponse(_message.Message):
    __slots__ = ("processes", "collectives")
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    COLLECTIVES_FIELD_NUMBER: _ClassVar[int]
    processes: _containers.RepeatedCompositeFieldContainer[ProcessStacks]
    collectives: _containers.RepeatedCompositeFieldContainer[Collectives]
    def __init__(self, processes: _Optional[_Iterable[_Union[ProcessStacks, _Mapping]]] = ..., collectives: _Optional[_Iterable[_Union[Collectives, _Mapping]]] = ...) -> None: ...

class SetEnabledRequest(_message.Message):
    __slots__ = ("enabled", "why")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    why: str
    def __init__(self, enabled: bool = ..., why: _Optional[str] = ...) -> None: ...

class SetEnabledResponse(_message.Message):
    __slots__ = ("enabled", "why")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    why: str
    def __init__(self, enabled: bool = ..., why: _Optional[str] = ...) -> None: ...
