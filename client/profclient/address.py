"""Where the daemon listens: `PROFD_ADDRESS`, else the first socket that exists.

Imported in targets, when they attach: it brings nothing along.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

SYSTEM_SOCKET = "/run/profd/profd.sock"


def user_socket() -> str:
    """The socket of `profd --user` for this uid."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime):
        return os.path.join(runtime, "profd", "profd.sock")
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "profd", "profd.sock")


def candidates() -> list[str]:
    """Sockets to try, best first. An address that was given is the only one."""
    given = os.environ.get("PROFD_ADDRESS", "")
    if given:
        return [given.removeprefix("unix:")]
    return [user_socket(), SYSTEM_SOCKET]


def of_agents(address: str | None = None) -> list[str]:
    """Sockets for agents, each beside one of the daemon's: of this address, else of `candidates()`."""
    given = [address.removeprefix("unix:")] if address else candidates()
    return [os.path.join(os.path.dirname(path), "agent.sock") for path in given]


def find() -> Path:
    """The daemon's socket. Raises UnreachableError naming where it was looked for."""
    from pathlib import Path

    from profclient.errors import UnreachableError

    looked = candidates()
    for path in looked:
        if os.path.exists(path):
            return Path(path)
    places = " or ".join(looked)
    raise UnreachableError(
        f"no profd listens at {places}.\n"
        "Start one with `profd --user`, or name it with PROFD_ADDRESS=unix:/path/profd.sock."
    )
