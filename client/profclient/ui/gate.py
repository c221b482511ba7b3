"""Whether a request may be answered: names of the server, origins of pages, and keys. No I/O."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from profclient.loopback import COMMON

FILE_SECONDS: Final = 60.0  # a browser opens a file at once
PRINTED_SECONDS: Final = 600.0  # a person may have to make a tunnel first
NO_ORIGIN: Final = "null"  # of a page that was a file
_KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Names:
    """What a browser may call the server. Any other name is another server's, or a lie (DNS rebinding)."""

    address: str
    port: int

    def is_host(self, host: str | None) -> bool:
        """Of a `Host` header: the server's own address, and the near end of a tunnel."""
        return host in [f"{name}:{self.port}" for name in (self.address, COMMON, "localhost")]

    def is_origin(self, origin: str | None, host: str | None) -> bool:
        """Of an `Origin` header; requests that read without a page behind them have none."""
        return origin is None or origin == f"http://{host}"

    def origin(self, name: str, port: int) -> str:
        """Of another port of the server, for a browser that calls it `name`, which may be anything."""
        return f"http://{name if name in (COMMON, 'localhost') else self.address}:{port}"


@dataclass(slots=True)
class Keys:
    """The session's key, and keys that are good once and not for long, with which a browser gets it."""

    clock: Callable[[], float] = time.monotonic
    session: str = field(default_factory=lambda: secrets.token_urlsafe(_KEY_BYTES), repr=False)
    _once: dict[str, tuple[float, bool]] = field(default_factory=dict, repr=False)  # until when, for a file
    _lock: Lock = field(default_factory=Lock, repr=False)

    def for_file(self) -> str:
        """A key for a page that is a file of the user's."""
        return self._issue(FILE_SECONDS, True)

    def for_terminal(self) -> str:
        """A key in an address that is printed."""
        return self._issue(PRINTED_SECONDS, False)

    def _issue(self, seconds: float, for_file: bool) -> str:
        key = secrets.token_urlsafe(_KEY_BYTES)
        with self._lock:
            self._once[key] = (self.clock() + seconds, for_file)
        return key

    def redeem(self, key: str, from_file: bool) -> bool:
        """Whether the key is good; it never is again. A key of a file is good from there alone, and no other there."""
        with self._lock:
            found = next((one for one in self._once if _same(one, key)), None)
            until, for_file = self._once.pop(found, (0.0, False)) if found else (0.0, False)
        return found is not None and for_file is from_file and self.clock() < until

    def opens(self, authorization: str | None) -> bool:
        """Whether an `Authorization` header has the session's key."""
        kind, _, key = (authorization or "").partition(" ")
        return kind == "Bearer" and _same(self.session, key)


def _same(one: str, other: str) -> bool:
    return secrets.compare_digest(one.encode(), other.encode("utf-8", "surrogateescape"))
