"""Copies of audit lines to journald or syslog, from a thread: a full, slow or missing one costs copies, never a call.

journald's native protocol and syslog's are one datagram a line.
"""

from __future__ import annotations

import logging
import os
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from profd.fairness.rare_line import RareLine
from profd.limits import AUDIT_COPIES_WAITING_MAX

JOURNALD: Final = Path("/run/systemd/journal/socket")
SYSLOG: Final = Path("/dev/log")
_FOR_ALL: Final = AUDIT_COPIES_WAITING_MAX * 3 // 4  # the rest is for what root and admins do, and for denials
_SEND_SECONDS: Final = 1  # of waiting for one that is full
_CLOSE_SECONDS: Final = 2.0
_AUTHPRIV: Final = 10
_NOTICE: Final = 5

log = logging.getLogger("profd.audit")

Form = Callable[[bytes, str, int], bytes]
"""(line without its end, action, uid) -> datagram."""


class Copier:
    """Sends each line to one address; counts what it sent, and what it dropped."""

    def __init__(self, address: Path, form: Form) -> None:
        self.sent = self.dropped = 0
        self._address = str(address)
        self._form = form
        self._untaken = RareLine(log, f"lines of the audit log are not copied to {address}", level=logging.ERROR)
        self._closing = False
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._dropping = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_SECONDS, 0))
        self._thread = threading.Thread(target=self._run, name="profd-audit-copy", daemon=True)
        self._thread.start()

    def send(self, line: bytes, action: str, uid: int, *, urgent: bool) -> None:
        """Never waits."""
        if self._closing or self._waiting.qsize() >= (AUDIT_COPIES_WAITING_MAX if urgent else _FOR_ALL):
            self._drop()
        else:
            self._waiting.put(self._form(line.rstrip(b"\n"), action, uid))

    def close(self) -> None:
        """Send what waits, for _CLOSE_SECONDS at most."""
        self._closing = True
        self._waiting.put(None)
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            log.warning("audit lines were not copied", extra={"to": self._address, "lines": self._waiting.qsize()})

    def _run(self) -> None:
        with self._socket:
            while (datagram := self._waiting.get()) is not None:
                self._send(datagram)

    def _send(self, datagram: bytes) -> None:
        try:
            self._socket.sendto(datagram, self._address)  # by name each time: it may have been made anew
        except OSError as error:
            self._drop()
            self._untaken.tell(why=str(error))
            return
        self.sent += 1
        self._untaken.over()

    def _drop(self) -> None:
        with self._dropping:
            self.dropped += 1


def copier(where: str) -> Copier | None:
    """Of the setting `[audit] copy`."""
    if where == "journald":
        return Copier(JOURNALD, journald_form)
    return Copier(SYSLOG, syslog_form) if where == "syslog" else None


def journald_form(line: bytes, action: str, uid: int) -> bytes:
    """Fields of journald's native protocol. None has a line's end in it, so that all are plain."""
    fields = {
        "MESSAGE": line.decode("ascii"),
        "PRIORITY": _NOTICE,
        "SYSLOG_FACILITY": _AUTHPRIV,
        "SYSLOG_IDENTIFIER": "profd-audit",
        "PROFD_ACTION": action,
        "PROFD_UID": uid,
    }
    return "".join(f"{name}={value}\n" for name, value in fields.items()).encode("ascii")


def syslog_form(line: bytes, action: str, uid: int) -> bytes:
    """As the C library sends it."""
    when = time.strftime("%b %e %H:%M:%S")
    return f"<{_AUTHPRIV * 8 + _NOTICE}>{when} profd-audit[{os.getpid()}]: {line.decode('ascii')}".encode("ascii")
