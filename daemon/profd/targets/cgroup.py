"""Which job a process belongs to, as its cgroup says, and how many cores this one may use.

A job's scheduler makes its cgroup, and the job its environment, so the cgroup comes first. It is no proof of anything:
who has a cgroup delegated may make one of such a name below it.
Slurm: v2 `…/slurmstepd.scope/job_<id>/step_<x>/…`, v1 `/slurm/uid_<u>/job_<id>/…`
(docs of slurm.schedmd.com/cgroup_v2). Kubernetes: `…pod<uid>…`, with `_` for
`-` under the systemd driver.
"""

from __future__ import annotations

import math
import re
from pathlib import Path, PurePosixPath
from typing import Final

_SLURM: Final = re.compile(r"slurm[^/\n]*(?:/uid_\d+)?/job_(\d{1,18})(?:/|$)", re.MULTILINE)
_POD: Final = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")


def slurm_job(text: str) -> str:
    """The Slurm job id in the text of /proc/PID/cgroup, empty if there is none."""
    found = _SLURM.search(text)
    return found.group(1) if found else ""


def kubernetes_pod(text: str) -> str:
    """The uid of the Kubernetes pod in the text of /proc/PID/cgroup, empty if there is none."""
    found = _POD.search(text)
    return found.group(1).replace("_", "-") if found else ""


def cores_allowed(proc: Path = Path("/proc"), mounted: Path = Path("/sys/fs/cgroup")) -> float:
    """How many cores' time this process may use by its cgroup of v2 and those above; inf: no limit that can be read."""
    found = re.search(r"^0::(/.*)$", _text(proc / "self/cgroup"), re.MULTILINE)
    path = PurePosixPath(found.group(1) if found else "/").relative_to("/")
    limits = (_text(mounted / folder / "cpu.max").split() for folder in (path, *path.parents))
    return min(
        (int(most[0]) / int(most[1]) for most in limits if len(most) == 2 and most[0] != "max"), default=math.inf
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
