"""The environment variables that profd keeps of a process, and what they say.

An environment holds credentials; only the variables named here are ever kept.
"""

from __future__ import annotations

from typing import Final

from profd.limits import PROC_GPUS_MAX, RANK_MAX
from profd.targets.procfs import printable

RANK_VARIABLES: Final = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
JOB_VARIABLES: Final = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
KEPT: Final = frozenset(
    (
        *RANK_VARIABLES,
        *JOB_VARIABLES,
        "TORCHELASTIC_RUN_ID",
        "SLURM_JOB_END_TIME",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_INJECTION64_PATH",
        "KINETO_USE_DAEMON",
        "KINETO_IPC_SOCKET_DIR",
        "KINETO_ONDEMAND_TRACE_DIR",
    )
)
_VALUE_CHARACTERS: Final = 256
_LONG: Final = frozenset(("CUDA_VISIBLE_DEVICES", "CUDA_INJECTION64_PATH", "KINETO_ONDEMAND_TRACE_DIR"))
_LONG_CHARACTERS: Final = 4096  # of one of these: lists of UUIDs, paths


def parse_environ(raw: bytes) -> dict[str, str]:
    """The kept variables of /proc/PID/environ. The first of a name counts, as for getenv(3)."""
    kept: dict[str, str] = {}
    for entry in raw.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        key = name.decode("ascii", "replace")
        if equals and key in KEPT and key not in kept:
            kept[key] = printable(value, _LONG_CHARACTERS if key in _LONG else _VALUE_CHARACTERS)
    return kept


def rank(environ: dict[str, str]) -> int | None:
    """The global rank that a launcher gave this process; None if no launcher did."""
    for name in RANK_VARIABLES:
        value = environ.get(name, "")
        if value.isascii() and value.isdigit() and len(value) < 9 and int(value) <= RANK_MAX:
            return int(value)
    return None


def job(environ: dict[str, str]) -> str:
    """The scheduler's job id, empty if there is none."""
    for name in JOB_VARIABLES:
        if environ.get(name):
            return environ[name]
    return ""


def elastic_run(environ: dict[str, str]) -> str:
    """The run id of torchrun, empty if there is none (`none` is its default)."""
    run = environ.get("TORCHELASTIC_RUN_ID", "")
    return "" if run == "none" else run


def visible_gpus(environ: dict[str, str]) -> tuple[int, ...] | None:
    """CUDA_VISIBLE_DEVICES as indices; None where it is not set or names UUIDs.

    As in CUDA, the list ends at the first entry that is no index.
    """
    value = environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return None
    indices: list[int] = []
    for entry in value.split(","):
        entry = entry.strip()
        if not (entry.isascii() and entry.isdigit()) or len(entry) > 4 or len(indices) >= PROC_GPUS_MAX:
            return tuple(indices) if indices or entry in ("", "-1") else None
        indices.append(int(entry))
    return tuple(indices)
