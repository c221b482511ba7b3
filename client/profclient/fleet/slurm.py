"""Jobs of Slurm from outside: which nodes one has, and the command that reaches its nodes with the job's rights.

Tried with 22.05. `--overlap` (20.11 and later) lets a step share what the job's own steps hold.
"""

from __future__ import annotations

import os
import re
import selectors
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from profclient.errors import ClientError, NotFoundError, UnreachableError, UsageError
from profclient.text import printable

ANSWER_SECONDS: Final = 30.0
ANSWER_BYTES_MAX: Final = 16 << 20  # a record of a job on 10,000 nodes has some 100 kB
_READ_BYTES: Final = 64 * 1024
UNASKED_SECONDS: Final = 5.0  # for a question that the user did not ask
_ID: Final = re.compile(r"\d{1,10}(?:[_+]\d{1,10})?", re.ASCII)
_COMPONENT: Final = re.compile(r"(\d{1,10})\+(\d{1,10})", re.ASCII)
_RECORD_ID: Final = re.compile(r"^JobId=(\d{1,10}) ", re.ASCII | re.MULTILINE)
_RECORD_STATE: Final = re.compile(r"^   JobState=(\w+)", re.ASCII | re.MULTILINE)
_RECORD_NODES: Final = re.compile(r"^   NodeList=(\S+)$", re.ASCII | re.MULTILINE)
_RECORD_TIMES: Final = re.compile(r"^   RunTime=(\S+) TimeLimit=(\S+)", re.ASCII | re.MULTILINE)
_TIME: Final = re.compile(r"(?:(\d{1,6})-)?(\d{1,2}):(\d{2}):(\d{2})", re.ASCII)
# One relay for each node; a node that fails, or a relay, ends no other.
_STEP: Final = (
    "srun --jobid {job}{component} --overlap --nodes={{count}} --ntasks={{count}} --ntasks-per-node=1 "
    "--nodelist={{hosts}} --mem=0 --gres=none --cpu-bind=none --mpi=none --no-kill --wait=0 "
    "--kill-on-bad-exit=0 --quiet"
)
_KEPT: Final = "SLURM_CONF"
# What srun takes for its own from the environment, and our plugin.
_OPTIONS: Final = ("SLURM_", "SRUN_", "SPANK_", "_SLURM_SPANK_", "USE_PROFD")
_UNFIT: Final = ("down", "fail", "unknown", "not_responding", "powered_down", "reboot")


@dataclass(frozen=True, slots=True)
class NodeList:
    """Nodes as Slurm writes them; of a component, where the job is heterogeneous."""

    nodes: str
    component: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A running job: the raw id, which its tasks have in their environment, and its nodes."""

    id: str
    parts: tuple[NodeList, ...]
    left_s: int | None = None  # until Slurm ends it; None: it does not, or is not known to


def here() -> str:
    """The name of this host in Slurm: a task is told, and a node has its host's name as a rule."""
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]


def job_elsewhere(name: str) -> Job | None:
    """The job of this id, if Slurm is here and runs it: a question that nobody asked for, and need not be answered.

    Raises UsageError where the id is that of several running jobs, UnreachableError where the controller is silent.
    """
    if not _ID.fullmatch(name) or shutil.which("scontrol") is None:
        return None
    try:
        return job(name, UNASKED_SECONDS)
    except NotFoundError:
        return None


def job(name: str, seconds: float = ANSWER_SECONDS) -> Job:
    """The job of this id (`4711`, `4711_3` of an array, `4711+1` a component). Raises ClientError."""
    if not _ID.fullmatch(name):
        raise UsageError(f"{name!r} is no id of a Slurm job: 4711, 4711_3 of an array, 4711+1 for a component.")
    # One question to the controller, where squeue asks for its partitions, too.
    if "+" not in name:
        said, _ = _asked("scontrol", "--local", "show", "job", name, seconds=seconds)
        if (found := of_record(said)) is not None:
            return found
    asked = ("squeue", "--local", "--all", "--noheader", "--jobs", name, "--format=%A|%i|%T|%N")
    said, error = _asked(*asked, seconds=seconds)
    if error and "Invalid job id" not in error:
        raise UnreachableError(f"squeue failed: {printable(' '.join(error.split())[:500])}")
    return answered(name, said)


def of_record(untrusted: str) -> Job | None:
    """The job of scontrol's record, if that is one and the job runs; None where squeue has to be asked.

    Names and comments are in it, as their owner wrote them: what is there twice is not believed.
    """
    found = [_only(pattern, untrusted) for pattern in (_RECORD_ID, _RECORD_STATE, _RECORD_NODES)]
    if "HetJobId=" in untrusted or not all(found) or found[1] != "RUNNING":
        return None
    return Job(found[0], (NodeList(found[2]),), _left_s(untrusted))


