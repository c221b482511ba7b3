"""CUPTI in an attached process: what the agent does where a recording asks for CUDA events.

The work is done by libprofd_cupti.so (native/gpu), which is loaded at the first recording of a process that uses CUDA,
and stays: CUPTI may call it as long as the process lives. While nothing is recorded it holds nothing of CUPTI.
"""

from __future__ import annotations

import sys

from profclient import _recorder
from profclient.agent import COLLECTOR, note, register_hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from profclient.agent import Options

_TEXT_BYTES = 4096
_GRAPH_NODES, _DETACH = 1, 2  # as in native/gpu/profd_cupti.h

_library: _recorder.Library | None = None

_unwatch = None  # undoes what looks for PyTorch's own profiler

_theirs: object = None  # cupti-python's callbacks, once used: CUPTI may call them as long as the process lives


class CuptiUnavailable(Exception):
    """Why CUDA events are not recorded, as a sentence; `state` where the collector was not even asked."""

    def __init__(self, why: str, state: str = "") -> None:
        super().__init__(why)
        self.state = state


def start(*, graph_nodes: bool = True, cupti_python: bool = False, detach: bool = False) -> str:
    """Record CUDA's calls, kernels and copies. A sentence about the parts that are left out, or empty. Raises
    CuptiUnavailable.

    `graph_nodes`: every kernel of a CUDA graph, not the graph as one. `cupti_python`: CUPTI's buffers go through it
    (profclient.cupti_python), which can deadlock. `detach`: CUPTI leaves the process at the end (cuptiFinalize).
    """
    library = _loaded()
    elsewhere = _through_cupti_python() if cupti_python else None
    text = bytearray(_TEXT_BYTES)
    wishes = _GRAPH_NODES * graph_nodes | _DETACH * detach
    armed = library.call("profd_gpu_arm_elsewhere", _recorder._api, wishes, elsewhere, text, _TEXT_BYTES)
    told = _text(text)
    if not armed:
        raise CuptiUnavailable(told)
    _watch_pytorch()
    return told


def stop() -> dict[str, str]:
    """Take what CUPTI still holds and let go of it; waits a little for the kernels that run. Returns `report()`."""
    _watch_no_more()
    _loaded().call("profd_gpu_stop")
    return report()


def leave() -> None:
    """The same at once, for a profiler of the program's own that is about to begin."""
    _loaded().call("profd_gpu_leave")


def _watch_pytorch() -> None:
    global _unwatch
    if "torch" in sys.modules:
        from profclient.torch.own_profiler import before_it_begins

        _unwatch = before_it_begins(leave)


def _watch_no_more() -> None:
    global _unwatch
    if _unwatch is not None:
        _unwatch()
    _unwatch = None


def report() -> dict[str, str]:
    """Findings by name: `gpu.state` (docs/gpu.md), counts, the clock; `gpu.notes` are sentences."""
    text = bytearray(_TEXT_BYTES)
    _loaded().call("profd_gpu_report", text, _TEXT_BYTES)
    return dict(line.split("=", 1) for line in _text(text).splitlines())


def _text(written: bytearray) -> str:
    return written.partition(b"\0")[0].decode("utf-8", "replace")


def _loaded() -> _recorder.Library:
    global _library
    if _library is None:
        try:
            _library = _recorder.Library(COLLECTOR)
        except OSError as error:
            raise CuptiUnavailable(f"libprofd_cupti.so cannot be loaded: {error}", "failed") from error
    return _library


def _through_cupti_python() -> int:
    """Address of the function that registers cupti-python's callbacks.

    It is Python, and what it needs is imported here, on the agent's thread: whoever turns it on has been warned.
    """
    global _theirs
    import ctypes

    from profclient import cupti_python

    try:
        theirs = cupti_python.buffers(ctypes.CDLL(COLLECTOR))
    except cupti_python.Unusable as error:
        raise CuptiUnavailable(str(error), error.state) from error
    _theirs = theirs
    return ctypes.cast(theirs.register, ctypes.c_void_p).value or 0


def _armed(options: Options) -> None:
    wanted = options.get("cuda", "").split("+")
    try:
        left_out = start(
            graph_nodes="whole" not in wanted,
            cupti_python="cupti-python" in wanted,
            detach="cupti-detach" in wanted,
        )
    except CuptiUnavailable as error:
        found = {"gpu.state": error.state} if error.state else report()
        _tell(found)
        if found["gpu.state"] == "foreign_subscriber" and "torch" in sys.modules:
            raise CuptiUnavailable(f"{error}, --gpu-fallback --force times operators without CUPTI") from None
        raise
    _tell(report())
    if left_out:
        note("not_honoured", f"cuda: {left_out}")


def _stopping(_options: Options) -> None:
    _tell(stop())


def _tell(report: dict[str, str]) -> None:
    notes = report.pop("gpu.notes", "")
    for key, value in report.items():
        note(key, value)
    if notes:
        note("not_honoured", f"cuda: {notes}")


register_hook("cuda", _armed, _stopping, records_at_stop=True)
