"""The client, for people's shells and processes. Light: no numpy, pyarrow, duckdb.

    import profclient
    profclient.attach()                                   # the local daemon may record this process now
    with profclient.record_function("step", epoch=3): ...

docs/sdk.md shows the rest. Importing this takes a millisecond; each name brings its module when it is first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself takes 7 ms
if TYPE_CHECKING:
    from typing import Any

    from profclient.agent import attach as attach
    from profclient.agent import detach as detach
    from profclient.emitting import emit_nvtx as emit_nvtx
    from profclient.profiling import profile as profile
    from profclient.recording import counter as counter
    from profclient.recording import instant as instant
    from profclient.recording import missing as missing
    from profclient.recording import range_pop as range_pop
    from profclient.recording import range_push as range_push
    from profclient.recording import record_alloc as record_alloc
    from profclient.recording import record_backend_event as record_backend_event
    from profclient.recording import record_function as record_function
    from profclient.recording import record_op as record_op
    from profclient.recording import record_out_of_memory as record_out_of_memory
    from profclient.recording import step as step
    from profclient.requests import request_capture as request_capture

_PLACES = {
    "attach": "profclient.agent",
    "counter": "profclient.recording",
    "detach": "profclient.agent",
    "emit_nvtx": "profclient.emitting",
    "instant": "profclient.recording",
    "missing": "profclient.recording",
    "profile": "profclient.profiling",
    "range_pop": "profclient.recording",
    "range_push": "profclient.recording",
    "record_alloc": "profclient.recording",
    "record_backend_event": "profclient.recording",
    "record_function": "profclient.recording",
    "record_op": "profclient.recording",
    "record_out_of_memory": "profclient.recording",
    "request_capture": "profclient.requests",
    "step": "profclient.recording",
}

__all__ = [
    "attach",
    "counter",
    "detach",
    "emit_nvtx",
    "instant",
    "missing",
    "profile",
    "range_pop",
    "range_push",
    "record_alloc",
    "record_backend_event",
    "record_function",
    "record_op",
    "record_out_of_memory",
    "request_capture",
    "step",
]


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'profclient' has no attribute {name!r}")
    value = getattr(__import__(place, fromlist=[name]), name)  # importlib itself may not be there yet
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
