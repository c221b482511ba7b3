"""The Python tracer: `--stacks`. Records every call of a Python function on every thread while a capture asks for it.

The events are written by native code (native/recorder/tracer.h). This module decides how the interpreter is to call
it: CPython 3.11 by a profile function in each thread, later ones through sys.monitoring. It takes nothing over from a
profiler of the program's own, and takes itself out completely when recording ends. It is imported in the job when that
attaches: typing and collections.abc would be milliseconds.
"""

from __future__ import annotations

import os
import site
import sys

from profclient import _recorder, agent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


class NotTraced(Exception):
    """A sentence about why Python calls cannot be recorded here, or not all of them."""


class _ProfileFunctions:
    """CPython 3.11. A thread has one profile function; that of another profiler is left alone."""

    def check(self) -> None:
        """Raise NotTraced if somebody else is there."""
        if found := _recorder.tracer_profilers():
            raise NotTraced(f"this process is being profiled by {_name(found[0])}; end that, then capture again")

    def install(self, c_calls: bool, but_caller: bool) -> str:
        """Begin; returns a sentence about what is left out, or nothing. Raises NotTraced.

        An audit hook of the program is asked once, here, for all threads: native code sets them without. Threads that
        start later are found by native code: what `threading.setprofile` is given can keep a thread from running.
        """
        try:
            sys.audit("sys.setprofile")
        except KeyboardInterrupt:
            raise
        except BaseException:
            raise NotTraced("an audit hook of the program forbids sys.setprofile") from None
        _recorder.tracer_install(but_caller)
        theirs = getattr(sys.modules.get("threading"), "getprofile", lambda: None)()
        if theirs is not None and theirs is not _recorder.tracer_hook:
            return f"calls on threads that start later: threading.setprofile() is {_name(theirs)}'s"
        return ""

    def leave_out_c_calls(self) -> None:
        """C functions are no longer asked for; it is told of them all the same."""

    def remove(self) -> str:
        """Undo `install`; returns a sentence about what had changed meanwhile, or nothing. Asks no audit hook."""
        displaced = _recorder.tracer_remove()
        return f"{displaced} threads were taken over by another profiler meanwhile" if displaced else ""


class _Monitoring:
    """CPython 3.12 and later. Several tools may run at once.

    sys.monitoring.PROFILER_ID stays free: cProfile wants it, and would raise into the program if we held it.
    """

    IDS = (4, 3)  # that no kind of tool has a claim on
    NAME = "profd"

    def __init__(self) -> None:
        self._monitoring: Any = sys.monitoring  # type: ignore[attr-defined]  # mypy checks for 3.11
        self._id: int | None = None

    def check(self) -> None:
        """As of _ProfileFunctions; so are the others."""
        if all(self._monitoring.get_tool(number) is not None for number in self.IDS):
            taken = " and ".join(repr(self._monitoring.get_tool(number)) for number in self.IDS)
            raise NotTraced(f"the ids of sys.monitoring that are anybody's are taken by {taken}")

    def install(self, c_calls: bool, but_caller: bool) -> str:
        self._id = next(number for number in self.IDS if self._monitoring.get_tool(number) is None)
        self._monitoring.use_tool_id(self._id, self.NAME)
        try:
            for event, function in _callbacks(c_calls).items():
                self._monitoring.register_callback(self._id, self._number(event), function)
        except BaseException as error:  # of an audit hook: whatever it raises
            self.remove()
            if isinstance(error, KeyboardInterrupt):
                raise
            raise NotTraced("an audit hook of the program forbids sys.monitoring") from None
        self._ask_for(c_calls)
        return ""

    def leave_out_c_calls(self) -> None:
        self._ask_for(c_calls=False)

    def _ask_for(self, c_calls: bool) -> None:
        events = [event for event in _callbacks(c_calls) if event not in ("C_RETURN", "C_RAISE")]  # come with CALL
        self._monitoring.set_events(self._id, sum(map(self._number, events)))

    def _number(self, event: str) -> int:
        number: int = getattr(self._monitoring.events, event)
        return number

    def remove(self) -> str:
        if self._id is None or self._monitoring.get_tool(self._id) != self.NAME:
            return ""
        self._monitoring.set_events(self._id, 0)  # free_tool_id leaves them on before 3.14
        forbidden = False
        for event in _callbacks(c_calls=True):
            try:
                self._monitoring.register_callback(self._id, self._number(event), None)
            except BaseException:  # of an audit hook: whatever it raises; what stays is called by nobody
                forbidden = True
        self._monitoring.free_tool_id(self._id)
        self._id = None
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


