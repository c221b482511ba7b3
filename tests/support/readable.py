"""Python for everybody: on a host whose Python lies in a closed home directory (pyenv's of root, for example).

A daemon for all users does not start there. `command()` runs it in a mount namespace of its own in which that
directory is empty but for the installation, and open.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from functools import cache
from pathlib import Path

from profd.kernel.identity import unreadable

NOBODY = 65534

_SCRIPT = """
set -e
held=$(mktemp -d)
mount --bind "$1" "$held"
mount -t tmpfs -o mode=0755 none "$2"
mkdir -p "$1"
mount --move "$held" "$1"
rmdir "$held"
shift 2
exec "$@"
"""


@cache
def why_not() -> str:
    """Why no worker of another uid can be had here: a sentence, or empty."""
    if os.geteuid() != 0:
        return "another uid takes root"
    if not unreadable(NOBODY, NOBODY):
        return ""
    tried = shutil.which("unshare") and _closed() not in (None, Path("/"), Path("/tmp"))
    if not tried or subprocess.run(command("true"), capture_output=True, check=False).returncode:
        return f"uid {NOBODY} cannot read {unreadable(NOBODY, NOBODY)}, and no mount namespace of ours can change that"
    return ""


def command(*words: str) -> list[str]:
    """The same command where uid 65534 can run our Python."""
    closed = _closed()
    if closed is None:
        return [*words]
    return [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        _SCRIPT,
        "sh",
        sys.base_prefix,
        str(closed),
        *words,
    ]


def _closed() -> Path | None:
    """The first directory above the installation that others cannot pass."""
    for folder in reversed(Path(sys.base_prefix).resolve().parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            return folder
    return None
