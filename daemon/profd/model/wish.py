"""A capture that a program asks for, of its own process (REQUEST, docs/agent-protocol.md)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wish:
    """The program's word. `key` is equal in all processes that want one capture; empty: this one is alone."""

    number: int  # of the process's requests
    incarnation: int = 0
    iterations: int = 0
    duration_ns: int = 0
    begin_step: int | None = None
    reason: str = ""
    key: str = ""
    local: int = 0  # processes of this host that will ask with the key; 0: not known
    hosts: int = 1  # where they ask
