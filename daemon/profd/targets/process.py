"""A process as the daemon sees it."""

from __future__ import annotations

from dataclasses import dataclass, field

from profd.targets.user_namespaces import Asker, UserNamespace


@dataclass(frozen=True, slots=True, order=True)
class ProcessId:
    """Host pid and start time (clock ticks since boot, field 22 of /proc/PID/stat).

    The pair names one process for ever; a pid alone is used again.
    """

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class Process:
    """A process at one moment, by /proc. Its strings are hostile until printed safely."""

    id: ProcessId
    ppid: int
    uid: int
    gid: int
    user: str
    command: str  # the command line, arguments joined by spaces, cut at 4096 characters, printable
    name: str = ""  # that the kernel shows to everybody, printable
    executable: str = ""  # /proc/PID/exe, empty when unreadable
    environ: dict[str, str] = field(default_factory=dict)  # only the variables named in targets/environ.py
    rank: int | None = None
    job: str = ""
    gpus: tuple[int, ...] = ()
    framework: str = ""  # torch, jax, tensorflow, cuda, python or empty
    importing: bool = False  # its libraries are there, and its agent has not told yet that the import is over
    python: bool = False
    torch_version: str = ""  # where it can be told without touching the process
    cuda: bool = False  # libcuda is mapped
    xla: bool = False  # libraries of JAX or TensorFlow are mapped, whatever else is
    namespace_pids: tuple[int, ...] = ()  # NSpid, outermost first
    private: bool = False  # not dumpable, or with capabilities: the kernel keeps even its user from looking into it
    user_namespace: UserNamespace | None = None  # one that is not ours: not all of its user may look into it
    asker: Asker | None = None  # whose request it is about, where that matters
    unrestricted: bool = False  # asked for by root or an admin, from whom nothing is private
    unread: str = ""  # why what is said of its libraries and its environment may be less than there is
    stopped: bool = False  # T state
    zombie: bool = False
