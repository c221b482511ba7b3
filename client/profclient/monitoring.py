"""Calls of the tracer on CPython 3.12 and later: through sys.monitoring.

Several tools may run at once. sys.monitoring.PROFILER_ID stays free: cProfile wants it, and would raise into the
program if we held it.
"""

from __future__ import annotations

import sys

from profclient import _recorder
from profclient.agent import NotHonoured

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_IDS = (4, 3)  # that no kind of tool has a claim on
_NAME = "profd"

_monitoring: Any = sys.monitoring  # type: ignore[attr-defined]  # mypy checks for 3.11
_id: int | None = None


def check() -> None:
    """Raise NotHonoured if no id is free."""
    if all(_monitoring.get_tool(number) is not None for number in _IDS):
        taken = " and ".join(repr(_monitoring.get_tool(number)) for number in _IDS)
        raise NotHonoured(f"the ids of sys.monitoring that are anybody's are taken by {taken}")


def install(c_calls: bool, but_caller: bool) -> str:
    """As in profile_functions, but for all threads, also those that start later."""
    global _id
    _id = next(number for number in _IDS if _monitoring.get_tool(number) is None)
    _monitoring.use_tool_id(_id, _NAME)
    try:
        for event, function in _callbacks(c_calls).items():
            _monitoring.register_callback(_id, _number(event), function)
    except BaseException as error:  # of an audit hook: whatever it raises
        remove()
        if isinstance(error, KeyboardInterrupt):
            raise
        raise NotHonoured("an audit hook of the program forbids sys.monitoring") from None
    _ask_for(c_calls)
    return ""


def leave_out_c_calls() -> None:
    """The interpreter tells of them no longer."""
    _ask_for(c_calls=False)


def _ask_for(c_calls: bool) -> None:
    events = [event for event in _callbacks(c_calls) if event not in ("C_RETURN", "C_RAISE")]  # come with CALL
    _monitoring.set_events(_id, sum(map(_number, events)))


def _number(event: str) -> int:
    number: int = getattr(_monitoring.events, event)
    return number


def remove() -> str:
    """Undo `install`; returns a sentence about what an audit hook kept, or nothing."""
    global _id
    if _id is None or _monitoring.get_tool(_id) != _NAME:
        return ""
    _monitoring.set_events(_id, 0)  # free_tool_id leaves them on before 3.14
    forbidden = False
    for event in _callbacks(c_calls=True):
        try:
            _monitoring.register_callback(_id, _number(event), None)
        except BaseException:  # of an audit hook: whatever it raises; what stays is called by nobody
            forbidden = True
    _monitoring.free_tool_id(_id)
    _id = None
    return "callbacks of sys.monitoring stay, idle: an audit hook of the program forbids it" if forbidden else ""


def _callbacks(c_calls: bool) -> dict[str, Callable[..., None]]:
    python: dict[str, Callable[..., None]] = {
        "PY_START": _recorder.tracer_on_start,
        "PY_RESUME": _recorder.tracer_on_start,
        "PY_THROW": _recorder.tracer_on_start,
        "PY_RETURN": _recorder.tracer_on_return,
        "PY_YIELD": _recorder.tracer_on_return,
        "PY_UNWIND": _recorder.tracer_on_unwind,
    }
    c: dict[str, Callable[..., None]] = {
        "CALL": _recorder.tracer_on_call,
        "C_RETURN": _recorder.tracer_on_c_return,
        "C_RAISE": _recorder.tracer_on_c_raise,
    }
    return {**python, **c} if c_calls else python
