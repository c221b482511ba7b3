"""torch's own profiler in all-thread mode, for users who name it and add --force.

It can crash the program: torch frees the queues of other threads when it is disabled, and an operator that runs on one
of them then writes into freed memory. Within the rules of docs/torch.md: never while another torch profiler runs in the
process, always stopped before the interpreter ends, without memory (torch records none in this mode). Its result is a
file that the daemon fetches. Where the observer's library is loaded, it is stopped and exported without the GIL; from
Python the job stands still for about 4.5 us an event.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from typing import Any, Final

from profclient import temporary
from profclient.torch import observer

_FILE: Final = "torch.json"


class Profiler:
    """One recording. `start`, then `stop`."""

    def __init__(self, library: observer.Observer | None, options: Mapping[str, str]) -> None:
        self._library = library
        self._shapes = "shapes" in options
        self._flops = "flops" in options
        self._pid = os.getpid()

    def start(self) -> None:
        """Begin. Raises RuntimeError: another profiler runs."""
        _refuse_beside_others()
        if self._library is not None:
            self._library.start_profiler(self._shapes, self._flops, _has_devices())
        else:
            self._begin()

    def stop(self) -> str:
        """End it; the path of the Chrome JSON file, empty in a forked child, which leaves the parent's alone.

        Raises RuntimeError: somebody else's profiler has ended ours.
        """
        if os.getpid() != self._pid:
            return ""
        if _others_run():
            raise RuntimeError(
                "another torch profiler was started in the process, which ends this one: nothing is left"
            )
        path = os.path.join(_directory(), _FILE)
        if self._library is not None:
            self._library.stop_profiler(path)
            return path
        result = _torch().autograd._disable_profiler()
        if not result.events():
            raise RuntimeError("it recorded nothing: no operator ran, or another torch profiler ran meanwhile")
        result.save(path)
        return path

    def _begin(self) -> None:
        torch = _torch()
        config = _config(self._shapes, self._flops)
        activities = torch.autograd._supported_activities()
        torch.autograd._prepare_profiler(config, activities)
        torch.autograd._enable_profiler(config, activities)


def _torch() -> Any:
    return sys.modules["torch"]


def _others_run() -> bool:
    """Process-wide, and true for sessions of any thread; ours do not set it."""
    return bool(_torch().autograd.profiler._is_profiler_enabled)


def _refuse_beside_others() -> None:
    if _others_run():
        raise RuntimeError("another torch profiler runs in the process, and starting a second one would crash it")


def _has_devices() -> bool:
    return len(_torch().autograd._supported_activities()) > 1


def _config(shapes: bool, flops: bool) -> Any:
    profiler = _torch()._C._profiler
    experimental = profiler._ExperimentalConfig(profile_all_threads=True)
    kineto = profiler.ProfilerState.KINETO
    return profiler.ProfilerConfig(kineto, shapes or flops, False, False, flops, False, experimental, "")


_directories: list[tuple[int, str]] = []  # by the process that made them


def _directory() -> str:
    """A new one of our own, so that nobody else can put a link where torch writes."""
    made = tempfile.mkdtemp(prefix="profd-torch-", dir=temporary.place())
    _directories.append((os.getpid(), made))
    return made


def forget_files() -> None:
    """Remove what the daemon has fetched, or never will."""
    while _directories:
        pid, path = _directories.pop()
        if pid == os.getpid():
            shutil.rmtree(path, ignore_errors=True)


atexit.register(forget_files)  # here, where torch is imported, and not on the agent's thread
