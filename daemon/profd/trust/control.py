"""`control.sock`: a SEQPACKET socket that tells callers who they are.

A client connects and receives one JSON message: `{"token", "expires_s",
"grpc", "version"}`, or `{"error"}`. It sends nothing. The listening socket is
served from `add_reader` because asyncio's transports know neither SEQPACKET
nor peer credentials (docs/facts).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Protocol

from profd import __version__
from profd.fairness.rates import Rate, Rates
from profd.fairness.shares import Holder, Refused, Share, Shares
from profd.limits import (
    CONTROL_CONNECTIONS_BURST,
    CONTROL_CONNECTIONS_MAX,
    CONTROL_CONNECTIONS_PER_SECOND,
    CONTROL_CONNECTIONS_PER_UID_MAX,
    CONTROL_CONNECTIONS_RESERVED,
    RATES_USERS_MAX,
)
from profd.trust.caller import Caller
from profd.trust.identify import Silent, peer, peer_process
from profd.trust.token import Tokens

_ACCEPT_BATCH: Final = 16  # per wake-up: what else waits for the loop waits as long as these take
_PAUSE_SECONDS: Final = 0.1  # while nobody closes what is to be closed
_CONNECTIONS: Final = Share(
    *("tokens", "requests for a token", CONTROL_CONNECTIONS_PER_UID_MAX, CONTROL_CONNECTIONS_MAX),
    reserved=CONTROL_CONNECTIONS_RESERVED,
    retry_seconds=1,
)
_RATE: Final = Rate("token_rate", "requests for a token", CONTROL_CONNECTIONS_PER_SECOND, CONTROL_CONNECTIONS_BURST)

log = logging.getLogger("profd.trust")


class Closing(Protocol):
    """Closes sockets in which descriptors may lie that were passed: who closes these may wait."""

    def drop(self, connection: socket.socket, /) -> None:
        """Have it closed."""

    def drop_again(self) -> bool:
        """Whether there is room for more."""


class ControlServer:
    """Hands out tokens on a bound, listening SEQPACKET socket, which it owns."""

    def __init__(
        self,
        listener: socket.socket,
        tokens: Tokens,
        grpc_path: Path,
        admin_group: str = "",
        only_uid: int | None = None,
        on_denied: Callable[[Caller, str], None] = lambda caller, why: None,
        on_refused: Callable[[str], None] = lambda kind: None,
        payer: Callable[[int, int], int] = lambda uid, pid: uid,
        closing: Closing | None = None,
    ) -> None:
        """`payer`: whose share a process of this uid and pid uses up. `closing`: None where nobody can pass anything.

        Nothing is ever read here; to answer drops nothing.
        """
        self._listener = listener
        self._tokens = tokens
        self._grpc_path = grpc_path
        self._admin_group = admin_group
        self._only_uid = only_uid
        self._on_denied = on_denied
        self._on_refused = on_refused
        self._payer = payer
        self._closing = closing
        self._resume: asyncio.TimerHandle | None = None
        self._waiting = Shares(_CONNECTIONS)  # for a name
        self._rate = Rates(_RATE)
        self._used_up: dict[int, tuple[float, bytes]] = {}  # by uid: until when the same answer is the right one
        # Names come from NSS, which may ask the network; one thread is enough and bounds it.
        self._names = ThreadPoolExecutor(1, "profd-names")

    def set_admin_group(self, group: str) -> None:
        """Whose members are admins in tokens from now on."""
        self._admin_group = group

    def open(self) -> None:
        """Start serving on the running loop."""
        self._listener.setblocking(False)
        self._watch()

    def close(self) -> None:
        """Stop serving and close the socket; its file stays for whoever bound it."""
        self._leave()
        self._names.shutdown(wait=False, cancel_futures=True)

    def listen_on(self, listener: socket.socket) -> None:
        """Accept on another bound, listening socket from now on: the file of the one before is gone."""
        self._leave()
        self._listener = listener
        self.open()

    def _watch(self) -> None:
        self._resume = None
        asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)

    def _leave(self) -> None:
        if self._resume is not None:
            self._resume.cancel()
        asyncio.get_running_loop().remove_reader(self._listener.fileno())
        self._close(self._listener)  # those who wait there may have sent something already

    def _close(self, sock: socket.socket) -> None:
        if self._closing is not None:
            self._closing.drop(sock)
        else:
            sock.close()

    def _accept(self) -> None:
        for _ in range(_ACCEPT_BATCH):
            try:
                connection, _ = self._listener.accept()
            except OSError:  # nothing more, or the peer is gone already
                return
            try:
                self._admit(connection)
            except Refused as error:
                answer = {"error": str(error), "retry_s": error.retry_seconds, "version": __version__}
                self._refuse(connection, error.kind, json.dumps(answer).encode())
            if self._closing is not None and not self._closing.drop_again():
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._listener.fileno())
                self._resume = loop.call_later(_PAUSE_SECONDS, self._watch)
                return

    def _admit(self, connection: socket.socket) -> None:
        """Have the peer identified. Raises Refused where its user asks too often, or too many wait for that."""
        (pid, uid), held = peer_process(connection), ExitStack()
        until, answer = self._used_up.get(uid, (0.0, b""))
        if time.monotonic() < until:
            self._refuse(connection, _RATE.kind, answer)
            return
        holder = Holder(self._payer(uid, pid), uid in (0, os.geteuid()))
        try:
            self._rate.take(holder)
        except Refused as error:
            if holder.uid == uid:
                self._remember(uid, error)
            raise
        held.enter_context(self._waiting.take(holder))
        future = asyncio.get_running_loop().run_in_executor(self._names, self._identify, connection)
        held.callback(self._close, connection)
        future.add_done_callback(lambda _done: held.close())

    def _remember(self, uid: int, error: Refused) -> None:
        """Until there is a token again each further one gets this answer: a flood leaves the queue to others sooner."""
        if len(self._used_up) >= RATES_USERS_MAX:
            self._used_up.clear()
        answer = {"error": str(error), "retry_s": error.retry_seconds, "version": __version__}
        self._used_up[uid] = time.monotonic() + error.retry_seconds, json.dumps(answer).encode()

    def _refuse(self, connection: socket.socket, kind: str, answer: bytes) -> None:
        self._on_refused(kind)
        with suppress(OSError):
            _send(connection, answer)
        self._close(connection)

    def _identify(self, connection: socket.socket) -> None:
        """In the names thread: one answer. The loop ends the connection."""
        try:
            _tell(connection, self._answer(peer(connection, self._admin_group)))
        except Silent as error:
            with suppress(OSError):
                _tell(connection, {"error": str(error), "version": __version__})
        except OSError as error:
            log.debug("a caller left", extra={"why": str(error)})

    def _answer(self, caller: Caller) -> dict[str, Any]:
        if self._only_uid is not None and caller.uid not in (self._only_uid, 0):
            why = f"this profd serves uid {self._only_uid} only (it was started with --user)"
            self._on_denied(caller, why)
            return {"error": f"{why}; start your own with `profd --user`", "version": __version__}
        return {
            "token": self._tokens.issue(caller),
            "expires_s": self._tokens.lifetime_seconds,
            "grpc": str(self._grpc_path),
            "version": __version__,
        }


def _tell(connection: socket.socket, answer: dict[str, Any]) -> None:
    """Raises OSError."""
    _send(connection, json.dumps(answer).encode())


def _send(connection: socket.socket, answer: bytes) -> None:
    """Raises OSError; a peer that does not read must not hold us."""
    connection.send(answer, socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