def _left_s(untrusted: str) -> int | None:
    times = _RECORD_TIMES.findall(untrusted)
    ran, limit = (_TIME.fullmatch(time) for time in times[0]) if len(times) == 1 else (None, None)
    return max(0, _seconds(limit) - _seconds(ran)) if ran and limit else None


def _seconds(time: re.Match[str]) -> int:
    days, hours, minutes, seconds = (int(part or 0) for part in time.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _only(pattern: re.Pattern[str], text: str) -> str:
    found: list[str] = pattern.findall(text)
    return found[0] if len(found) == 1 else ""


def answered(name: str, text: str) -> Job:
    """The job in squeue's lines. NotFoundError where it does not run, UsageError where several do."""
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == 3]
    if "+" in name:
        rows = [row for row in rows if row[1] == name]  # squeue names the other components, too
    running = [row for row in rows if row[2] == "RUNNING"]
    components = [_COMPONENT.fullmatch(row[1]) for row in running]
    if running and all(components):
        parts = tuple(NodeList(row[3], int(of[2])) for row, of in zip(running, components, strict=True) if of)
        leaders = {of[1] for of in components if of}
        if len(leaders) == 1:
            return Job(leaders.pop(), parts)
    if len(running) > 1:
        some = ", ".join(printable(row[1]) for row in running[:4])
        raise UsageError(f"{name} is an array of which {len(running)} tasks run ({some}); name one of them.")
    if not running:
        states = ", ".join(sorted({printable(row[2]) for row in rows})) or "not in the queue"
        raise NotFoundError(f"Slurm's job {name} does not run: {states}. Steps can join running jobs only.")
    return Job(running[0][0], (NodeList(running[0][3]),))


def via(job_id: str, part: NodeList) -> str:
    """The command that carries the relays of `{hosts}`, which are `{count}`, in one step of the job."""
    return _STEP.format(job=job_id, component="" if part.component is None else f" --het-group={part.component}")


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """That of a step: what the shell's own job left there is no business of it."""
    return {name: value for name, value in environ.items() if name == _KEPT or not name.startswith(_OPTIONS)}


async def unfit(hosts: Sequence[str]) -> dict[str, str]:
    """Which of these nodes are down, and the controller's word for it. Nothing where it does not say."""
    import asyncio  # here: the first question to the controller does not wait for it

    asked = ("sinfo", "--local", "--all", "--Node", "--noheader", "--nodes", ",".join(hosts), "--format=%N|%T")
    try:
        said, _ = await asyncio.to_thread(_asked, *asked)
    except ClientError:
        return {}
    rows = [line.split("|") for line in said.splitlines() if line.count("|") == 1]
    return {
        node: f"Slurm says that it is {printable(state)}"
        for node, state in rows
        if state.lower().startswith(_UNFIT) or state.endswith("*")
    }


def _asked(*command: str, seconds: float = ANSWER_SECONDS) -> tuple[str, str]:
    """What it printed, and what it said where it failed. Raises UnreachableError."""
    try:
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            try:
                said, error = _heard(process, command[0], time.monotonic() + seconds)
            finally:
                process.kill()
    except OSError as error:
        why = f"{command[0]} cannot be run ({error.strerror}): is this a node of the cluster?"
        raise UnreachableError(why) from error
    except subprocess.TimeoutExpired as error:
        why = f"Slurm's controller has not answered {command[0]} for {seconds:g} s."
        raise UnreachableError(why) from error
    return said, (error or f"exit code {process.returncode}") if process.returncode else ""


def _heard(process: subprocess.Popen[bytes], name: str, deadline: float) -> tuple[str, str]:
    """All that it says, to its end. Raises TimeoutExpired; UnreachableError where it says more than is kept."""
    found: dict[Any, bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as waiting:
        for pipe in found:
            waiting.register(pipe, selectors.EVENT_READ)
        while waiting.get_map():
            ready = waiting.select(max(0.0, deadline - time.monotonic()))
            if not ready or time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(name, 0)
            for key, _ in ready:
                if not (piece := os.read(key.fd, _READ_BYTES)):
                    waiting.unregister(key.fileobj)
                found[key.fileobj] += piece
                if len(found[key.fileobj]) > ANSWER_BYTES_MAX:
                    raise UnreachableError(f"{name} says more than {ANSWER_BYTES_MAX >> 20} MiB: no controller does.")
    process.wait(max(0.001, deadline - time.monotonic()))
    said, error = (bytes(one).decode(errors="replace") for one in found.values())
    return said, error
