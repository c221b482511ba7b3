"""Short-lived tokens: what the control socket proved, signed for the gRPC socket.

`payload.signature`, both base64url; the payload is JSON. The key lives as long
as the daemon and never leaves it, so a restart ends all tokens. A token is
good only while the process that got it lives.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import time
from collections.abc import Callable
from typing import Final

from profd.errors import ProfdError
from profd.limits import TOKEN_LIFETIME_SECONDS
from profd.model.newest import Newest
from profd.targets.starts import starts
from profd.trust.caller import Caller

TOKEN_BYTES_MAX: Final = 16_384
_VERIFIED_MAX: Final = 256  # tokens whose signature is not computed again
_GROUPS_CARRIED_MAX: Final = 256  # in a token: metadata is bounded; membership of the admin group is decided before


class Unidentified(ProfdError):
    """The call carries no valid token."""

    status = "UNAUTHENTICATED"
    exit_code = 4


class Tokens:
    """Issues and verifies tokens of one daemon."""

    def __init__(
        self,
        lifetime_seconds: float = TOKEN_LIFETIME_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        started: Callable[[int], int] = starts.known,  # never waits, and knows whoever got a token
        lives: Callable[[int], bool] = starts.lives,
    ) -> None:
        self.lifetime_seconds = lifetime_seconds
        self._key = os.urandom(32)
        self._verified = Newest[str, tuple[Caller, float]](_VERIFIED_MAX)  # with the moment each expires; oldest first
        self._admins = 0  # how often the admin group has changed
        self._group: int | None = None  # whose members may connect, where that has changed
        self._clock = clock
        self._started = started
        self._lives = lives

    @property
    def admins(self) -> int:
        """Which admin group it is, counted: to be taken before it is asked whether a caller is of it."""
        return self._admins

    def issue(self, caller: Caller, admins: int | None = None) -> str:
        """A token for this caller, who was asked by the group of then (`admins`); None: of now."""
        payload = {
            "uid": caller.uid,
            "gid": caller.gid,
            "user": caller.user,
            "admin": caller.admin,
            "admins": self._admins if admins is None else admins,
            "pid": caller.pid,
            "groups": self._carried(caller.groups),
            "start": caller.start_ticks,
            "host_pids": caller.host_pids,
            "container": caller.container,
            "expires": self._clock() + self.lifetime_seconds,
        }
        body = base64.urlsafe_b64encode(json.dumps(payload, separators=(",", ":")).encode())
        return f"{body.decode()}.{self._signature(body)}"

    def forget_admins(self) -> None:
        """The admin group is another one: nobody but root is an admin by a token of before."""
        self._admins += 1
        self._verified.clear()

    def keep_members(self, group: int | None) -> None:
        """Another group's members may connect (None: everybody): tokens of others end."""
        self._group = group

    def check_member(self, caller: Caller) -> None:
        """Raises Unidentified where somebody may not connect any more: they may have connected before."""
        if not caller.may_connect(self._group):
            raise Unidentified(
                f"uid {caller.uid} is not in the group that may connect to profd (`socket_group` was changed). "
                "Ask an operator of this host, and log in anew once you are a member."
            )

    def verify(self, untrusted: str) -> Caller:
        """The caller a token was issued to. Raises Unidentified with the next step."""
        caller, expires = self._verified.get(untrusted) or self._read(untrusted)
        if self._clock() >= expires:
            raise _refused(f"has expired (it is good for {self.lifetime_seconds:g} s)")
        if caller.pid and (started := self._started(caller.pid)) != caller.start_ticks:
            raise _refused(f"belongs to pid {caller.pid}, {self._why_not(caller, started)}")
        self.check_member(caller)
        return caller

    def _carried(self, groups: tuple[int, ...]) -> tuple[int, ...]:
        """As many as a token has room for, and of all the one that may be asked for."""
        kept = groups[:_GROUPS_CARRIED_MAX]
        asked = self._group
        return kept if asked is None or asked in kept or asked not in groups else (*kept[:-1], asked)

    def _why_not(self, caller: Caller, started: int) -> str:
        """What became of the process, as far as is known."""
        if not caller.start_ticks:
            return "which did not answer when it was given, so that nobody can say whether it is the same process"
        if not started and self._lives(caller.pid):
            return "and profd does not know any more whether that is the same process"
        return "which has ended"

    def _read(self, untrusted: str) -> tuple[Caller, float]:
        """The caller, and when the token expires; remembered, since a client sends one many times."""
        body, _, signature = untrusted.partition(".")
        if len(untrusted) > TOKEN_BYTES_MAX or not body.isascii() or not signature.isascii():
            raise _refused("is malformed")
        if not hmac.compare_digest(signature, self._signature(body.encode())):
            raise _refused("was not issued by this profd, or by it before a restart")
        payload = json.loads(_decoded(body))  # ours: the signature holds
        caller = Caller(
            uid=payload["uid"],
            gid=payload["gid"],
            user=payload["user"],
            admin=payload["admin"] and (payload["uid"] == 0 or payload["admins"] == self._admins),
            pid=payload["pid"],
            groups=tuple(payload["groups"]),
            start_ticks=payload["start"],
            host_pids=payload["host_pids"],
            container=payload["container"],
        )
        self._verified[untrusted] = caller, payload["expires"]
        return self._verified[untrusted]

    def _signature(self, body: bytes) -> str:
        digest = hmac.new(self._key, body, hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).decode()


def _decoded(body: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(body)
    except (binascii.Error, ValueError) as error:
        raise _refused("is malformed") from error


def _refused(why: str) -> Unidentified:
    return Unidentified(
        f"the token of this call {why}. Connect to control.sock beside the gRPC socket for a new one "
        "(profctl does so by itself: run the command again)."
    )
