"""The address of the daemon: `PROFD_ADDRESS`, else the first socket that exists.

Imported in targets, when they attach: it brings nothing along.
"""

from __future__ import annotations

import os

from profclient.owners import stay_ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

SYSTEM_SOCKET = "/run/profd/profd.sock"
_UNASKED = (
    "None is looked for where XDG_RUNTIME_DIR, XDG_STATE_HOME or HOME lead: another user could have put one there.\n"
)


def user_socket() -> str:
    """The socket of `profd --user` for this uid; empty where another user could have put one there."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and (found := in_runtime(runtime)):
        return found
    if given := os.environ.get("XDG_STATE_HOME"):
        return _socket_in(given)
    return _socket_in(os.path.expanduser("~"), ".local", "state")


def in_runtime(folder: str) -> str:
    """The socket of a user's own daemon in this runtime directory; empty where there is none or it may be another's."""
    return _socket_in(folder) if os.path.isdir(folder) else ""


def _socket_in(base: str, *below: str) -> str:
    """Empty unless base and all folders on are this user's or root's, so that nobody else put a socket there.

    `su` and `sudo` can leave root with the variables of whoever called them, and a job may have `/tmp` in them, where
    the first user who makes `profd` has it: what listens there would be given what others' processes record.
    """
    if not stay_ours(base, *below, "profd"):
        return ""
    return os.path.join(base, *below, "profd", "profd.sock")


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
    unasked = "" if len(looked) > 1 or os.environ.get("PROFD_ADDRESS") else _UNASKED
    raise UnreachableError(
        f"no profd listens at {places}.\n{unasked}"
        "Start one with `profd --user`, or name it with PROFD_ADDRESS=unix:/path/profd.sock."
    )
