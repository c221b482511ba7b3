"""Where the daemon listens: `PROFD_ADDRESS`, else the first socket that exists."""

from __future__ import annotations

import os
from pathlib import Path

from profclient.errors import UnreachableError

SYSTEM_SOCKET = Path("/run/profd/profd.sock")


def user_socket() -> Path:
    """The socket of `profd --user` for this uid."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        return Path(runtime) / "profd" / "profd.sock"
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local" / "state"
    return base / "profd" / "profd.sock"


def candidates() -> list[Path]:
    """Sockets to try, best first. An address that was given is the only one."""
    given = os.environ.get("PROFD_ADDRESS", "")
    if given:
        return [Path(given.removeprefix("unix:"))]
    return [user_socket(), SYSTEM_SOCKET]


def find() -> Path:
    """The daemon's socket. Raises UnreachableError naming where it was looked for."""
    looked = candidates()
    for path in looked:
        if path.exists():
            return path
    places = " or ".join(str(path) for path in looked)
    raise UnreachableError(
        f"no profd listens at {places}.\n"
        "Start one with `profd --user`, or name it with PROFD_ADDRESS=unix:/path/profd.sock."
    )
