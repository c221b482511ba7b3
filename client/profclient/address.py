"""The address of the daemon: `PROFD_ADDRESS`, else the first socket that exists.

Imported in targets, when they attach: it brings nothing along.
"""

from __future__ import annotations

import os

from profclient.owners import is_ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

SYSTEM_SOCKET = "/run/profd/profd.sock"


def user_socket() -> str:
    """The socket of `profd --user` for this uid; empty where that would lie in a folder of somebody else's.

    `su` and `sudo` can leave root with the variables of whoever called them: what listens there is that user's, and
    would be given what root's processes record.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime) and is_ours(runtime):
        return os.path.join(runtime, "profd", "profd.sock")
    given, home = os.environ.get("XDG_STATE_HOME"), os.path.expanduser("~")
    if not is_ours(given or home):
        return ""
    return os.path.join(given or os.path.join(home, ".local", "state"), "profd", "profd.sock")


def candidates() -> list[str]:
    """Sockets to try, best first. An address that was given is the only one."""
    given = os.environ.get("PROFD_ADDRESS", "")
    if given:
        return [given.removeprefix("unix:")]
    own = user_socket()
    return [own, SYSTEM_SOCKET] if own else [SYSTEM_SOCKET]


def of_agents(address: str | None = None) -> list[str]:
    """Sockets for agents, each beside one of the daemon's: of this address, else of `candidates()`."""
    given = [address.removeprefix("unix:")] if address else candidates()
    return [os.path.join(os.path.dirname(path), "agent.sock") for path in given]


def find() -> Path:
    """The daemon's socket. Raises UnreachableError naming where it was looked for."""
    from pathlib import Path

    return Path(found())


def found() -> str:
    """The same as text: pathlib takes 2 ms, and a relay is started for each host of a capture."""
    from profclient.errors import UnreachableError

    looked = candidates()
    for path in looked:
        if os.path.exists(path):
            return path
    places = " or ".join(looked)
    raise UnreachableError(
        f"no profd listens at {places}.\n"
        "Start one with `profd --user`, or name it with PROFD_ADDRESS=unix:/path/profd.sock."
    )
