"""The place of this process in its job, by variables that launchers put into the environment. Imports nothing heavy."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Best first: what torchrun, Open MPI, PMI (MPICH, Intel), PMIx and Slurm set.
_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
_WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_LOCAL_RANK = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_JOB = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "TORCHELASTIC_RUN_ID")
_POD = ("POD_NAME", "K8S_POD_NAME", "MY_POD_NAME")
# What torch reads when its flight recorder is made; the second is the earlier name.
_KEPT = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")

_NUMBER_CHARACTERS = 8
_TEXT_CHARACTERS = 256


def labels(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`rank`, `world`, `local_rank`, `job`, `pod`: those that are known.

    A process without a launcher has none of the numbers; torchrun's default run id `none` is no job.
    """
    found = {
        "rank": _first_number(environ, _RANK),
        "world": _first_number(environ, _WORLD),
        "local_rank": _first_number(environ, _LOCAL_RANK),
        "job": _first_text(environ, _JOB),
        "pod": _pod(environ),
    }
    return {key: value for key, value in found.items() if value}


def collectives_kept(environ: Mapping[str, str] = os.environ) -> str:
    """How many collectives torch's flight recorder keeps at most, where the environment says it; else empty."""
    given = [environ[name] for name in _KEPT if name in environ]
    if not given or not all(_is_number(value) for value in given):
        return ""
    return str(max(map(int, given)))


def _first_number(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    for name in names:
        value = environ.get(name, "")
        if _is_number(value):
            return value
    return ""


def _is_number(value: str) -> bool:
    return value.isascii() and value.isdigit() and len(value) <= _NUMBER_CHARACTERS


def _first_text(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    for name in names:
        value = one_line(environ.get(name, ""))
        if value and value != "none":
            return value
    return ""


def _pod(environ: Mapping[str, str]) -> str:
    """The name that the downward API gave; else the host name, which is the pod's unless hostNetwork is used."""
    named = _first_text(environ, _POD)
    if named or "KUBERNETES_SERVICE_HOST" not in environ:
        return named
    return _first_text(environ, ("HOSTNAME",))


def one_line(text: str) -> str:
    """The text as a value of the agent protocol: no control characters, not too long, valid UTF-8."""
    clean = "".join(char if char.isprintable() else " " for char in text[:_TEXT_CHARACTERS])
    return clean.encode("utf-8", "replace").decode().strip()
