"""The config text that libkineto is sent, made only from validated values.

A bad line makes libkineto stop reading there, apply what came before and leave
an empty file behind, so nothing reaches it unchecked. `PROFILE_MEMORY` is not
here because it leaves a thread spinning in the job for the rest of its life.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from profd import limits
from profd.model.capture import Options

FALLBACK_DURATION_MS: Final = 500  # what libkineto records where iterations cannot be counted
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._+@%,: -]+)+\.json", re.ASCII)
_TRACE_ID: Final = re.compile(r"[0-9a-f]{8,64}", re.ASCII)


def can_name(directory: str) -> bool:
    """Whether libkineto can be told to write into this directory: an `=` or `#` in it would end the line."""
    return bool(_PATH.fullmatch(f"{directory.rstrip('/')}/x.json")) and ".." not in directory.split("/")


@dataclass(frozen=True, slots=True)
class KinetoConfig:
    """One on-demand trace.

    `output` is absolute in the target's mount namespace and ends in `.json`;
    libkineto inserts `_PID` before that. `iterations` 0 records for
    `duration_ms`; otherwise `duration_ms` is what libkineto falls back to
    before the first optimizer step. `start_time_ms` is Unix time, 0 for two
    seconds after it was read.
    """

    output: str
    trace_id: str
    duration_ms: int
    iterations: int = 0
    start_time_ms: int = 0
    shapes: bool = False
    stacks: bool = False
    modules: bool = False

    def __post_init__(self) -> None:
        if not _PATH.fullmatch(self.output) or ".." in self.output.split("/"):
            raise ValueError(f"libkineto cannot be given the output path {self.output!r}")
        if not _TRACE_ID.fullmatch(self.trace_id):
            raise ValueError(f"not a trace id: {self.trace_id!r}")
        if not 1 <= self.duration_ms <= limits.CAPTURE_WINDOW_MAX_NS // 1_000_000:
            raise ValueError(f"a window of {self.duration_ms} ms is out of range")
        if not 0 <= self.iterations <= limits.CAPTURE_ITERATIONS_MAX:
            raise ValueError(f"{self.iterations} iterations is out of range")
        if not 0 <= self.start_time_ms < 1 << 53:
            raise ValueError(f"start time {self.start_time_ms} is out of range")

    def text(self) -> str:
        """`KEY=VALUE` lines, each with exactly one `=`."""
        lines = [
            f"ACTIVITIES_LOG_FILE={self.output}",
            f"REQUEST_TRACE_ID={self.trace_id}",
            "ACTIVITIES_WARMUP_PERIOD_SECS=0",
            f"ACTIVITIES_DURATION_MSECS={self.duration_ms}",
        ]
        if self.iterations:
            # Iterations alone are ignored: a start iteration or a round-up must stand beside them.
            lines += [
                f"ACTIVITIES_ITERATIONS={self.iterations}",
                "PROFILE_START_ITERATION_ROUNDUP=1",
                "ACTIVITIES_WARMUP_ITERATIONS=0",
            ]
        elif self.start_time_ms:
            lines.append(f"PROFILE_START_TIME={self.start_time_ms}")
        lines += [
            f"{key}=true"
            for key, wanted in (
                ("PROFILE_REPORT_INPUT_SHAPES", self.shapes),
                ("PROFILE_WITH_STACK", self.stacks),
                ("PROFILE_WITH_MODULES", self.modules and self.stacks),
            )
            if wanted
        ]
        return "\n".join(lines) + "\n"


def from_options(options: Options, output: str, trace_id: str, start_time_ms: int = 0) -> KinetoConfig:
    """The config that serves as much of a request as libkineto can.

    FLOPS are computed from shapes afterwards, so asking for them records shapes.
    """
    duration_ms = -(-options.duration_ns // 1_000_000) or FALLBACK_DURATION_MS
    return KinetoConfig(
        output=output,
        trace_id=trace_id,
        duration_ms=duration_ms,
        iterations=options.iterations,
        start_time_ms=start_time_ms,
        shapes=options.shapes or options.flops,
        stacks=options.stacks,
        modules=options.modules,
    )
