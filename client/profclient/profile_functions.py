"""Calls of the tracer on CPython 3.11: by a profile function in each thread.

A thread has one profile function; that of another profiler is left alone.
"""

from __future__ import annotations

import sys

from profclient import _recorder
from profclient.agent import NotHonoured

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def check() -> None:
    """Raise NotHonoured if somebody else is there."""
    if found := _recorder.tracer_profilers():
        raise NotHonoured(f"this process is being profiled by {_name(found[0])}; end that, then capture again")


def install(c_calls: bool, but_caller: bool) -> str:
    """Begin; returns a sentence about what is left out, or nothing. Raises NotHonoured.

    An audit hook of the program is asked once, here, for all threads: native code sets them without. Threads that
    start later are found by native code: what `threading.setprofile` is given can keep a thread from running.
    """
    try:
        sys.audit("sys.setprofile")
    except KeyboardInterrupt:
        raise
    except BaseException:
        raise NotHonoured("an audit hook of the program forbids sys.setprofile") from None
    _recorder.tracer_install(but_caller)
    theirs = getattr(sys.modules.get("threading"), "getprofile", lambda: None)()
    if theirs is not None and theirs is not _recorder.tracer_hook:
        return f"calls on threads that start later: threading.setprofile() is {_name(theirs)}'s"
    return ""


def leave_out_c_calls() -> None:
    """Record no more C functions. The interpreter reports them all the same."""


def remove() -> str:
    """Undo `install`; returns a sentence about what had changed meanwhile, or nothing. Asks no audit hook."""
    displaced = _recorder.tracer_remove()
    return f"{displaced} threads were taken over by another profiler meanwhile" if displaced else ""


def _name(profiler: object) -> str:
    """The name of a profiler as its user knows it."""
    named: Any = profiler if hasattr(profiler, "__qualname__") else type(profiler)
    return f"{named.__module__}.{named.__qualname__}"
