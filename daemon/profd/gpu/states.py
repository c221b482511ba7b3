"""A collector's word about CUPTI in its process: a state from a closed set, and facts for the trace. Pure.

The codes are those of native/gpu/state.h; its sentences reach traces as "not honoured".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from profd.limits import GPU_HOLDER_CHARS_MAX
from profd.model.capture import Reason


class GpuState(StrEnum):
    """Why CUDA's work is not in a trace, or not all of it."""

    OK = "ok"
    NO_DRIVER = "no_driver"
    NO_CUPTI = "no_cupti"
    UNKNOWN_CUPTI = "unknown_cupti"
    DRIVER_MISMATCH = "driver_mismatch"
    FOREIGN_SUBSCRIBER = "foreign_subscriber"
    NO_PRIVILEGE = "no_privilege"
    UNSUPPORTED = "unsupported"
    FOREIGN_CLOCK = "foreign_clock"
    FORKED = "forked"
    FAILED = "failed"
    NO_KERNELS = "no_kernels"
    TAKEN_OVER = "taken_over"
    GPU_LOST = "gpu_lost"
    STILL_RUNNING = "still_running"

    @property
    def held(self) -> bool:
        """Another tool has, or had, what we wanted."""
        return self in (GpuState.FOREIGN_SUBSCRIBER, GpuState.TAKEN_OVER)


_REASONS: Final = {
    GpuState.FOREIGN_SUBSCRIBER: Reason.OTHER_PROFILER,
    GpuState.TAKEN_OVER: Reason.OTHER_PROFILER,
    GpuState.NO_PRIVILEGE: Reason.NOT_PERMITTED,
    GpuState.NO_KERNELS: Reason.NO_GPU_RECORDS,
    GpuState.NO_CUPTI: Reason.SOURCE_FAILED,
    GpuState.UNKNOWN_CUPTI: Reason.SOURCE_FAILED,
    GpuState.DRIVER_MISMATCH: Reason.SOURCE_FAILED,
    GpuState.UNSUPPORTED: Reason.SOURCE_FAILED,
    GpuState.FOREIGN_CLOCK: Reason.SOURCE_FAILED,
    GpuState.GPU_LOST: Reason.SOURCE_FAILED,
    GpuState.FAILED: Reason.SOURCE_FAILED,
}
_PREFIX: Final = "gpu."
_NUMBERS: Final = frozenset(
    (
        *("cupti_version", "clock_error_ns", "clock_offset_ns", "clock_steps", "records", "events", "device_events"),
        *("launches", "filtered", "external", "bad_times", "gone_names", "unknown", "late", "dropped"),
        *("buffers_refused", "buffers_out", "subscribe_ms"),
    )
)
_DIGITS_MAX: Final = 19
_AFTER: Final = frozenset(("stays", "gone", "no_call", "refused", "graphs", "unknown"))


@dataclass(frozen=True, slots=True)
class GpuReport:
    """The contents of a collector's last word. `state` is None where no collector has spoken."""

    state: GpuState | None = None
    holder: str = ""  # as cuptiSubscribe_v2 names it; empty: it gave none
    facts: Mapping[str, int | str] = field(default_factory=dict)  # for the trace's metadata, by name

    @property
    def reason(self) -> Reason:
        """Why a trace lacks what it was to have; NONE if it does not, or nothing was due."""
        return Reason.NONE if self.state is None else _REASONS.get(self.state, Reason.NONE)

    @property
    def stood_ms(self) -> int:
        """How long the program's CUDA calls may have stood behind CUPTI's first subscription of the process."""
        found = self.facts.get("subscribe_ms")
        return found if isinstance(found, int) else 0

    @property
    def clock_error_ns(self) -> int | None:
        """Bound of the distance of GPU times from the host's clock."""
        found = self.facts.get("clock_error_ns")
        return found if isinstance(found, int) else None


def report_from_untrusted(fields: Mapping[str, str]) -> GpuReport:
    """The keys `gpu.*` of a STATUS or STOPPED. Words that are not understood are left out."""
    found = {key.removeprefix(_PREFIX): value for key, value in fields.items() if key.startswith(_PREFIX)}
    if not found:
        return GpuReport()
    facts: dict[str, int | str] = {
        name: int(found[name])
        for name in sorted(_NUMBERS & found.keys())
        if (digits := found[name].removeprefix("-")).isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX
    }
    if found.get("clock") in ("realtime", "fitted"):
        facts["clock"] = found["clock"]
    if found.get("collector") == "cupti-python":
        facts["collector"] = "cupti-python"
    if found.get("cupti_after") in _AFTER:
        facts["cupti_after"] = found["cupti_after"]
    code = found.get("state", "")
    state = GpuState(code) if code in GpuState.__members__.values() else GpuState.FAILED
    return GpuReport(state, found.get("holder", "")[:GPU_HOLDER_CHARS_MAX], {"state": state.value, **facts})


def sentence(not_honoured: Sequence[str]) -> str:
    """The collector's sentences, among those of a recording."""
    said = [each.removeprefix("cuda: ") for each in not_honoured if each.startswith("cuda: ")]
    return "; ".join(dict.fromkeys(said))
