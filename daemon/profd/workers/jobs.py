"""The jobs a worker knows, by name.

A job is `def job(args, fds, progress) -> dict`: `args` and the result are JSON
values, `fds` are open descriptors (inputs, outputs) that belong to the job,
`progress(what, share)` may be called as often as it likes (share 0..1, or -1).
What it raises as ProfdError reaches the caller as the same type; anything else
becomes JobFailed. Jobs never open the network and never start processes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final

Progress = Callable[[str, float], None]
Job = Callable[[dict[str, Any], list[int], Progress], dict[str, Any]]

# Named by import path: a worker imports what it is asked for, nothing else.
JOBS: Final[dict[str, str]] = {
    # args: files [{"format": a name of decode/open.py, "label": str, "fd": index}], staging (directory, exists,
    #       empty), meta (what the trace is to say of itself). -> events, gpu_events, start_ns, end_ns,
    #       bytes, lost [{stage, reason, count}], warnings, truncated
    "store_trace": "profd.pipeline:store_trace",
    # args: trace_dir. -> the summary (docs/json.md)
    "summary": "profd.query.jobs:summary",
    # args: trace_dir, limit, sort_by, group_by_input_shape, group_by_stack_n, raw, group_by ("" or "module"),
    #       with_backward. -> {"rows": [...]}
    "top": "profd.query.jobs:top",
    # args: trace_dir, max_depth, from_row. JSON lines to fds[0]. -> {"rows": n}
    "tree": "profd.query.jobs:tree",
    # args: trace_dir. JSON (docs/json.md) to fds[0]. -> {"steps": n}
    "steps": "profd.query.jobs:steps",
    # args: trace_dir. JSON (docs/json.md) to fds[0]. -> {"streams": n}
    "gpu": "profd.query.jobs:gpu",
    # args: trace_dir, lines. JSON lines (docs/json.md) to fds[0]. -> {"rows": n}
    "timeline": "profd.query.jobs:timeline",
    # args: trace_dir, other_dir, by. JSON (docs/json.md) to fds[0]. -> {"rows": n}
    "diff": "profd.query.jobs:diff",
    # args: trace_dir, sql, limit. JSON (docs/json.md) to fds[0]. -> {"rows": n}
    "sql": "profd.query.sql:sql",
    # args: trace_dir, format, from_ns, to_ns, first_step, last_step, min_duration_ns, gzip, redact. Bytes to
    #       fds[0]. -> {"events": n}
    "export": "profd.export.jobs:export",
}


def find(name: str, jobs: Mapping[str, str] = JOBS) -> Job:
    """The function behind a job's name. KeyError if there is none."""
    module, _, function = jobs[name].partition(":")
    job: Job = getattr(importlib.import_module(module), function)
    return job
