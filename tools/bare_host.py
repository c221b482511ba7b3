"""A bare Debian in a folder, with a systemd of its own as its first process, for `tools/bare_root.py`.

Its processes, mounts, names and cgroups are its own. So is its loopback, where the services listen; commands are in the
machine's network, and can download.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None)
_BOOT_SECONDS: Final = 120.0
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NAMESPACES: Final = ("--pid", "--mount", "--uts", "--ipc", "--net", "--cgroup", "--fork", "--kill-child")

# $1 is the folder of the Debian; the others are folders of the machine that it sees, too.
_BOOT: Final = """
set -e
cd "$1"; shift
mount --bind . . && cd "$PWD"
for folder in "$@"; do
  mkdir -p ".$folder"
  mount --bind "$folder" ".$folder" && mount -o remount,bind,ro ".$folder"
done
hostname bare
mount -t proc proc proc
mount --bind proc/sys proc/sys && mount -o remount,bind,ro proc/sys  # systemd sets some of the machine's when it boots
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 none sys/fs/cgroup
mount -t tmpfs -o mode=755 none run
mount -t tmpfs -o mode=755 none dev
for node in null zero full random urandom tty; do : > dev/$node; mount --bind /dev/$node dev/$node; done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666,mode=620 none dev/pts
mount -t tmpfs none dev/shm -o mode=1777
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s /proc/self/fd/0 dev/stdin; ln -s /proc/self/fd/1 dev/stdout; ln -s /proc/self/fd/2 dev/stderr
pivot_root . mnt
exec env -i PATH="$PATH" container=bare chroot . sh -c 'umount -l /mnt; exec /lib/systemd/systemd'
"""


class Failed(Exception):
    """A command there, or the boot; str() says which."""


@dataclass
class BareHost:
    """A booted one. `first` is its systemd's pid on this machine."""

    root: Path
    first: int

    def run(self, user: str, script: str, *, loopback: bool = False) -> None:
        """Commands of a user, each shown with its output, up to the first that fails. Raises Failed then.

        `loopback`: with the services' one, and without a network.
        """
        done = subprocess.run(
            [*self._command(user, loopback), f"set -ex\n{script}"], stdin=subprocess.DEVNULL, check=False
        )
        if done.returncode:
            raise Failed(f"{user}: exit code {done.returncode} of the last command shown")

    def output(self, user: str, script: str) -> str:
        """What commands of a user print, unshown. Raises Failed when one fails."""
        command = [*self._command(user, loopback=False), f"set -e\n{script}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"{user}: {script}: {done.stderr.strip()}")
        return done.stdout

    def _command(self, user: str, loopback: bool) -> list[str]:
        spaces = ["--mount", "--uts", "--ipc", "--pid", "--cgroup", *(["--net"] if loopback else [])]
        enter = ["nsenter", "--target", str(self.first), *spaces, "--wd=/"]
        environ = ["env", "-i", f"PATH={_PATH}", "TERM=dumb", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]
        return [
            *enter,
            *environ,
            "su",
            "--shell",
            "/bin/bash",
            "--whitelist-environment",
            "LANG,DEBIAN_FRONTEND",
            "-",
            user,
            "-c",
        ]


def install(root: Path, mirror: str) -> None:
    """A minimal Debian 12 with systemd. Raises Failed."""
    packages = "--include=systemd,systemd-sysv,ca-certificates"
    command = ["debootstrap", "--variant=minbase", packages, "bookworm", str(root), mirror]
    if subprocess.run(command, check=False).returncode:
        raise Failed(f"debootstrap failed; {root}/debootstrap/debootstrap.log says why")
    (root / "etc/apt/apt.conf.d/90yes").write_text('APT::Get::Assume-Yes "true";\n')


@contextmanager
def booted(root: Path, folders: list[str]) -> Iterator[BareHost]:
    """The Debian in a folder, with these folders of the machine, read-only. Raises Failed: systemd does not start."""
    cgroups = _cgroups()
    if cgroups is None:
        raise Failed("no cgroup2 file system is mounted")
    cgroup = cgroups / f"bare-{os.getpid()}"
    cgroup.mkdir()
    try:
        boot = ["unshare", *_NAMESPACES, "--propagation", "private", "sh", "-c", _BOOT, "sh", str(root), *folders]
        outer = subprocess.Popen(boot, stdin=subprocess.DEVNULL, preexec_fn=lambda: _enter(cgroup))
        try:
            yield _first(root, outer, cgroup)
        finally:
            if child := _child(outer.pid):
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)  # and with it everything there
            outer.wait()
    finally:
        _remove(cgroup)


def _first(root: Path, outer: subprocess.Popen[bytes], cgroup: Path) -> BareHost:
    """Once systemd has started what it starts. Raises Failed."""
    deadline = time.monotonic() + _BOOT_SECONDS
    while time.monotonic() < deadline and outer.poll() is None:
        child = _child(outer.pid)
        if child and Path(f"/proc/{child}/root/run/systemd/private").exists():
            # A cgroup with a process gives those below it no limits, and systemd cannot move this one.
            (cgroup.parent / "cgroup.procs").write_text(str(outer.pid))
            return BareHost(root, child)
        time.sleep(0.1)
    raise Failed("systemd does not start there")


def _enter(cgroup: Path) -> None:
    """Of the child: it is in that group, and ends with the thread that made it, however that ends."""
    (cgroup / "cgroup.procs").write_text(str(os.getpid()))
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


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
    deadline = time.monotonic() + _BOOT_SECONDS
    while cgroup.exists() and time.monotonic() < deadline:
        for folder, _, _ in os.walk(cgroup, topdown=False):
            with suppress(OSError):
                os.rmdir(folder)
        time.sleep(0.05)
