"""Descriptors that the service manager passes at the start (sd_listen_fds(3)).

An earlier profd has left them there (notify.py); docs/decisions/0055-kept-names.md says why.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Final

from profd.limits import PASSED_DESCRIPTORS_MAX

log = logging.getLogger("profd.host.kept")

FIRST: Final = 3
_VARIABLES: Final = ("LISTEN_PID", "LISTEN_PIDFDID", "LISTEN_FDS", "LISTEN_FDNAMES")


class Kept:
    """What was passed, by descriptor, with the names that it had in the store. Each is used or closed, once."""

    def __init__(self, passed: dict[int, str] | None = None, problem: str = "") -> None:
        """`problem`: a sentence, where what was passed cannot be used; said by `close`."""
        self._passed = passed or {}
        self._used: set[str] = set()
        self._problem = problem

    def datagrams(self, address: bytes) -> socket.socket | None:
        """The Unix datagram socket bound to exactly this address, if it was passed; from now on the caller's."""
        for descriptor in self._passed:
            sock = _socket(descriptor)
            if sock is None:
                continue
            if (sock.family, sock.type) == (socket.AF_UNIX, socket.SOCK_DGRAM) and sock.getsockname() == address:
                self._used.add(self._passed.pop(descriptor))
                return sock
            sock.detach()
        return None

    def close(self) -> list[str]:
        """Close what nobody has use for, with a line in the log for each; the names that the manager may forget."""
        if self._problem:
            log.warning("%s", self._problem)
        closed = set(self._passed.values()) - self._used - {""}
        for descriptor, name in self._passed.items():
            with suppress(OSError):
                os.close(descriptor)
            said = {"descriptor": descriptor, "kept_as": name}
            log.warning("the service manager passed a descriptor that is of no use; it is closed", extra=said)
        self._passed.clear()
        return sorted(closed)


def take(environ: MutableMapping[str, str] = os.environ) -> Kept:
    """What is meant for this process; no child has that or its variables from now on. Call it first of all."""
    listen = {name: environ.pop(name, "") for name in _VARIABLES}
    if listen["LISTEN_PID"] != str(os.getpid()):
        return Kept()
    said = listen["LISTEN_FDS"]
    count = int(said) if said.isascii() and said.isdigit() and len(said) <= len(str(PASSED_DESCRIPTORS_MAX)) else -1
    if not 0 <= count <= PASSED_DESCRIPTORS_MAX:
        wanted = f"not a number from 0 to {PASSED_DESCRIPTORS_MAX}"
        return Kept(problem=f"LISTEN_FDS={said[:32]!r} is {wanted}: no descriptor of the service manager's is used")
    names = listen["LISTEN_FDNAMES"].split(":") if listen["LISTEN_FDNAMES"] else []
    passed: dict[int, str] = {}
    for number in range(count):
        with suppress(OSError):  # it is not open
            os.set_inheritable(FIRST + number, False)
            passed[FIRST + number] = _name(names[number] if number < len(names) else "")
    return Kept(passed)


def _name(said: str) -> str:
    """Empty where it could not be told to the service manager."""
    return said if said.isascii() and said.isprintable() else ""


def _socket(descriptor: int) -> socket.socket | None:
    try:
        return socket.socket(fileno=descriptor)
    except OSError:  # something else
        return None
