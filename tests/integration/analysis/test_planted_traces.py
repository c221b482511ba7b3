"""What `explain` finds in the traces of real jobs on a GPU that `python -m bench.gpu planted` has left behind.

They are too large for the repository: PROFD_BENCH_EXPORTS names the folder, as it did when they were recorded.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from bench.gpu import planted
from bench.gpu.end_to_end import PROFCTL

pytestmark = pytest.mark.slow

FOUND: Final = {  # all of them, the first first; on an H100, 2026-11-27
    "healthy": [],
    "loads": ["data-loading", "python-function", "host-bound"],
    "reads": ["synchronisation", "host-bound"],
    "copies": ["exposed-copies", "synchronisation", "host-bound"],
    "launches": ["small-kernels", "host-bound"],
    "checkpoints": ["slow-steps", "python-function", "exposed-copies", "host-bound"],
    "empties": ["allocator", "host-bound"],
    "healthy_graph": [],
}


@pytest.fixture
def bundles() -> Path:
    if not (folder := os.environ.get("PROFD_BENCH_EXPORTS")):
        pytest.skip("PROFD_BENCH_EXPORTS names no folder of traces")
    return Path(folder)


@pytest.mark.parametrize("case", planted.EXPECTED)
def test_a_real_trace_with_a_planted_trouble(case: str, bundles: Path, tmp_path: Path) -> None:
    """GIVEN the trace of such a job WHEN it is asked THEN the planted finding is the first, and the rest as it was."""
    bundle = bundles / f"{case}.bundle"
    if not bundle.exists():
        pytest.skip(f"no {bundle}")
    profctl = [*PROFCTL, "--store", str(tmp_path)]
    subprocess.run([*profctl, "import", str(bundle)], check=True, capture_output=True)
    [trace] = (path.name for path in (tmp_path / "traces").iterdir())
    asked = subprocess.run([*profctl, "explain", trace, "--json"], check=True, capture_output=True, text=True)
    ids = [finding["id"] for finding in json.loads(asked.stdout)["findings"]]
    assert ids[:1] == ([planted.EXPECTED[case]] if planted.EXPECTED[case] else [])
    assert ids == FOUND[case]
