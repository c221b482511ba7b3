"""A host of its own for deploy/systemd/profd.service: a real systemd, the first process of namespaces, that runs it.

with systemd_host() as host:
    host.run("systemctl", "start", "profd")   # returns when profd is ready
    host.run("profctl", ...)                  # beside it

Everything of the unit holds as it stands there, but for what is started (this checkout's daemon) and where it logs. The
host's `/etc` is a copy, `/run` and `/var/lib` are empty, and no process of the machine is seen or reached.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import readable
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "deploy" / "systemd" / "profd.service"
MOUNT = UNIT.with_name("run-profd-kineto.mount")
SYSTEMD = Path("/lib/systemd/systemd")
WORKER = "profd-worker"
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)

# Not `--user`: the daemon of the whole host. `ExecStart=` empties the list before another is set.
_DROP_IN = """
[Unit]
DefaultDependencies=no
[Service]
ExecStart=
ExecStart={python} -m profd.main {flags}
ExecReload=
ExecReload={python} -m profd.main --check {flags}
{signals}
WorkingDirectory={root}
Environment=PATH={path}
StandardError=append:{log}
"""

_NAMESPACES = ("unshare", "--pid", "--mount", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child")
_BOOT = """
set -e
cd /
mount -t proc proc /proc
mount --bind /proc/sys /proc/sys  # systemd sets some of the machine's when it boots
mount -o remount,bind,ro /proc/sys
etc=$(mktemp -d)
mount -t tmpfs -o mode=755 none "$etc"
cp -a /etc/. "$etc"
mount --move "$etc" /etc
rmdir "$etc"
echo "$1:x:920:920::/:/usr/sbin/nologin" >> /etc/passwd
mount -t tmpfs -o mode=755 none /run
mount -t tmpfs -o mode=755 none /var/lib
umount /sys/fs/cgroup 2> /dev/null || :  # the kernel mounts none on itself
mount -t cgroup2 none /sys/fs/cgroup
exec env -i PATH="$PATH" container=profd-test SYSTEMD_UNIT_PATH="$2" "$3" \
    --system --unit=empty.target --log-target=console --log-level=warning --show-status=no
"""


@dataclass
class SystemdHost:
    """A booted one. `first` is its systemd's pid on this machine."""

    folder: Path
    first: int
    own: tuple[str, ...] = ()  # namespaces beside those that each has

    @property
    def log(self) -> str:
        """What profd has written."""
        log = self.folder / "log"
        return log.read_text() if log.exists() else ""

    def run(self, *command: str, seconds: float = 300.0) -> subprocess.CompletedProcess[str]:
        """A command of root's there, in this checkout, to its end."""
        enter = ["nsenter", "--target", str(self.first), "--mount", "--uts", "--ipc", "--pid", "--cgroup", *self.own]
        return subprocess.run(
            [*enter, f"--wd={ROOT}", *command], capture_output=True, text=True, check=False, timeout=seconds
        )


def why_not() -> str:
    """Why there can be none here: a sentence, or empty."""
    if not SYSTEMD.exists() or shutil.which("systemctl") is None:
        return "no systemd here (apt-get install systemd)"
    if why := readable.why_not():
        return why
    if _cgroups() is None:
        return "no cgroup2 file system is mounted"
    return ""


def bounds_children() -> bool:
    """Whether cgroups of v2 below the root have limits of memory and tasks here."""
    cgroups = _cgroups()
    return cgroups is not None and {"memory", "pids"} <= set((cgroups / "cgroup.subtree_control").read_text().split())


@contextmanager
def systemd_host(metrics: str = "off", network: bool = False) -> Iterator[SystemdHost]:
    """Booted, without profd yet. Skips the test where that cannot be had.

    `network`: it has one of its own, in which profd takes Kineto's abstract name, as by the unit.
    """
    cgroups = _cgroups()
    if cgroups is None or (why := why_not()):
        pytest.skip(why)
    folder = Path(tempfile.mkdtemp(prefix="pd-", dir="/tmp"))
    cgroup = cgroups / folder.name
    try:
        cgroup.mkdir()
        yield from _booted(folder, cgroup, metrics, network)
    finally:
        _remove(cgroup)
        shutil.rmtree(folder, ignore_errors=True)


def _booted(folder: Path, cgroup: Path, metrics: str, network: bool) -> Iterator[SystemdHost]:
    _write_units(folder, f"--metrics {metrics}" + ("" if network else " --no-kineto-abstract"))
    own = ("--net",) if network else ()
    boot = readable.command(
        *_NAMESPACES,
        *own,
        "--propagation",
        "private",
        "sh",
        "-c",
        _BOOT,
        "sh",
        WORKER,
        str(folder / "units"),
        str(SYSTEMD),
    )
    with (folder / "systemd.log").open("w") as log:
        outer = subprocess.Popen(
            boot,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: _enter(cgroup),
        )
    try:
        until(lambda: outer.poll() is not None or _child(outer.pid), "there is a first process")
        _leave(cgroup, outer.pid)
        until(lambda: outer.poll() is not None or _answers(outer.pid), "systemd answers")
        if outer.poll() is not None:
            pytest.skip(f"systemd does not run here: {(folder / 'systemd.log').read_text()[-500:]}")
        yield SystemdHost(folder, _child(outer.pid), own)
    finally:
        if first := _child(outer.pid):
            with suppress(ProcessLookupError):
                os.kill(first, signal.SIGKILL)  # and with it everything there
        outer.wait()


def _enter(cgroup: Path) -> None:
    """Of the child: what it starts is in that group, and gone with the thread that made it, however that ends."""
    (cgroup / "cgroup.procs").write_text(str(os.getpid()))
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _leave(cgroup: Path, outer: int) -> None:
    """Systemd cannot move it, and a cgroup with a process gives those below it no limits."""
    with suppress(OSError):  # it has ended
        (cgroup.parent / "cgroup.procs").write_text(str(outer))


def _write_units(folder: Path, flags: str) -> None:
    units = folder / "units"
    (units / f"{UNIT.name}.d").mkdir(parents=True)
    shutil.copy(UNIT, units)
    shutil.copy(MOUNT, units)
    (units / "empty.target").write_text("[Unit]\nDefaultDependencies=no\n")
    (units / f"{UNIT.name}.d" / "test.conf").write_text(
        _DROP_IN.format(
            python=sys.executable,
            root=ROOT,
            path=os.environ["PATH"],
            log=folder / "log",
            flags=flags,
            signals=UNIT.read_text().partition("--check\n")[2].partition("\n")[0],
        )
    )


def _answers(outer: int) -> bool:
    first = _child(outer)
    return bool(first) and Path(f"/proc/{first}/root/run/systemd/private").exists()


def _child(pid: int) -> int:
    """The only one, 0 where there is none."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    return int(children[0]) if children else 0


def _cgroups() -> Path | None:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(where)
    return None


def _remove(cgroup: Path) -> None:
    """Inner ones first; the kernel needs a moment to see the last process gone."""

    def removed() -> bool:
        for folder, _, _ in os.walk(cgroup, topdown=False):
            with suppress(OSError):
                os.rmdir(folder)
        return not cgroup.exists()

    until(removed, f"{cgroup} is empty")
