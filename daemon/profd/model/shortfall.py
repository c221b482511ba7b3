"""Why rows of GPUs or operators are missing from a trace, in words for captures and for questions. Imports nothing."""

from __future__ import annotations

from typing import Final

NO_OPERATORS: Final = "torch: no operators are recorded, because there is no observer of them for this torch"
OBSERVER_COMES: Final = "it is being built: profctl torch list"
OBSERVER_FIX: Final = "build it once for this torch: profctl torch build"  # the client's own word, too


def missing_gpu_records(launches: int) -> str:
    """Of a trace with so many launches and no device records."""
    return (
        f"{launches:,} launches were recorded and nothing that they ran on the GPU: another tool held CUPTI in "
        "this process (Nsight, DCGM profiling, another profiler), or the driver forbids profiling "
        "(NVreg_RestrictProfilingToAdminUsers). Stop the other tool or lift the restriction, and capture again."
    )
