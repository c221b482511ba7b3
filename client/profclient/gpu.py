"""CUPTI in an attached process: what the agent does where a recording asks for CUDA events.

The work is done by libprofd_cupti.so (native/gpu), which is loaded at the first recording of a process that uses CUDA,
and stays: CUPTI may call it as long as the process lives. While nothing is recorded it holds nothing of CUPTI.
"""

from __future__ import annotations

import ctypes

from profclient import _recorder
from profclient.agent import COLLECTOR, note, register_hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from profclient.agent import Options

_TEXT_BYTES = 4096

_library: ctypes.CDLL | None = None


_theirs: object = None  # cupti-python's callbacks, once used: CUPTI may call them as long as the process lives


class CuptiUnavailable(Exception):
    """Why CUDA events are not recorded, as a sentence; `state` where the collector was not even asked."""

    def __init__(self, why: str, state: str = "") -> None:
        super().__init__(why)
        self.state = state


def start(*, graph_nodes: bool = True, cupti_python: bool = False) -> str:
    """Record CUDA's calls, kernels and copies. What is left out, as a sentence or empty. Raises CuptiUnavailable.

    `graph_nodes`: every kernel of a CUDA graph, not the graph as one. `cupti_python`: CUPTI's buffers go through it
    (profclient.cupti_python), which can deadlock.
    """
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    library = _loaded()
    elsewhere = _through_cupti_python(library) if cupti_python else None
    armed = library.profd_gpu_arm_elsewhere(_api(), int(graph_nodes), elsewhere, text, _TEXT_BYTES)
    told = text.value.decode("utf-8", "replace")
    if not armed:
        raise CuptiUnavailable(told)
    return told


def stop() -> dict[str, str]:
    """Take what CUPTI still holds and let go of it; waits a little for the kernels that run. Returns `report()`."""
    _loaded().profd_gpu_stop()
    return report()


def report() -> dict[str, str]:
    """What was seen, by name: `gpu.state` (docs/gpu.md), counts, the clock; `gpu.notes` are sentences."""
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    _loaded().profd_gpu_report(text, _TEXT_BYTES)
    return dict(line.split("=", 1) for line in text.value.decode("utf-8", "replace").splitlines())


def _loaded() -> ctypes.CDLL:
    global _library
    if _library is None:
        try:
            _library = ctypes.CDLL(COLLECTOR)
        except OSError as error:
            raise CuptiUnavailable(f"libprofd_cupti.so cannot be loaded: {error}", "failed") from error
        _library.profd_gpu_arm_elsewhere.argtypes = [
            *(ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
        ]
        _library.profd_gpu_report.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        _library.profd_gpu_report.restype = None
        _library.profd_gpu_stop.restype = None
    return _library


def _through_cupti_python(library: ctypes.CDLL) -> ctypes.c_void_p:
    """The function that registers cupti-python's callbacks."""
    global _theirs
    from profclient import cupti_python  # only where it is asked for

    try:
        theirs = cupti_python.buffers(library)
    except cupti_python.Unusable as error:
        raise CuptiUnavailable(str(error), error.state) from error
    _theirs = theirs
    return ctypes.cast(theirs.register, ctypes.c_void_p)


def _api() -> int:
    """The recorder's functions for native code, as a pointer."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(pointer(_recorder._api, b"profclient._recorder._api"))


def _armed(options: Options) -> None:
    wanted = options.get("cuda", "").split("+")
    try:
        left_out = start(graph_nodes="whole" not in wanted, cupti_python="cupti-python" in wanted)
    except CuptiUnavailable as error:
        _tell({"gpu.state": error.state} if error.state else report())
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
