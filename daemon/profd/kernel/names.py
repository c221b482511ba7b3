"""Names of users and groups, as the host's databases (NSS) say them: these may ask a network that does not answer.

Each question has a thread, which is given up where the answer is late: it is remembered when it comes, and told to who
asks next. While nothing comes, nobody waits for long again.
"""

from __future__ import annotations

import grp
import pwd
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, Generic, TypeVar

from profd.errors import Exhausted
from profd.limits import (
    NAMES_AT_ONCE,
    NAMES_KEPT,
    NAMES_KEPT_SECONDS,
    NAMES_SLOW_SECONDS,
    NAMES_WAIT_SECONDS,
    NAMES_WAIT_SECONDS_SLOW,
)

Key = TypeVar("Key")
Answer = TypeVar("Answer")


class SilentNames(Exhausted):
    """The databases do not answer, and nothing is known of an earlier time."""


class Directory(Generic[Key, Answer]):
    """What one database says of its keys; None: there is no such key. Safe to use from any thread."""

    def __init__(self, ask: Callable[[Key], Answer], at_once: int = NAMES_AT_ONCE) -> None:
        """`ask` raises KeyError or OverflowError for a key that there is not. `at_once`: threads."""
        self._ask = ask
        self._at_once = at_once
        self._lock = threading.Lock()
        self._known: dict[Key, tuple[Answer | None, float]] = {}
        self._asking: dict[Key, Future[Answer | None]] = {}
        self._slow_until = 0.0

    def of(self, key: Key, seconds: float = NAMES_WAIT_SECONDS) -> Answer | None:
        """As it is, or was some seconds ago; where no answer comes in time, as it was last. Raises Silent."""
        now = time.monotonic()
        with self._lock:
            known = self._known.get(key)
            if known is not None and now < known[1] + NAMES_KEPT_SECONDS:
                return known[0]
            asking = self._asking.get(key) or self._begin(key)
            wait = min(seconds, NAMES_WAIT_SECONDS_SLOW) if now < self._slow_until else seconds
        if asking is not None:
            try:
                return asking.result(wait)
            except TimeoutError:
                with self._lock:
                    self._slow_until = time.monotonic() + NAMES_SLOW_SECONDS
        if known is None:
            raise SilentNames("this host's directory of users and groups (NSS) does not answer; try again later")
        return known[0]

    def _begin(self, key: Key) -> Future[Answer | None] | None:
        """With the lock held. None where too many wait for an answer."""
        if len(self._asking) >= self._at_once:
            return None
        asking = self._asking[key] = Future()
        threading.Thread(target=self._answer, args=(key, asking), name="profd-names", daemon=True).start()
        return asking

    def _answer(self, key: Key, asking: Future[Answer | None]) -> None:
        answer: Answer | None = None
        try:
            answer = self._ask(key)
        except (KeyError, OverflowError):
            pass
        except BaseException as error:
            with self._lock:
                del self._asking[key]
            asking.set_exception(error)
            return
        with self._lock:
            if len(self._known) >= NAMES_KEPT:
                self._known.clear()
            self._known[key] = answer, time.monotonic()
            del self._asking[key]
        asking.set_result(answer)


_users: Final = Directory[int, pwd.struct_passwd](lambda uid: pwd.getpwuid(uid))
_uids: Final = Directory[str, int](lambda name: pwd.getpwnam(name).pw_uid)
_gids: Final = Directory[str, int](lambda name: grp.getgrnam(name).gr_gid)


def user(uid: int) -> str:
    """The name of a uid, the number as text where there is none. Raises Silent."""
    found = _users.of(uid)
    return str(uid) if found is None else found.pw_name


def user_name(uid: int) -> str:
    """The same, and the number as text where the name is not to be had now."""
    try:
        return user(uid)
    except SilentNames:
        return str(uid)


def home(uid: int) -> str:
    """The home directory of a uid; empty where there is none, or it is not to be had now."""
    try:
        found = _users.of(uid)
    except SilentNames:
        return ""
    return "" if found is None else found.pw_dir


def uid_of(name: str, seconds: float) -> int | None:
    """The uid of a user's name, None where there is no such user. Raises Silent where `seconds` do not tell."""
    return _uids.of(name, seconds)


def gid_of(group: str) -> int | None:
    """The gid of a group's name; None where there is no such group, or it is not to be had now."""
    try:
        return _gids.of(group)
    except SilentNames:
        return None
