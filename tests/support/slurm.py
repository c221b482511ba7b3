"""A real Slurm cluster of this one machine, in a directory of its own: munged, slurmctld and slurmd.

with one_node_cluster() as cluster:
    cluster.srun("-n2", "python", "train.py")

`cluster_of("n1", "n2")` has several nodes of other names, where Slurm was built for that (Debian's is); `files` are put
beside slurm.conf, and `more` are lines of it. With `apart` each node has namespaces of its own (`slurm_nodes`).
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from tests.support import slurm_nodes
from tests.support.ports import free_ports
from tests.support.waiting import until

STOP_SECONDS = 60.0
_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_TASKS = 4

_CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/node-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=bf_interval=1
TCPTimeout=1
{more}
SlurmdParameters=config_overrides
{nodes}
FirstJobId={first_job}
PartitionName=main Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:{tasks}
"""


def missing() -> list[str]:
    """Its programs that this machine lacks."""
    return [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]


class Cluster:
    """Where it is configured, and what runs in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "PATH": _PATH, "SLURM_CONF": str(self._folder / "slurm.conf")}

    def srun(self, *arguments: str, environ: Mapping[str, str]) -> subprocess.Popen[str]:
        """A job; its tasks write to one pipe and end when this process is killed."""
        return subprocess.Popen(
            ["srun", "--overcommit", *arguments],
            env={**environ, **self.environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )

    def asked(self, *command: str) -> str:
        """What a command of Slurm's prints; AssertionError where it fails."""
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def asked_of_controller(self, kind: str) -> int:
        """How often the controller was asked for this, such as JOB_STEP_CREATE."""
        counted = re.search(rf"REQUEST_{kind} .*count:(\d+)", self.asked("sdiag"))
        return int(counted[1]) if counted else 0

    def node(self, name: str) -> slurm_nodes.Node:
        """One of those that are apart."""
        return slurm_nodes.Node(name, self._nodes[name], self.environ)

    def lose(self, node: str) -> None:
        """The node's slurmd is gone, and the controller does not know. What ran there is gone where nodes are apart."""
        self._nodes[node].kill()
        self._nodes[node].wait()

    def is_ready(self) -> bool:
        asked = ["sinfo", "--noheader", "--format=%t"]
        return subprocess.run(asked, env=self.environ, capture_output=True, text=True).stdout.strip() == "idle"


def one_node_cluster() -> AbstractContextManager[Cluster]:
    """One whose node has this machine's name."""
    return cluster_of(_host())


@contextmanager
def cluster_of(
    *nodes: str, more: str = "", files: Mapping[str, str] | None = None, apart: bool = False
) -> Iterator[Cluster]:
    """Started, with its nodes idle; all of it gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="pd-", dir="/tmp"))  # socket paths hold 107 bytes
    cluster = Cluster(folder)
    try:
        _configure(folder, nodes, more)
        for name, text in (files or {}).items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        with ExitStack() as running:
            munge = ["munged", "--foreground", "--force", f"--key-file={folder}/munge.key"]
            munge += [f"--{name}={folder}/munge.{end}" for name, end in _MUNGE_FILES.items()]
            daemons = [["slurmd", "-D", *(["-N", node] if node != _host() else [])] for node in nodes]
            if apart:
                daemons = [slurm_nodes.apart(node, command) for node, command in zip(nodes, daemons, strict=True)]
            for number, command in enumerate((munge, ["slurmctld", "-D", "-c"], *daemons)):
                log = folder / f"{command[0]}-{number}.log"
                process = running.enter_context(_running(command, cluster.environ, log))
                if apart and command in daemons:
                    running.callback(process.kill)  # unshare ignores SIGTERM while it has a child
                if command in daemons:
                    cluster._nodes[nodes[number - 2]] = process
                if command is munge:
                    until((folder / "munge.sock").exists, "munged listens")
            until(cluster.is_ready, f"Slurm's nodes are idle; its logs are in {folder}")
            yield cluster
    finally:
        _end_steps(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _end_steps(folder: Path) -> None:
    """Those of a node that was lost outlive its slurmd, with their tasks."""
    names = {f"slurmstepd: [{step.name.rpartition('_')[2]}]" for step in folder.glob("spool-*/*_*.*")}
    for entry in Path("/proc").glob("[0-9]*") if names else ():
        with contextlib.suppress(OSError):
            if (entry / "cmdline").read_bytes().decode(errors="replace").strip("\0 ") in names:
                for pid in [*_children(entry), int(entry.name)]:
                    os.kill(pid, signal.SIGKILL)


def _children(entry: Path) -> list[int]:
    return [int(pid) for task in entry.glob("task/*/children") for pid in task.read_text().split()]


_MUNGE_FILES = {"socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}


def _host() -> str:
    return socket.gethostname().partition(".")[0]


def _configure(folder: Path, nodes: Sequence[str], more: str) -> None:
    folder.chmod(0o755)  # munge's socket has to be open to all
    for name in ("state", *(f"spool-{node}" for node in nodes)):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(1024))
    controller_port, *ports = free_ports(1 + len(nodes))
    host = _host()
    text = _CONFIGURATION.format(
        host=host,
        nodes="\n".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={os.cpu_count()} State=UNKNOWN"
            for node, port in zip(nodes, ports, strict=True)
        ),
        folder=folder,
        more=more.format(folder=folder),
        user=getpass.getuser(),
        tasks=_TASKS,
        first_job=os.getpid() * 100,  # daemons find jobs by their numbers, and see those of other clusters here
        controller_port=controller_port,
    )
    (folder / "slurm.conf").write_text(text)


@contextmanager
def _running(command: list[str], environ: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