class Tracer:
    """The tracer of this process. One capture at a time: that which the recorder records."""

    def __init__(self) -> None:
        monitored = sys.version_info >= (3, 12)
        self._way: _Monitoring | _ProfileFunctions = _Monitoring() if monitored else _ProfileFunctions()
        self._running = False

    def start(self, c_calls: bool = False, modules: bool = False, but_caller: bool = False) -> tuple[int, str]:
        """Record calls from now on. `c_calls`: of C functions too. `but_caller`: not on this thread.

        Returns since when, in Unix ns, and a sentence about what is left out, or nothing. Raises NotTraced.
        """
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            raise NotTraced("this Python runs without the GIL, which the tracer relies on")
        if self._running:
            self.stop()
        self._way.check()
        since = _recorder.tracer_begin(path_prefixes(), c_calls, modules, but_caller)
        try:
            left_out = self._way.install(c_calls, but_caller)
        except BaseException:
            _recorder.tracer_end()
            raise
        self._running = True
        return since, left_out

    def leave_out_c_calls(self) -> None:
        """Go on without C functions."""
        if self._running:
            _recorder.tracer_c_calls(False)
            self._way.leave_out_c_calls()

    def stop(self) -> str:
        """Take it out. Returns a sentence about what had changed meanwhile, or nothing."""
        if not self._running:
            return ""
        self._running = False
        found = self._way.remove()
        _recorder.tracer_end()
        return found

    @property
    def running(self) -> bool:
        """Between start and stop."""
        return self._running


def _site_paths() -> list[str]:
    """Those that this `site` knows of: that of an old virtualenv lacks some of the functions."""
    paths: list[str] = []
    for name in ("getsitepackages", "getuserbase", "getusersitepackages"):
        found: Any = getattr(site, name, list)()
        paths += [found] if isinstance(found, str) else found or ()
    return paths


_SITE_PATHS = _site_paths()  # asked now: without HOME getuserbase imports a module


def path_prefixes() -> list[str]:
    """What is cut off from file names, the longest first: where modules are imported from, as torch.profiler does."""
    paths = [*sys.path, *_SITE_PATHS]
    absolute = {os.path.abspath(path) for path in paths if isinstance(path, str)}
    return [path.rstrip(os.sep) + os.sep for path in sorted(absolute, reverse=True) if path != os.sep]


def _name(profiler: object) -> str:
    """Of a profiler as its user knows it."""
    named: Any = profiler if hasattr(profiler, "__qualname__") else type(profiler)
    return f"{named.__module__}.{named.__qualname__}"


# --- what the agent calls ---

_tracer = Tracer()


def _start(options: Mapping[str, str]) -> None:
    since, left_out = _tracer.start("c_calls" in options, "modules" in options, but_caller=True)
    agent.note("stacks_from", since)
    if left_out:
        agent.note("not_honoured", left_out)


def _stop(options: Mapping[str, str]) -> None:
    counts = _recorder.tracer_statistics()
    changed = _tracer.stop()
    agent.note("stacks_resynchronised", counts["resynchronised"])
    if changed:
        agent.note("not_honoured", changed)


def _start_with_stacks(options: Mapping[str, str]) -> None:
    if "stacks" not in options:
        raise NotTraced("recorded with --stacks alone")


def _stop_c_calls(options: Mapping[str, str]) -> None:
    _tracer.leave_out_c_calls()


def _nothing(options: Mapping[str, str]) -> None:
    """They are no more than part of what is recorded."""


agent.register_hook("stacks", _start, _stop)
agent.register_hook("c_calls", _start_with_stacks, _stop_c_calls)
agent.register_hook("modules", _start_with_stacks, _nothing)
