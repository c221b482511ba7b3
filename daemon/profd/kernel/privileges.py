"""What the daemon of a whole host may do as root, and what is lost where it may not (docs/security.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Privilege:
    """A capability (capabilities(7))."""

    name: str
    number: int
    lost: str  # without it
    needed: bool = False  # profd does not start without it
    given_up: bool = False  # once it has started


BPF: Final = Privilege("CAP_BPF", 39, "a flood of datagrams keeps Kineto's processes waiting", given_up=True)
PRIVILEGES: Final = (
    Privilege("CAP_CHOWN", 0, "profd does not start", needed=True),
    Privilege("CAP_DAC_OVERRIDE", 1, "profd does not start: no trace could be stored", needed=True),
    Privilege("CAP_DAC_READ_SEARCH", 2, "files that targets write into private directories cannot be read"),
    Privilege("CAP_FOWNER", 3, "traces that targets write into sticky directories stay there"),
    Privilege("CAP_KILL", 5, "nothing is sampled, and children that hang outlive their deadline"),
    Privilege("CAP_SETGID", 6, "profd does not start", needed=True),
    Privilege("CAP_SETUID", 7, "profd does not start", needed=True),
    Privilege("CAP_SYS_PTRACE", 19, "processes of other users are neither sampled nor attached"),
    BPF,
)


def missing(effective: int, *, started: bool = False) -> list[Privilege]:
    """What a set of capabilities (bits) has not got; `started`: without the privileges that were given up by then."""
    wanted = (privilege for privilege in PRIVILEGES if not (started and privilege.given_up))
    return [privilege for privilege in wanted if not effective >> privilege.number & 1]


def told(lacking: list[Privilege]) -> str:
    """What is not there, and what that means."""
    return "; ".join(f"no {privilege.name}: {privilege.lost}" for privilege in lacking)


def how_to_grant(lacking: list[Privilege]) -> str:
    """What gives them, wherever the daemon runs."""
    names = [privilege.name for privilege in lacking]
    short = [name.removeprefix("CAP_") for name in names]
    return (
        f"with systemd: CapabilityBoundingSet={' '.join(names)} (deploy/systemd/profd.service has all); with docker: "
        f"{' '.join(f'--cap-add={name}' for name in short)}; in a pod: securityContext.capabilities.add: "
        f"[{', '.join(short)}]"
    )
