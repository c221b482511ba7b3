"""What HTA 0.5 says of public traces: `HTA_PYTHON tests/support/hta_reference.py FOLDER > tests/data/hta-0.5.json`."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hta.trace_analysis import TraceAnalysis  # in an environment of its own

NAMES = ("cuda_diff_control", "cuda_diff_test", "ddp_rank0", "ddp_rank1")


def told(file: Path) -> dict[str, Any]:
    """Of one trace: in us, but for shares."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(file, folder)
        analysis = TraceAnalysis(trace_dir=folder)
        (rank,) = analysis.t.traces
        (parts,) = analysis.get_temporal_breakdown(visualize=False).to_dict("records")
        (overlap,) = analysis.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"]
        idle, _ = analysis.get_idle_time_breakdown(ranks=[rank], visualize=False)
    streams: dict[str, dict[str, float]] = {}
    for row in idle.to_dict("records"):
        streams.setdefault(str(row["stream"]), {})[row["idle_category"]] = row["idle_time"]
    kept = {name.split("_time")[0]: parts[name] for name in parts if name.endswith("(us)")}
    return {"rank": rank, "parts": kept, "overlap_percent": overlap, "idle": streams}


if __name__ == "__main__":
    found = {name: told(Path(sys.argv[1]) / f"{name}.json.gz") for name in NAMES}
    print(json.dumps(found, indent=1, default=float))
