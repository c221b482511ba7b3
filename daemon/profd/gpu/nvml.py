"""NVML's readings of the GPUs of this host, through nvidia-ml-py.

A GPU may lack any single value (vGPU, MIG, an old driver): that value is
absent, the others are not. A lost GPU loses all of its values and is named.
Calls into a driver can hang; callers run `read` in a thread of their own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from profd.gpu.gpm import Gpm
from profd.gpu.readings import THROTTLE_REASONS, Gpu, Reading

_GPUS_MAX: Final = 64
_MIG_MAX: Final = 16  # instances of one GPU; NVIDIA's make seven
PROCESSES_MAX: Final = 256  # of one GPU that are told
TURN_SECONDS: Final = 30.0  # for the question of another thread: a driver without persistence wakes up slowly


class Nvml:
    """The library, initialised at the first reading that finds it. Readings of several threads take turns."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._library: Any = None

    def read(self, gpm: Gpm | None = None) -> Reading:
        """The driver's readings now; with `gpm` the activity since the last reading with the same.

        Never raises for the lack of a driver, a GPU or a value.
        """
        # One thread may hang for good, and not each that comes after it: scrapes come every few seconds.
        if not self._lock.acquire(timeout=TURN_SECONDS):
            return Reading(absent=f"the NVIDIA driver has left a question without an answer for {TURN_SECONDS:g} s")
        try:
            return self._read(gpm)
        finally:
            self._lock.release()

    def forget(self, gpm: Gpm) -> None:
        """Nobody reads with it any more."""
        with self._lock:
            if self._library is not None:
                gpm.close()

    def close(self) -> None:
        """Let go of the library."""
        with self._lock:
            if self._library is not None:
                self._library.nvmlShutdown()
                self._library = None

    def _read(self, gpm: Gpm | None) -> Reading:
        absent = self._open()
        if absent:
            return Reading(absent=absent)
        library = self._library
        try:
            count = min(library.nvmlDeviceGetCount(), _GPUS_MAX)
            driver = str(library.nvmlSystemGetDriverVersion())
        except library.NVMLError as error:
            return Reading(absent=f"NVML does not answer ({error})")
        gpus: list[Gpu] = []
        lost = {}
        for index in range(count):
            try:
                gpus += tuple(_gpus(library, index, gpm))  # all of it, or it is lost
            except library.NVMLError as error:
                lost[index] = str(error)
        return Reading(tuple(gpus), driver, "", lost)

    def _open(self) -> str:
        """Why NVML cannot be used; empty when it can."""
        if self._library is not None:
            return ""
        try:
            import pynvml  # not before it is needed: 60 ms
        except ImportError:
            return "nvidia-ml-py is not installed"
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            return f"no NVIDIA driver answers ({error})"
        self._library = pynvml
        return ""


class _Device:
    """One handle of NVML's, asked value by value."""

    def __init__(self, library: Any, handle: Any) -> None:
        self.library = library
        self.handle = handle

    def said(self, question: str, *arguments: Any) -> Any:
        """The answer; None where the driver has none. Raises NVMLError if the GPU is lost."""
        ask: Callable[..., Any] | None = getattr(self.library, question, None)
        if ask is None:
            return None
        try:
            return ask(self.handle, *arguments)
        except self.library.NVMLError as error:
            if error.value == self.library.NVML_ERROR_GPU_IS_LOST:
                raise
            return None

    def memory(self) -> dict[str, int]:
        """The two fields of Gpu that both a GPU and an instance of it have."""
        memory = self.said("nvmlDeviceGetMemoryInfo")
        if memory is None:
            return {}
        return {"memory_used_bytes": int(memory.used), "memory_total_bytes": int(memory.total)}

    def processes(self) -> dict[int, int | None]:
        """Device memory of each process that computes on it."""
        found = self.said("nvmlDeviceGetComputeRunningProcesses") or []
        return {
            int(one.pid): None if one.usedGpuMemory is None else int(one.usedGpuMemory) for one in found[:PROCESSES_MAX]
        }


def _gpus(library: Any, index: int, gpm: Gpm | None) -> Iterator[Gpu]:
    """A GPU and its MIG instances. Raises NVMLError if the GPU itself cannot be reached."""
    device = _Device(library, library.nvmlDeviceGetHandleByIndex(index))
    whole = _gpu(device, index, gpm)
    yield whole
    mode = device.said("nvmlDeviceGetMigMode")
    if not mode or not mode[0]:
        return
    for number in range(min(device.said("nvmlDeviceGetMaxMigDeviceCount") or 0, _MIG_MAX)):
        handle = device.said("nvmlDeviceGetMigDeviceHandleByIndex", number)
        if handle is not None:
            yield _instance(device, _Device(library, handle), whole, number, gpm)


def _gpu(device: _Device, index: int, gpm: Gpm | None) -> Gpu:
    library, said = device.library, device.said
    before = time.monotonic_ns()
    uuid = str(library.nvmlDeviceGetUUID(device.handle))
    rates = said("nvmlDeviceGetUtilizationRates")
    reasons = said("nvmlDeviceGetCurrentClocksEventReasons")
    values: dict[str, Any] = {
        "busy_ratio": None if rates is None else rates.gpu / 100,
        "memory_busy_ratio": None if rates is None else rates.memory / 100,
        **device.memory(),
        "sm_clock_hertz": _scaled(said("nvmlDeviceGetClockInfo", library.NVML_CLOCK_SM), 1e6),
        "memory_clock_hertz": _scaled(said("nvmlDeviceGetClockInfo", library.NVML_CLOCK_MEM), 1e6),
        "power_watts": _scaled(said("nvmlDeviceGetPowerUsage"), 1e-3),
        "temperature_celsius": _scaled(said("nvmlDeviceGetTemperature", library.NVML_TEMPERATURE_GPU), 1.0),
        "throttled": None if reasons is None else frozenset(w for bit, w in THROTTLE_REASONS.items() if reasons & bit),
        "gpm": {} if gpm is None else gpm.read(library, device.handle, uuid),
        "processes": device.processes(),
    }
    taken, error = _bracket(before)
    name, minor = str(said("nvmlDeviceGetName") or ""), said("nvmlDeviceGetMinorNumber")
    return Gpu(index, uuid, name, minor=minor, taken_ns=taken, error_ns=error, **values)


def _instance(parent: _Device, device: _Device, whole: Gpu, number: int, gpm: Gpm | None) -> Gpu:
    """NVML says little of an instance: memory and processes, and what GPM counts of its GPU instance."""
    before = time.monotonic_ns()
    uuid = str(device.said("nvmlDeviceGetUUID") or f"{whole.uuid}/{number}")
    place = device.said("nvmlDeviceGetGpuInstanceId")
    counted = {} if gpm is None or place is None else gpm.read(parent.library, parent.handle, uuid, int(place))
    memory, processes = device.memory(), device.processes()
    taken, error = _bracket(before)
    return Gpu(
        index=whole.index,
        uuid=uuid,
        name=str(device.said("nvmlDeviceGetName") or whole.name),
        mig=number,
        minor=whole.minor,
        taken_ns=taken,
        error_ns=error,
        memory_used_bytes=memory.get("memory_used_bytes"),
        memory_total_bytes=memory.get("memory_total_bytes"),
        gpm=counted,
        processes=processes,
    )


def _bracket(before_ns: int) -> tuple[int, int]:
    """(middle, half width) of the time since then."""
    half = (time.monotonic_ns() - before_ns) // 2
    return before_ns + half, half


def _scaled(value: Any, by: float) -> float | None:
    return None if value is None else value * by
