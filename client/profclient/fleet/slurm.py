"""Jobs of Slurm from outside: which nodes one has, and the command that reaches a node with the job's rights.

Tried with 22.05. `--overlap` (20.11 and later) lets a step share what the job's own steps hold.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from profclient.errors import NotFoundError, UnreachableError, UsageError
from profclient.text import printable

ANSWER_SECONDS: Final = 30.0
FANOUT: Final = 16  # steps that are made at once: each is a few questions to the controller
_ID: Final = re.compile(r"\d{1,10}(?:_\d{1,10})?", re.ASCII)
_STEP: Final = (
    "srun --jobid {job} --overlap --nodes=1 --ntasks=1 --nodelist {{host}} --mem=0 --gres=none --cpu-bind=none "
    "--mpi=none --quiet"
)
_KEPT: Final = "SLURM_CONF"


@dataclass(frozen=True, slots=True)
class Job:
    """A running job: its raw id, which its tasks have in their environment, and its nodes as Slurm writes them."""

    id: str
    nodes: str


def job(name: str) -> Job:
    """The job of this id (`4711`, or `4711_3` of an array). Raises ClientError."""
    if not _ID.fullmatch(name):
        raise UsageError(f"{name!r} is no id of a Slurm job: 4711, or 4711_3 for a task of an array.")
    asked = ["squeue", "--noheader", "--jobs", name, "--format=%A|%i|%T|%N"]
    try:
        done = subprocess.run(
            asked, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=ANSWER_SECONDS
        )
    except OSError as error:
        raise UnreachableError(f"squeue cannot be run ({error.strerror}): is this a node of the cluster?") from error
    except subprocess.TimeoutExpired as error:
        raise UnreachableError(f"Slurm's controller has not answered squeue for {ANSWER_SECONDS:g} s.") from error
    if done.returncode and "Invalid job id" not in done.stderr:
        raise UnreachableError(f"squeue failed: {printable(' '.join(done.stderr.split())[:500])}")
    return answered(name, done.stdout)


def answered(name: str, text: str) -> Job:
    """The job in squeue's lines. NotFoundError where it does not run, UsageError where several do."""
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == 3]
    running = [row for row in rows if row[2] == "RUNNING"]
    if len(running) > 1:
        some = ", ".join(printable(row[1]) for row in running[:4])
        raise UsageError(f"{name} is an array of which {len(running)} tasks run ({some}); name one of them.")
    if not running:
        states = ", ".join(sorted({printable(row[2]) for row in rows})) or "not in the queue"
        raise NotFoundError(f"Slurm's job {name} does not run: {states}. Steps can join running jobs only.")
    return Job(running[0][0], running[0][3])


def via(job_id: str, environ: Iterable[str]) -> str:
    """The command that reaches `{host}` within the job. What the shell's own job left in the environment stays out."""
    own = sorted(name for name in environ if name.startswith(("SLURM_", "SRUN_")) and name != _KEPT)
    unset = "".join(f" -u {name}" for name in own if name.replace("_", "").isalnum())
    step = _STEP.format(job=job_id)
    return f"env{unset} {step}" if unset else step
