"""What workers weigh on a core, beside each other: jobs that last give way while somebody waits for an answer.

Where Linux shares out cores between sessions (`profclient/priority.py`), the session of each worker has its own weight,
and the daemon sets that. A session that lasts is low for as long as questions or captures run, and no longer: on a host
that is full of other work it would hardly go on there. Elsewhere the thread of such a job is nicer (`process.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profclient.priority import NICE_MAX, led_session, nice_of, set_nice

from profd.limits import LASTING_LOW_SECONDS, LASTING_NICE

_AGAIN_SECONDS: Final = 0.1  # the kernel takes ten changes a second of those without CAP_SYS_ADMIN


@dataclass(slots=True)
class _Session:
    file: int
    usual: int  # its nice value while nobody waits
    lasts: bool  # the job that its worker has now


class Weights:
    """The weights of a pool's workers. On the event loop's thread."""

    def __init__(self) -> None:
        self._sessions: dict[int, _Session] = {}  # by pid, of jobs that last, and those that are low still
        self._others = 0  # jobs that run and do not last
        self._low_until = 0.0  # time of the event loop
        self._look: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def during(self, pid: int, *, lasts: bool) -> Iterator[None]:
        """The time of a job of this worker, which runs."""
        with self._one_that_lasts(pid) if lasts else self._one_that_is_waited_for():
            self._settle()
            yield

    def awaited(self) -> bool:
        """Whether a job runs that somebody waits for, or ended a moment ago: the next one mostly follows."""
        return self._others > 0 or asyncio.get_running_loop().time() < self._low_until

    def close(self) -> None:
        """Change nothing any more: the workers end."""
        for pid in list(self._sessions):
            self._forget(pid)
        self._settle()

    @contextlib.contextmanager
    def _one_that_lasts(self, pid: int) -> Iterator[None]:
        session = self._sessions.get(pid) or _session(pid)
        if session is None:
            yield
            return
        session.lasts = True
        self._sessions[pid] = session
        try:
            yield
        finally:
            session.lasts = False
            self._settle()

    @contextlib.contextmanager
    def _one_that_is_waited_for(self) -> Iterator[None]:
        self._others += 1
        try:
            yield
        finally:
            self._others -= 1
            self._low_until = asyncio.get_running_loop().time() + LASTING_LOW_SECONDS
            self._settle()

    def _settle(self) -> None:
        """Give each session the nice value that it should have now, and look again when another may be right."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        if not self._sessions:
            return
        loop = asyncio.get_running_loop()
        pause = 0.0 if self._others else max(self._low_until - loop.time(), 0.0)
        for pid, session in list(self._sessions.items()):
            low = session.lasts and (self._others or pause)
            try:
                _change(session.file, session.usual + LASTING_NICE if low else session.usual)
            except BlockingIOError:
                pause = _AGAIN_SECONDS
            except (OSError, ValueError):  # its worker has ended
                self._forget(pid)
            else:
                if not session.lasts:
                    self._forget(pid)
        if pause:
            self._look = loop.call_later(pause, self._settle)

    def _forget(self, pid: int) -> None:
        os.close(self._sessions.pop(pid).file)


def _session(pid: int) -> _Session | None:
    """That of a worker, where it leads one that Linux shares out cores to."""
    file = led_session(pid)
    if file is None:
        return None
    try:
        return _Session(file, nice_of(file), lasts=True)
    except (OSError, ValueError):
        os.close(file)
        return None


def _change(session: int, nice: int) -> None:
    nice = min(nice, NICE_MAX)
    if nice_of(session) != nice:
        set_nice(session, nice)
