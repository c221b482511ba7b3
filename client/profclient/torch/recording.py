"""The recorder of one recording's operators: the observer, or torch's own profiler where the user insists on it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from profclient import agent
from profclient.torch import builds, observer
from profclient.torch.profiler import Profiler, forget_files

# Of what is told of a recording a semicolon begins the next sentence.
FIX: Final = "build it once for this torch: profctl torch build"
NO_OBSERVER: Final = f"no operators are recorded, because there is no observer of them for this torch ({FIX})"
DANGER: Final = (
    "torch's own profiler can crash the program: torch frees what other threads still write to when it is stopped "
    "while operators run on them (SIGSEGV), and --force uses it all the same"
)

_loaded: observer.Observer | None = None
_profiler: Profiler | None = None
_times = False  # the observer takes device times


def start(options: Mapping[str, str]) -> None:
    """Begin. Raises RuntimeError with a sentence where operators cannot be recorded as asked."""
    asked = options["torch"]
    if "torch" not in sys.modules:
        if asked == "auto":
            return  # nothing of PyTorch's can be missing
        raise RuntimeError("it has not been imported")
    _refuse_while_imported()
    if asked == "profiler":
        # An older daemon asks without --force, too.
        if "force" not in options:
            raise RuntimeError(DANGER)
        _start_profiler(_observer()[0], options)
        return
    _need_observer().start(observer.wanted(options, times=_times))


def stop(options: Mapping[str, str]) -> None:
    """End it; called once after each start that did not raise."""
    global _profiler
    if _loaded is not None:
        _loaded.stop()
    if _profiler is None:
        return
    profiler, _profiler = _profiler, None
    if path := profiler.stop():
        agent.note("file", path)


def stop_shapes(options: Mapping[str, str]) -> None:
    """Go on without shapes, which cost too much. No effect after the operators' own `stop`."""
    if _loaded is not None and _loaded.running:
        _loaded.stop()
        without = {key: value for key, value in options.items() if key not in ("shapes", "flops")}
        _loaded.start(observer.wanted(without, times=_times))


def nothing(options: Mapping[str, str]) -> None:
    """Do nothing: `start` reads this option."""


def released() -> None:
    """The daemon has fetched what it wants."""
    forget_files()


def start_times(options: Mapping[str, str]) -> None:
    """Device times by CUDA events where CUPTI records none; before `start`. Raises RuntimeError."""
    global _times
    if agent.records("cuda"):
        return  # kernels say more
    if options["torch"] == "profiler":
        raise RuntimeError("the observer takes CUDA events, not torch's own profiler")
    _refuse_while_imported()
    found = _need_observer()
    if not sys.modules["torch"].cuda.is_initialized():
        raise RuntimeError("CUDA had not been initialized when the capture began")
    found.start_times()
    _times = True
    agent.note("device_times", "cuda_events")


def stop_times(options: Mapping[str, str]) -> None:
    """Record the times of the events, after `stop`."""
    global _times
    if _times and _loaded is not None:
        _times = False
        _loaded.stop_times()


def start_memory(options: Mapping[str, str]) -> None:
    """Record allocations and frees of tensors. Raises RuntimeError."""
    if "torch" not in sys.modules:
        raise RuntimeError("torch has not been imported")
    if _profiler is not None:
        raise RuntimeError("torch's own profiler records none on all threads, the observer does")
    _refuse_while_imported()
    found = _need_observer()
    if without := found.start_memory():
        agent.note("not_honoured", f"memory: none of CUDA devices, because {without}")


def stop_memory(options: Mapping[str, str]) -> None:
    """Let allocations go past us again."""
    if _loaded is not None:
        _loaded.stop_memory()


def _start_profiler(library: observer.Observer | None, options: Mapping[str, str]) -> None:
    global _profiler
    agent.records_at_stop("torch")
    forget_files()
    profiler = Profiler(library, options)
    profiler.start()
    _profiler = profiler


def _refuse_while_imported() -> None:
    """Another thread is importing torch now: half a module answers no question."""
    spec = getattr(sys.modules["torch"], "__spec__", None)
    if getattr(spec, "_initializing", False):
        raise RuntimeError("it was still being imported when the capture began, so no operators are in it")


def _need_observer() -> observer.Observer:
    """The observer. Raises RuntimeError with the reason why there is none."""
    found, why = _observer()
    if found is None:
        raise RuntimeError(why)
    return found


def _observer() -> tuple[observer.Observer | None, str]:
    """The observer, or why there is none. A loaded library stays."""
    global _loaded
    if _loaded is None:
        try:
            _loaded = observer.load()
        except (builds.Unusable, OSError) as error:
            return None, f"no operators are recorded, because {error}"
    return _loaded, "" if _loaded else NO_OBSERVER
