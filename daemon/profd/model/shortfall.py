"""Why GPU rows are missing from a trace, in one sentence for captures and for questions. Imports nothing."""

from __future__ import annotations


def missing_gpu_records(launches: int) -> str:
    """Of a trace with so many launches and no device records."""
    return (
        f"{launches:,} launches were recorded and nothing that they ran on the GPU: another tool held CUPTI in "
        "this process (Nsight, DCGM profiling, another profiler), or the driver forbids profiling "
        "(NVreg_RestrictProfilingToAdminUsers). Stop the other tool or lift the restriction, and capture again."
    )
