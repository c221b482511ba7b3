"""Run in a process of its own: profile a small model, write its traces and torch's own tables and stacks.

python torch_report.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

CAPTURES = {
    "plain": {},
    "shapes": {"record_shapes": True, "with_flops": True},
    "memory": {"profile_memory": True},
}
TABLES = {
    "total": {"sort_by": "cpu_time_total", "row_limit": -1},
    "self": {"sort_by": "self_cpu_time_total", "row_limit": 7},
    "header": {"sort_by": "cpu_time", "header": "What took the time", "row_limit": -1},
    "top": {"sort_by": "count", "top_level_events_only": True, "row_limit": -1},
}


def capture(path: Path, **options: Any) -> profile:
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with profile(activities=[ProfilerActivity.CPU], **options) as profiler:
        for _ in range(3):
            with record_function("a range with a name that is longer than the column of names is wide"):
                loss = model(torch.randn(8, 1, 8, 8)).sum()
            loss.backward()
            optimizer.step()
    profiler.export_chrome_trace(str(path))
    return profiler


def main(folder: Path) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    texts = {}
    for name, options in CAPTURES.items():
        profiler = capture(folder / f"{name}.json", **options)
        rows = profiler.key_averages(group_by_input_shape="shapes" in name)
        total = profiler.key_averages().total_average()
        texts[name] = {
            "tables": {table: rows.table(**options) for table, options in TABLES.items()},
            "total": [total.count, round(total.cpu_time_total * 1000), round(total.self_cpu_time_total * 1000)],
        }
    (folder / "texts.json").write_text(json.dumps({"tables": TABLES, "texts": texts}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
