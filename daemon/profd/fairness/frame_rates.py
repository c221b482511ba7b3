"""How much of HTTP/2 may pass in a second: at the door, and on a line to a profiler server.

The buckets are native/host/allowance.h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from profd import limits


@dataclass(frozen=True, slots=True)
class FrameRates:
    """Tokens a second, and at once after a pause. A stream takes one; `work` is what frames cost gRPC, roughly."""

    streams: float
    streams_burst: float
    work: float
    work_burst: float


OF_A_USER: Final = FrameRates(
    *(limits.STREAMS_PER_SECOND, limits.STREAMS_BURST, limits.FRAMES_PER_SECOND, limits.FRAMES_BURST)
)
OF_ALL_USERS: Final = FrameRates(
    *(limits.STREAMS_HOST_PER_SECOND, limits.STREAMS_HOST_BURST),
    *(limits.FRAMES_HOST_PER_SECOND, limits.FRAMES_HOST_BURST),
)
