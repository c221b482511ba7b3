"""sd_notify: messages to systemd about the daemon's state, and sockets for it to keep. Silent without systemd."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from array import array
from collections.abc import Mapping

log = logging.getLogger("profd.host.notify")


class Notifier:
    """Sends to `NOTIFY_SOCKET`, and pets the watchdog while the event loop turns."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        # An abstract name is written with a leading @.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._period = _watchdog_period(environ)
        self._timer: asyncio.TimerHandle | None = None

    def ready(self, status: str) -> None:
        """READY=1, and the watchdog from now on (every half of WATCHDOG_USEC)."""
        self._send(f"READY=1\nSTATUS={status}")
        if self._period:
            self._pet()

    def reloading(self) -> None:
        """RELOADING=1; `ready` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def told(self, status: str) -> None:
        """READY=1 after a reload, also after a failed one: `status` says which."""
        self._send(f"READY=1\nSTATUS={status}")

    def stopping(self) -> None:
        """STOPPING=1; the watchdog goes on until `close`, since draining takes time."""
        self._send("STOPPING=1\nSTATUS=draining")

    def keep(self, name: str, sock: socket.socket) -> None:
        """FDSTORE=1: the socket stays open, also behind a kill, and is passed to the next daemon (kept.py)."""
        try:
            self._deliver(f"FDSTORE=1\nFDNAME={name}\nFDPOLL=0", sock.fileno())
        except OSError as error:
            said = {"kept_as": name, "why": error.strerror}
            log.warning(
                "the service manager does not keep a socket: its address is free while profd restarts", extra=said
            )

    def forget(self, name: str) -> None:
        """FDSTOREREMOVE=1: it lets go of what it keeps by this name, if anything."""
        self._send(f"FDSTOREREMOVE=1\nFDNAME={name}")

    def close(self) -> None:
        """No more watchdog."""
        if self._timer is not None:
            self._timer.cancel()

    def _pet(self) -> None:
        self._send("WATCHDOG=1")
        self._timer = asyncio.get_running_loop().call_later(self._period, self._pet)

    def _send(self, message: str) -> None:
        with contextlib.suppress(OSError):
            self._deliver(message)

    def _deliver(self, message: str, *descriptors: int) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            # Not send_fds: it takes an address, and has no use for it (CPython 3.11).
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
            sock.sendmsg([message.encode()], rights, 0, self._address)


def _watchdog_period(environ: Mapping[str, str]) -> float:
    """Seconds between two signs of life; 0 where systemd asks this process for none."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    try:
        return int(environ.get("WATCHDOG_USEC", "0")) / 2e6
    except ValueError:
        return 0.0
