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
from profclient.agent import NotHonoured

# Only what this interpreter needs is imported: the other would be memory that nobody uses.
if hasattr(sys, "monitoring"):
    from profclient import monitoring as _way
else:
    from profclient import profile_functions as _way  # type: ignore[no-redef]  # one of both

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class Tracer:
    """The tracer of this process. One capture at a time: that which the recorder records."""

    __slots__ = ("_running",)

    def __init__(self) -> None:
        self._running = False

    def start(self, c_calls: bool = False, modules: bool = False, but_caller: bool = False) -> tuple[int, str]:
        """Record calls from now on. `c_calls`: of C functions too. `but_caller`: not on this thread.

        Returns since when, in Unix ns, and a sentence about what is left out, or nothing. Raises NotHonoured.
        """
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            raise NotHonoured("this Python runs without the GIL, which the tracer relies on")
        if self._running:
            self.stop()
        _way.check()
        since = _recorder.tracer_begin(path_prefixes(), c_calls, modules, but_caller)
        self._running = True  # before it is in: a child that is forked within this takes out what there is of it
        try:
            left_out = _way.install(c_calls, but_caller)
        except BaseException:
            self._running = False
            _recorder.tracer_end()
            raise
        return since, left_out

    def leave_out_c_calls(self) -> None:
        """Go on without C functions."""
        if self._running:
            _recorder.tracer_c_calls(False)
            _way.leave_out_c_calls()

    def stop(self) -> str:
        """Take it out. Returns a sentence about what had changed meanwhile, or nothing."""
        if not self._running:
            return ""
        self._running = False
        found = _way.remove()
        _recorder.tracer_end()
        return found

    @property
    def running(self) -> bool:
        """Between start and stop."""
        return self._running


def _site_paths() -> list[str]:
    """Folders that this `site` knows of: the `site` of an old virtualenv lacks some of the functions."""
    paths: list[str] = []
    for name in ("getsitepackages", "getuserbase", "getusersitepackages"):
        found: Any = getattr(site, name, list)()
        paths += [found] if isinstance(found, str) else found or ()
    return paths


_SITE_PATHS = _site_paths()  # asked now: without HOME getuserbase imports a module


def path_prefixes() -> list[str]:
    """Prefixes to cut off from file names, the longest first: folders of imported modules, as torch.profiler does."""
    paths = [*sys.path, *_SITE_PATHS]
    absolute = {os.path.abspath(path) for path in paths if isinstance(path, str)}
    return [path.rstrip(os.sep) + os.sep for path in sorted(absolute, reverse=True) if path != os.sep]


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
        raise NotHonoured("recorded with --stacks alone")


def _stop_c_calls(options: Mapping[str, str]) -> None:
    _tracer.leave_out_c_calls()


def _nothing(options: Mapping[str, str]) -> None:
    """Do nothing: these are only a part of the recording."""


agent.register_hook("stacks", _start, _stop)
agent.register_hook("c_calls", _start_with_stacks, _stop_c_calls)
agent.register_hook("modules", _start_with_stacks, _nothing)
