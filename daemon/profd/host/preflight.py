"""`profd --check`: whether a daemon with these settings would start here. Reads only: makes and takes nothing."""

from __future__ import annotations

import errno
import grp
import http.client
import os
import socket
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profd.capture.switch import Switch
from profd.disk.amounts import amount
from profd.errors import BadInput, ProfdError
from profd.host.config import Config
from profd.host.doctor import Finding, tried
from profd.host.groups import gid_of
from profd.host.instance import check_one_filesystem, check_ours, listener
from profd.kernel import identity
from profd.kernel.capabilities import effective
from profd.kernel.privileges import how_to_grant, missing, told
from profd.limits import DISK_FREE_SHARE_MIN

_ANSWER_SECONDS: Final = 2.0
_PAGE_BYTES_MAX: Final = 1 << 20  # of metrics that are read
_OURS: Final = b"profd_build_info"  # in the metrics of a profd


@dataclass(frozen=True, slots=True)
class Preflight:
    """The checks of one start. Blocking."""

    config: Config
    status: Path = Path("/proc/self/status")

    def findings(self) -> list[Finding]:
        """All of them. `problem`: the daemon would not start, or not with this setting."""
        config = self.config
        checks: dict[str, Callable[[], Finding]] = {
            "daemon": self._daemon,
            "privileges": self._privileges,
            "worker user": self._worker_user,
            "admin group": lambda: _group("admin_group", config.admin_group, "root only"),
            "socket group": lambda: _group("socket_group", config.socket_group, "everybody may connect"),
            "state directory": self._state_directory,
            "disk": self._disk,
            "socket directory": lambda: _folder("socket directory", config.socket.parent),
            "grpc socket": lambda: _socket("grpc socket", config.socket),
            "control socket": lambda: _socket("control socket", config.control),
            "agent socket": lambda: _socket("agent socket", config.agents),
            "kineto sockets": lambda: _folder("kineto sockets", config.kineto_socket_dir),
            "metrics": self._metrics,
            "captures": self._switch,
        }
        return [tried(name, check) for name, check in checks.items()]

    def _daemon(self) -> Finding:
        pid = self._running()
        if pid is None:
            return Finding("daemon", "ok", f"none serves {self.config.socket} now")
        return Finding("daemon", "ok", f"pid {pid} serves {self.config.socket} now")

    def _running(self) -> int | None:
        """The pid of the process that serves our control socket; None: there is none, or we may not know."""
        try:
            return listener(self.config.control) or None
        except OSError:
            return None

    def _privileges(self) -> Finding:
        if self.config.user:
            return Finding("privileges", "ok", f"none are needed: serves uid {os.geteuid()} only")
        if os.geteuid() != 0:
            return Finding(
                *("privileges", "problem", f"uid {os.geteuid()} is not root, which a daemon for every user takes"),
                "run it as root, or as `profd --user` for your own processes",
            )
        held = effective(self.status.read_text(encoding="ascii", errors="replace"))
        lacking = missing(held, started=not self.config.kineto_sender_filter) if held is not None else []
        if not lacking:
            return Finding("privileges", "ok", "root, with every capability of docs/security.md")
        verdict = "problem" if any(privilege.needed for privilege in lacking) else "warning"
        return Finding("privileges", verdict, told(lacking), how_to_grant(lacking))

    def _worker_user(self) -> Finding:
        if self.config.user or os.geteuid() != 0:
            return Finding("worker user", "ok", "workers keep the daemon's uid")
        try:
            chosen = identity.choose(self.config.worker_user)
        except BadInput as error:
            why, fix = _halves(error)
            return Finding("worker user", "problem", why, fix)
        return Finding("worker user", "ok", f"{chosen.name} (uid {chosen.uid}) can read profd and its Python")

    def _state_directory(self) -> Finding:
        path = self.config.state_dir
        finding = _folder("state directory", path)
        if finding.verdict == "ok" and path.is_dir():
            try:
                check_ours(path)
                check_one_filesystem(path)
            except BadInput as error:
                return Finding("state directory", "problem", *_halves(error))
        return finding

    def _disk(self) -> Finding:
        path = next(folder for folder in (self.config.state_dir, *self.config.state_dir.parents) if folder.is_dir())
        found = os.statvfs(path)
        free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        detail = f"{amount(free)} of {amount(total)} free"
        if free < total * DISK_FREE_SHARE_MIN:
            fix = f"free space: new captures are refused below {DISK_FREE_SHARE_MIN:.0%}"
            return Finding("disk", "warning", detail, fix)
        bound = self.config.store_bytes
        if bound is not None and bound > total:
            fix = "lower store_bytes, or give the state directory a larger filesystem"
            return Finding("disk", "warning", f"{detail}; store_bytes allows {amount(bound)}", fix)
        return Finding("disk", "ok", detail)

    def _metrics(self) -> Finding:
        if self.config.metrics is None:
            return Finding("metrics", "ok", "off")
        host, port = self.config.metrics
        where = f"{host}:{port}"
        try:
            _try_to_bind(host, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and self._running() is not None and _is_ours(host, port):
                return Finding("metrics", "ok", f"{where}, served by a profd now")
            verdict = "problem" if self.config.metrics_asked_for else "warning"
            fix = "stop what listens there (ss -ltnp), or choose another address with `metrics`"
            return Finding("metrics", verdict, f"{where}: {error.strerror or error}", fix)
        return Finding("metrics", "ok", f"{where} is free")

    def _switch(self) -> Finding:
        why = Switch(self.config.disabled_file).why_disabled()
        if why is None:
            return Finding("captures", "ok", "allowed")
        return Finding(
            "captures", "warning", f"switched off: {why}", f"profctl enable, or rm {self.config.disabled_file}"
        )


def findings(config: Config) -> list[Finding]:
    """The findings of `profd --check`."""
    return Preflight(config).findings()


def _group(setting: str, group: str, default: str) -> Finding:
    name = setting.replace("_", " ")
    try:
        gid = gid_of(setting, group)
    except BadInput as error:
        why, fix = _halves(error)
        return Finding(name, "problem", why, fix)
    if gid is None:
        return Finding(name, "ok", f"none: {default}")
    members = grp.getgrgid(gid).gr_mem
    return Finding(name, "ok", f"{group} (gid {gid}), {len(members)} members beside those whose first group it is")


def _folder(name: str, path: Path) -> Finding:
    """Whether the folder exists or can be made, and can be written to."""
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    if not there.is_dir():
        fix = f"remove {there} or move it away, or choose another path"
        return Finding(name, "problem", f"{there} is not a directory", fix)
    if not os.access(there, os.W_OK | os.X_OK):
        return Finding(name, "problem", f"{there} cannot be written", "check its owner and mode, and its mount")
    if there != path:
        return Finding(name, "ok", f"{path} will be made")
    found = there.stat()
    return Finding(name, "ok", f"{path}, mode {stat.S_IMODE(found.st_mode):o}, uid {found.st_uid}")


def _socket(name: str, path: Path) -> Finding:
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return Finding(name, "ok", f"{path} will be made")
    except OSError as error:
        return Finding(name, "problem", f"{path}: {error.strerror}", "check the owner and mode of its directory")
    if not is_socket:
        return Finding(name, "problem", f"{path} is not a socket", "remove it, or choose another --socket")
    holder = listener(path)
    served = f"pid {holder or 'unknown'} listens there" if holder is not None else "a leftover, to be replaced"
    return Finding(name, "ok", f"{path}: {served}")


def _halves(error: ProfdError) -> tuple[str, str]:
    """The problem and the fix: the sentences of an error."""
    why, _, fix = str(error).partition(". ")
    return why, fix.rstrip(".")


def _try_to_bind(host: str, port: int) -> None:
    """Raises OSError where the metrics could not be served there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the daemon does
        sock.bind((host, port))
        sock.listen()


def _is_ours(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", "/metrics")
        return _OURS in connection.getresponse().read(_PAGE_BYTES_MAX)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
