"""`control.sock`: a SEQPACKET socket that tells callers who they are.

A client connects and receives one JSON message: `{"token", "expires_s",
"grpc", "version"}`, or `{"error"}`. It sends nothing. A user who connects too often
is told so by a thread (fairness/reception.py); the event loop sees the others.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from profd import __version__
from profd.fairness.rates import Rate, Rates
from profd.fairness.reception import Closing, Reception
from profd.fairness.shares import Holder, Refused, Share, Shares
from profd.fairness.thread_by_turns import ThreadByTurns
from profd.kernel import nobody
from profd.kernel.peer import Peer
from profd.limits import (
    CONTROL_CONNECTIONS_BURST,
    CONTROL_CONNECTIONS_MAX,
    CONTROL_CONNECTIONS_PER_SECOND,
    CONTROL_CONNECTIONS_PER_UID_MAX,
    CONTROL_CONNECTIONS_RESERVED,
)
from profd.trust.caller import Caller
from profd.trust.identify import SilentProcess, caller_of
from profd.trust.token import Tokens, Unidentified

_CONNECTIONS: Final = Share(
    *("tokens", "requests for a token", CONTROL_CONNECTIONS_PER_UID_MAX, CONTROL_CONNECTIONS_MAX),
    reserved=CONTROL_CONNECTIONS_RESERVED,
    retry_seconds=1,
)
_RATE: Final = Rate("token_rate", "requests for a token", CONTROL_CONNECTIONS_PER_SECOND, CONTROL_CONNECTIONS_BURST)
_RETRY_SECONDS: Final = 1.0  # of who has used up that

log = logging.getLogger("profd.trust")


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
        on_refused: Callable[[str, int], None] = lambda kind, count: None,
        payer: Callable[[int, int], int] = lambda uid, pid: uid,
        closing: Closing | None = None,
        rate: Rate = _RATE,
    ) -> None:
        """`on_refused`: of what kind, and how many. `payer`: whose share a process of this uid and pid uses up.
        `closing`: None where nobody can pass anything. `rate`: of one user.

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
        self._waiting = Shares(_CONNECTIONS)  # for a name
        self._asked: set[Future[None]] = set()
        self._rate = Rates(rate)  # of streamers, by whom they serve
        self._reception = Reception(
            rate,
            self._come,
            closing=closing,
            answer=_refusal(rate.refusal(_RETRY_SECONDS)),
            refused=lambda count, uid: on_refused(rate.kind, count),
        )
        # A process may not answer for a moment, nor its user's name come (NSS): one thread, users in turn.
        self._names = ThreadByTurns("profd-tokens")

    def set_admin_group(self, group: str) -> None:
        """Whose members are admins in tokens from now on."""
        self._admin_group = group

    def open(self) -> None:
        """Start serving on the running loop."""
        self._reception.listen(self._listener)

    def close(self) -> None:
        """Stop serving and close the socket; its file stays for whoever bound it."""
        self._reception.close()
        for future in tuple(self._asked):
            future.cancel()

    def listen_on(self, listener: socket.socket) -> None:
        """Accept on another bound, listening socket from now on: the file of the one before is gone."""
        self._reception.listen(listener)

    def _close(self, sock: socket.socket) -> None:
        if self._closing is not None:
            self._closing.drop(sock)
        else:
            sock.close()

    def _come(self, connection: socket.socket, peer: Peer) -> None:
        try:
            self._admit(connection, peer)
        except Refused as error:
            self._refuse(connection, error)

    def _admit(self, connection: socket.socket, peer: Peer) -> None:
        """Have the peer identified. Raises Refused where too many of its user wait for that."""
        held, payer = ExitStack(), self._payer(peer.uid, peer.pid)
        holder = Holder(payer, peer.uid in (0, os.geteuid()))
        if peer.uid == nobody.STREAMER:  # the reception does not know for whom it comes
            self._rate.take(holder)
        held.enter_context(self._waiting.take(holder))
        future = self._names.submit(payer, self._identify, connection, peer)
        held.callback(self._close, connection)
        held.callback(self._asked.discard, future)
        self._asked.add(future)
        asyncio.wrap_future(future).add_done_callback(lambda _done: held.close())

    def _refuse(self, connection: socket.socket, error: Refused) -> None:
        self._on_refused(error.kind, 1)
        with suppress(OSError):
            _send(connection, _refusal(error))
        self._close(connection)

    def _identify(self, connection: socket.socket, peer: Peer) -> None:
        """In the names thread: one answer. The loop ends the connection."""
        try:
            admins = self._tokens.admins  # a slow answer (NSS) may be one about a group that is it no longer
            _tell(connection, self._answer(caller_of(connection, peer, self._admin_group), admins))
        except SilentProcess as error:
            with suppress(OSError):
                _tell(connection, {"error": str(error), "version": __version__})
        except OSError as error:
            log.debug("a caller left", extra={"why": str(error)})

    def _answer(self, caller: Caller, admins: int) -> dict[str, Any]:
        if self._only_uid is not None and caller.uid not in (self._only_uid, 0):
            why = f"this profd serves uid {self._only_uid} only (it was started with --user)"
            self._on_denied(caller, why)
            return {"error": f"{why}; start your own with `profd --user`", "version": __version__}
        try:
            self._tokens.check_member(caller)
        except Unidentified as error:
            self._on_denied(caller, str(error))
            return {"error": str(error), "version": __version__}
        return {
            "token": self._tokens.issue(caller, admins),
            "expires_s": self._tokens.lifetime_seconds,
            "grpc": str(self._grpc_path),
            "version": __version__,
        }


def _refusal(error: Refused) -> bytes:
    return json.dumps({"error": str(error), "retry_s": error.retry_seconds, "version": __version__}).encode()


def _tell(connection: socket.socket, answer: dict[str, Any]) -> None:
    """Raises OSError."""
    _send(connection, json.dumps(answer).encode())


def _send(connection: socket.socket, answer: bytes) -> None:
    """Raises OSError; a peer that does not read must not hold us."""
    connection.send(answer, socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
