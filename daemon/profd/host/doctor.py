"""`profctl doctor`: checks of this host that bear on captures. Reads only."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from profd.disk.amounts import amount
from profd.gpu import pm_sampling
from profd.gpu.checks import GpuChecks
from profd.gpu.nvml import Nvml
from profd.host.config import Config
from profd.kernel import nobody
from profd.kernel.capabilities import effective
from profd.kernel.identity import WorkerIdentity
from profd.kernel.privileges import BPF, how_to_grant, missing, told
from profd.limits import DISK_FREE_SHARE_MIN, GiB
from profd.sources.kineto.senders import Senders
from profd.targets import delegation
from profd.trust.audit import AuditLog

_OURS: Final = frozenset(range(nobody.FIRST, nobody.FIRST + nobody.COUNT))
_LISTED: Final = 0o044  # by who is not its owner
_CAP_SYS_PTRACE: Final = 19
_HOST_PID_NAMESPACE: Final = 0xEFFFFFFC  # PROC_PID_INIT_INO, the same on every Linux


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: `verdict` is ok, warning or problem; `fix` is empty when ok."""

    name: str
    verdict: str
    detail: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Examiner:
    """The checks of one daemon. Blocking: run in a thread."""

    config: Config
    identity: WorkerIdentity
    audit: AuditLog
    nvml: Nvml
    proc: Path = Path("/proc")
    gpu: GpuChecks = field(default_factory=GpuChecks)
    observers: Callable[[], Mapping[str, int]] = dict  # builds by their state
    out_of_reach: Callable[[], str] = str  # why nobody can register in Kineto's directory, if so
    senders: Senders = field(default_factory=Senders)  # of Kineto's datagrams, as the kernel filters them

    def findings(self) -> list[Finding]:
        """All checks, in the order a person would make them."""
        checks = {
            "mode": self._mode,
            "capabilities": self._capabilities,
            "ptrace": self._ptrace,
            "processes": self._visible,
            "socket directory": self._socket_directory,
            "kineto sockets": self._kineto_directory,
            "kineto floods": self._floods,
            "uids of our children": self._children,
            "cgroups of our children": self._child_groups,
            "agent socket": self._agent_socket,
            "disk": self._disk,
            "store": self._store,
            "workers": self._workers,
            "clock": self._clock,
            "gpus": self._gpus,
            "cupti": lambda: Finding("cupti", *self.gpu.cupti()),
            "gpu counters": lambda: Finding("gpu counters", *self.gpu.counters(self.nvml.read().gpus)),
            "pm sampling": lambda: Finding("pm sampling", *pm_sampling.check(self.config.pm_sampling_us)),
            "observer builds": self._observer_builds,
            "gpu leases": lambda: Finding("gpu leases", *self.gpu.held()),
        }
        return [tried(name, check) for name, check in checks.items()]

    def _mode(self) -> Finding:
        if self.config.user:
            return Finding("mode", "ok", f"serves uid {os.geteuid()} only, without privileges")
        if os.geteuid() != 0:
            return Finding(
                "mode", "warning", "not root: sees only its own processes", "start it as root, or with --user"
            )
        return Finding("mode", "ok", "root: serves every user of the host")

    def _capabilities(self) -> Finding:
        """Capabilities of a daemon for the whole host; a daemon for one user needs none."""
        held = effective(_read(self.proc / "self/status"))
        lacking = missing(held, started=True) if held is not None else []
        if self.config.user or os.geteuid() != 0 or not lacking:
            return Finding("capabilities", "ok", "all that this mode needs")
        verdict = "problem" if any(privilege.needed for privilege in lacking) else "warning"
        return Finding("capabilities", verdict, told(lacking), how_to_grant(lacking))

    def _ptrace(self) -> Finding:
        scope = _read(self.proc / "sys/kernel/yama/ptrace_scope")
        if scope in ("", "0"):
            return Finding("ptrace", "ok", "a process may be sampled by its owner")
        if scope != "3" and self._has_ptrace():
            return Finding("ptrace", "ok", f"ptrace_scope is {scope}, and the daemon has CAP_SYS_PTRACE")
        return Finding(
            "ptrace",
            "warning",
            f"kernel.yama.ptrace_scope is {scope}: samples of processes that are not our children are refused",
            self._ptrace_fix(scope),
        )

    def _ptrace_fix(self, scope: str) -> str:
        if scope == "3":
            return "only a reboot lowers 3"
        other = (
            "run profd as root" if self.config.user or os.geteuid() != 0 else "give it CAP_SYS_PTRACE (capabilities)"
        )
        return f"sysctl kernel.yama.ptrace_scope=0, or {other}"

    def _has_ptrace(self) -> bool:
        return bool((effective(_read(self.proc / "self/status")) or 0) >> _CAP_SYS_PTRACE & 1)

    def _visible(self) -> Finding:
        pids = [name for name in os.listdir(self.proc) if name.isdigit()]
        others = sum(1 for pid in pids if _owner(self.proc / pid) not in (None, os.geteuid()))
        detail = f"{len(pids)} processes can be seen, {others} of other users"
        if not self.config.user and (self.proc / "self/ns/pid").stat().st_ino != _HOST_PID_NAMESPACE:
            return Finding("processes", "warning", detail, "run profd in the host's pid namespace (hostPID: true)")
        return Finding("processes", "ok", detail)

    def _socket_directory(self) -> Finding:
        path = self.config.socket.parent
        mode = stat.S_IMODE(path.stat().st_mode)
        if path == self.config.kineto_socket_dir and not self.out_of_reach():
            return Finding("socket directory", "ok", f"{path}, judged as that of the kineto sockets")
        if not self.config.user and mode & _LISTED:
            return Finding(
                "socket directory",
                "warning",
                f"{path} has mode {mode:o}: a user who lists it may keep its lock, and profd from ending and beginning",
                f"chmod {mode & ~_LISTED:o} {path}, unless others need it; then another --socket",
            )
        return Finding("socket directory", "ok", f"{path}, mode {mode:o}")

    def _kineto_directory(self) -> Finding:
        path = self.config.kineto_socket_dir
        if why := self.out_of_reach():
            return Finding("kineto sockets", "problem", why, "until then: --source sdk or pyspy, or abstract sockets")
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError as error:
            return Finding(
                "kineto sockets", "warning", f"{path}: {error.strerror}", "restart profd; it makes the directory"
            )
        wanted = 0o700 if self.config.user else 0o1733
        if mode & wanted != wanted:
            return Finding("kineto sockets", "problem", f"{path} has mode {mode:o}", f"chmod {wanted:o} {path}")
        if not self.config.user and mode & _LISTED:
            return Finding(
                "kineto sockets",
                "warning",
                f"{path} has mode {mode:o}: a user who lists it may keep its lock, and profd from binding there",
                f"chmod {wanted:o} {path}; mode={wanted:o} where it is mounted",
            )
        if not self.config.user and path.stat().st_dev == path.parent.stat().st_dev:
            return Finding(
                "kineto sockets",
                "warning",
                f"{path} is open to everybody and on the file system of {path.parent}, which can be filled by it",
                f"mount a small tmpfs at {path} (deploy/systemd/run-profd-kineto.mount)",
            )
        return Finding("kineto sockets", "ok", f"{path}, mode {mode:o}")

    def _children(self) -> Finding:
        """Other processes with a uid of our samplers, porters or streamers: they can signal ours."""
        pids = [int(name) for name in os.listdir(self.proc) if name.isdigit()]
        known = {pid: read for pid in pids if (read := _uids(self.proc / str(pid)))}
        ours = {pid for pid, (_, uids) in known.items() if uids & _OURS and not _descends(pid, known)}
        which = f"{nobody.FIRST} to {nobody.STREAMER}"
        if not self.config.user and ours:
            some = ", ".join(map(str, sorted(ours)[:5]))
            return Finding(
                "uids of our children",
                "warning",
                f"processes of others have uids of {which}, which are to be nobody's: {some}",
                "give them other uids; if they are another profd's, run one for each host",
            )
        return Finding("uids of our children", "ok", f"{which}: nobody else has them")

    def _child_groups(self) -> Finding:
        """What bounds samplers, builds and errands apart from the daemon."""
        name, found = "cgroups of our children", delegation.current()
        if self.config.user or os.geteuid() != 0:
            return Finding(name, "ok", "none: they are this user's, as the daemon is")
        if found.why_not:
            return Finding(
                name,
                "warning",
                f"none: samplers, builds and errands use the daemon's memory and tasks, since {found.why_not}",
                "run it by deploy/systemd/profd.service (Delegate=) on a host with cgroup v2",
            )
        told = ", ".join(f"{kind.value} {of.memory / GiB:.1f} GiB" for kind, of in found.bounds.items())
        return Finding(name, "ok", f"at most: {told}")

    def _floods(self) -> Finding:
        """Of datagrams at Kineto's sockets."""
        name, senders = "kineto floods", self.senders
        if senders.filter is not None:
            whose = "a process or a user" if senders.by_user else "a process (before Linux 6.16 not of a user)"
            return Finding(
                name,
                "ok",
                f"the kernel drops what {whose} sends beyond its share: {senders.dropped()} datagrams so far",
            )
        if not senders.why_not:
            return Finding(name, "ok", "not filtered by the kernel ([kineto] sender_filter): dropped when received")
        if self.config.user:
            return Finding(name, "ok", f"dropped when received: {senders.why_not}")
        return Finding(
            name,
            "warning",
            f"dropped when received, so that a flood keeps others' polls waiting: {senders.why_not}",
            f'{how_to_grant([BPF])}; a later Linux (6.18 does); or [kineto] sender_filter = "off"',
        )

    def _agent_socket(self) -> Finding:
        path = self.config.agents
        if not path.is_socket():
            return Finding(
                "agent socket",
                "problem",
                f"{path} is gone: processes that start now cannot attach",
                "restart profd; it makes the socket",
            )
        return Finding("agent socket", "ok", f"{path}, mode {stat.S_IMODE(path.stat().st_mode):o}")

    def _disk(self) -> Finding:
        found = os.statvfs(self.config.state_dir)
        free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        detail = f"{amount(free)} of {amount(total)} free under {self.config.state_dir}"
        if free < total * DISK_FREE_SHARE_MIN:
            share = f"{DISK_FREE_SHARE_MIN:.0%}"
            return Finding(
                "disk", "problem", detail, f"new captures are refused below {share}; free space or `profctl rm` traces"
            )
        return Finding("disk", "ok", detail)

    def _store(self) -> Finding:
        for path in (self.config.state_dir, self.audit.path):
            if not os.access(path, os.W_OK):
                return Finding("store", "problem", f"{path} cannot be written", "check its owner and mode")
        return Finding("store", "ok", f"{self.config.state_dir} can be written")

    def _workers(self) -> Finding:
        name = self.identity.name or "you, without capabilities, sockets or exec"
        return Finding("workers", "ok", f"run as {name}")

    def _clock(self) -> Finding:
        source = _read(self.proc.parent / "sys/devices/system/clocksource/clocksource0/current_clocksource")
        resolution = time.clock_getres(time.CLOCK_REALTIME)
        if resolution > 1e-6:
            return Finding(
                "clock", "warning", f"resolution {resolution:g} s ({source})", "use a high-resolution clocksource"
            )
        return Finding("clock", "ok", f"{source or 'unknown source'}, resolution {resolution * 1e9:.0f} ns")

    def _observer_builds(self) -> Finding:
        name, counts = "observer builds", self.observers()
        told = ", ".join(f"{number} {state}" for state, number in counts.items()) or "none was needed yet"
        if not self.config.build_observers:
            return Finding(name, "ok", "off ([torch] build): people build them, with profctl torch build")
        if not any(shutil.which(compiler) for compiler in ("c++", "g++", "clang++")):
            fix = "install a C++20 compiler, or build with profctl torch build --into where there is one"
            return Finding(name, "warning", f"no C++ compiler is on the daemon's PATH; {told}", fix)
        if counts.get("failed"):
            return Finding(name, "warning", told, "profctl torch list, as the user whose job it is, says why")
        return Finding(name, "ok", told)

    def _gpus(self) -> Finding:
        reading = self.nvml.read()
        if reading.lost:
            which = ", ".join(f"GPU {index} ({why})" for index, why in reading.lost.items())
            return Finding(
                "gpus", "problem", f"the driver cannot reach {which}", "look at dmesg for Xid errors; reset the GPU"
            )
        if reading.gpus:
            return Finding("gpus", "ok", f"{len(reading.gpus)}, driver {reading.driver}: metrics profd_gpu_*")
        nodes = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
        if nodes:
            return Finding(
                "gpus",
                "warning",
                f"{', '.join(nodes)} are there, but {reading.absent}: no profd_gpu_* metrics",
                "put libnvidia-ml.so.1 of the driver where profd finds it (in a container: the utility capability)",
            )
        return Finding("gpus", "ok", f"none: {reading.absent}")


def tried(name: str, check: Callable[[], Finding]) -> Finding:
    """The finding of a check. A check that cannot be made is a finding, too, and the others go on."""
    try:
        return check()
    except OSError as error:
        return Finding(name, "warning", f"cannot be checked: {error}", "look at the path that is named")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None


def _uids(folder: Path) -> tuple[int, frozenset[int]] | None:
    """(parent, uids) of a process; None where it has gone."""
    fields = dict(line.split(":", 1) for line in _read(folder / "status").splitlines() if ":" in line)
    try:
        return int(fields["PPid"]), frozenset(map(int, fields["Uid"].split()))
    except (KeyError, ValueError):
        return None


def _descends(pid: int, known: dict[int, tuple[int, frozenset[int]]]) -> bool:
    """Whether a process descends from this one."""
    seen: set[int] = set()
    while pid in known and pid not in seen:
        if pid == os.getpid():
            return True
        seen.add(pid)
        pid = known[pid][0]
    return False
