"""The door before gRPC's socket: it counts connections, streams and frames by user before gRPC sees them.

gRPC accepts by itself, hides the user of a connection, and hands calls to the event loop in the order of their arrival.
A native thread stands before it (native/host/door.h), and knows a user by SO_PEERCRED. This file has the limits of that
thread, and its answer to a user who is turned away.
"""

from __future__ import annotations

import grp
import json
import logging
import resource
import socket
from dataclasses import dataclass, replace
from typing import Final

from profd import limits
from profd._host import Door
from profd.attached.agents.porters import Porters
from profd.fairness.frame_rates import OF_A_USER, OF_ALL_USERS, FrameRates
from profd.fairness.rare_line import RareLine
from profd.fairness.reception import NO_GROUP
from profd.fairness.shares import Refused
from profd.kernel import nobody
from profd.rpc.carried import CarriedAccept
from profd.rpc.errors import METADATA_KEY, detail, status_code

_DESCRIPTORS: Final = 3  # of a connection: the client's, ours to gRPC, gRPC's
_RETRY_SECONDS: Final = 1

log = logging.getLogger("profd.rpc")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one user (`each`, `user`), and of all users but root and the daemon's own (`host`, `all`)."""

    each: int = limits.CONNECTIONS_PER_UID_MAX
    host: int = limits.CONNECTIONS_MAX
    answered_each: int = limits.CONNECTIONS_ANSWERED_PER_UID_MAX
    answered_host: int = limits.CONNECTIONS_ANSWERED_MAX
    header_block_bytes: int = limits.HEADER_BLOCK_BYTES_MAX
    header_fields: int = limits.HEADER_FIELDS_MAX
    begin_seconds: float = limits.CONNECTION_BEGIN_SECONDS
    end_seconds: float = limits.CONNECTION_END_SECONDS
    user: FrameRates = OF_A_USER
    all: FrameRates = OF_ALL_USERS
    admins: int = NO_GROUP  # the gid whose members are not limited, as root is not
    streamers: int = nobody.STREAMER  # a connection for each user who is recorded: the host's limits are theirs


@dataclass(frozen=True, slots=True)
class ConnectionCounts:
    """Counts of connections: open ones, and totals."""

    open: int = 0
    refused: int = 0
    throttled: int = 0  # times that one had to wait
    foreign: int = 0  # spoke no HTTP/2, or sent a header block that is too large, of too many fields, or had no end


class Entrance:
    """The door to a gRPC server, and its refusals."""

    def __init__(
        self, server: str, bounds: Limits | None = None, admin_group: str = "", porters: Porters | None = None
    ) -> None:
        """`server`: path of gRPC's socket; `porters` read the connections of users. Raises OSError."""
        bounds = bounds or Limits(host=min(limits.CONNECTIONS_MAX, _descriptors() // (2 * _DESCRIPTORS)))
        bounds = replace(bounds, admins=_gid(admin_group))
        self._door = Door(
            server,
            bounds,
            refusal(bounds.each, "of one user"),
            refusal(bounds.host, "of this host"),
        )
        self._carried = CarriedAccept(self._door, porters, bounds.admins) if porters is not None else None
        self._told = 0
        self._refused = RareLine(log, "connections refused")

    def listen(self, listener: socket.socket) -> None:
        """Accept on this socket from now on, which is closed here."""
        if self._carried is not None:
            self._carried.listen(listener)
            return
        with listener:
            self._door.listen(listener.fileno())

    def set_admin_group(self, group: str) -> None:
        """Set the group whose members have no limit from now on; open connections stay as they are."""
        gid = _gid(group)
        self._door.set_admins(gid)
        if self._carried is not None:
            self._carried.set_admins(gid)

    def keep_members(self, group: int) -> None:
        """Connections of whoever has not this group end."""
        self._door.keep_members(group)

    def refuse(self) -> None:
        """Accept no more."""
        if self._carried is not None:
            self._carried.refuse()
        self._door.refuse()

    def close(self, seconds: float) -> None:
        """End every connection, once what is on its way has arrived or time is up."""
        self._door.close(seconds)

    def counts(self) -> ConnectionCounts:
        """The counts for a scrape."""
        counts = self._door.counts()
        return ConnectionCounts(counts["open"], self._refused_in_all()[0], counts["throttled"], counts["foreign"])

    def look(self) -> int:
        """The number of refused connections since the last call; the log says so."""
        in_all, last_uid = self._refused_in_all()
        refused, self._told = in_all - self._told, in_all
        if refused:
            self._refused.tell(count=refused, in_all=in_all, last_uid=last_uid)
        return refused

    def _refused_in_all(self) -> tuple[int, int]:
        """The number of all refused connections, and the uid of the last."""
        counts = self._door.counts()
        if self._carried is None or not self._carried.refused:
            return counts["refused"], counts["refused_uid"]
        return counts["refused"] + self._carried.refused, self._carried.refused_uid


def refusal(limit: int, whose: str) -> bytes:
    """The header block (HPACK) of an answer that is over: nothing indexed, nothing compressed."""
    error = Refused(
        f"{limit} of {limit} connections at once ({whose}) are in use; wait for one to end, or try again in "
        f"{_RETRY_SECONDS} s",
        *("connections", limit, limit, _RETRY_SECONDS),
    )
    fields = {
        "content-type": "application/grpc",
        "grpc-status": str(status_code(error).value[0]),
        "grpc-message": str(error),
        METADATA_KEY: json.dumps(detail(error)),
    }
    status_200 = b"\x88"  # RFC 7541, appendix A
    return status_200 + b"".join(b"\x00" + _text(name) + _text(value) for name, value in fields.items())


def _text(text: str) -> bytes:
    """A string literal of HPACK (RFC 7541, 5.2)."""
    data = text.encode("ascii")
    if len(data) < 0x7F:
        return bytes([len(data)]) + data
    rest, length = len(data) - 0x7F, b"\x7f"
    while rest >= 0x80:
        length += bytes([rest & 0x7F | 0x80])
        rest >>= 7
    return length + bytes([rest]) + data


def _gid(group: str) -> int:
    """The gid of a group. The door knows a group that is made later after a reload."""
    try:
        return grp.getgrnam(group).gr_gid if group else NO_GROUP
    except KeyError:
        return NO_GROUP


def _descriptors() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limits.CONNECTIONS_MAX * 2 * _DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
