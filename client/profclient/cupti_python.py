"""CUPTI's buffers in cupti-python (extra `[cupti]`), only where `[gpu] collector` says so: slow, and able to deadlock.

The session is our collector's (native/gpu/collector.h): it subscribes, turns kinds on and ends as it always does. But
CUPTI's two buffer callbacks are cupti-python's, which runs Python in them. They wait for the GIL while CUPTI holds
locks of its own, and a thread that has the GIL and calls CUDA may wait for those: then the job stands still for good
(docs/facts/cupti.md). Nothing imports this module unless it is asked for.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import re
from array import array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LEAST = (13, 2)  # before, a record took 23 to 56 us
_BUFFER_BYTES = 2 << 20
_BUFFERS_MAX = 24  # that CUPTI has at once, as native/gpu/buffers.h
_UNKNOWN = 999  # CUPTI_ERROR_UNKNOWN
_INSTALL = "pip install cupti-python in the environment of this process, or take [gpu] collector back"
_NO_DRIVER = "the process has not loaded CUDA's driver library yet, capture again when it uses CUDA"

Register = ctypes.CFUNCTYPE(ctypes.c_int)


class Unusable(Exception):
    """Why cupti-python cannot be used here, as a sentence; `state` as in native/gpu/state.h."""

    def __init__(self, state: str, why: str) -> None:
        super().__init__(why)
        self.state = state


class Buffers:
    """The callbacks of CUPTI through cupti-python, on whatever thread. Nothing raised here would reach anybody."""

    def __init__(self, cupti: Any, collector: ctypes.CDLL) -> None:
        self._cupti = cupti
        self._take = collector.profd_gpu_take
        self._take.argtypes, self._take.restype = [ctypes.c_void_p, ctypes.c_size_t], None
        self._out: list[None] = []  # one for each buffer that CUPTI has; appends and pops are atomic
        self.register = Register(self._register)

    def request(self) -> tuple[int, int]:
        """Bytes of the next buffer, and as many records as fit; (0, 0): none, CUPTI drops."""
        if len(self._out) >= _BUFFERS_MAX:
            return 0, 0
        self._out.append(None)
        return _BUFFER_BYTES, 0

    def completed(self, records: list[Any]) -> None:
        """Give the records of a buffer to the collector, which reads them before it returns."""
        if self._out:
            self._out.pop()
        try:
            addresses = array("Q", [record.ptr for record in records])
        except Exception:  # a record of another shape than we know
            self._take(None, len(records))
        else:
            self._take(addresses.buffer_info()[0], len(addresses))

    def _register(self) -> int:
        self._out.clear()
        try:
            self._cupti.activity_register_callbacks(self.request, self.completed)
        except Exception as error:
            return int(getattr(error, "status", _UNKNOWN))
        return 0


def buffers(collector: ctypes.CDLL) -> Buffers:
    """Buffers by cupti-python's module, once the module has found the libcupti of this process. Raises Unusable."""
    _check_version()
    if not _is_mapped("libcuda.so.1"):
        raise Unusable("no_driver", _NO_DRIVER)
    if _is_mapped("libcupti.so.12"):
        raise Unusable("unknown_cupti", "this process has the libcupti of CUDA 12, and cupti-python would load another")
    return Buffers(_module(), collector)


def _check_version() -> None:
    try:
        version = importlib.metadata.version("cupti-python")
    except importlib.metadata.PackageNotFoundError:
        raise Unusable("no_cupti", f"cupti-python is not installed: {_INSTALL}") from None
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < _LEAST:
        raise Unusable("unknown_cupti", f"cupti-python {version} is too slow, 13.2 is the oldest: {_INSTALL}")


def _is_mapped(library: str) -> bool:
    try:
        ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return False
    return True


def _module() -> Any:
    try:
        from cupti import cupti  # type: ignore[import-not-found]  # an extra, proprietary
    except (ImportError, OSError) as error:
        raise Unusable("no_cupti", f"cupti-python cannot be imported ({error}): {_INSTALL}") from error
    try:
        cupti.get_timestamp()
    except (RuntimeError, OSError) as error:  # its NotSupportedError, FunctionNotFoundError
        raise Unusable("driver_mismatch", f"cupti-python does not work with this driver: {error}") from error
    except Exception as error:
        # The collector meets the same, and has a sentence for it.
        if not hasattr(error, "status"):
            raise Unusable("failed", f"cupti-python does not work: {error!r}") from error
    return cupti
