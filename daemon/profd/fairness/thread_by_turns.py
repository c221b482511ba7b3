"""A thread for short work that waits for nobody and is done often: users in turn, of one user what was asked first."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar, TypeVarTuple

Answer = TypeVar("Answer")
Given = TypeVarTuple("Given")


class ThreadByTurns:
    """Begins with the first work, and ends with the program. Safe to use from any thread."""

    def __init__(self, name: str, prepare: Callable[[], object] = lambda: None) -> None:
        """`prepare`: done by the thread before any work."""
        self._name = name
        self._prepare = prepare
        self._changed = threading.Condition()
        self._asked: OrderedDict[int, deque[Callable[[], None]]] = OrderedDict()  # whose turn is next, first
        self._thread: threading.Thread | None = None

    def submit(self, uid: int, work: Callable[[*Given], Answer], *given: *Given) -> Future[Answer]:
        """Have it done when it is this user's turn. One that is cancelled before is left out."""
        future: Future[Answer] = Future()

        def do() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work(*given))
                except BaseException as error:
                    future.set_exception(error)

        with self._changed:
            self._asked.setdefault(uid, deque()).append(do)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify()
        return future

    @property
    def waiting(self) -> int:
        """Work that has not begun."""
        with self._changed:
            return sum(map(len, self._asked.values()))

    def _run(self) -> None:
        self._prepare()
        while True:
            with self._changed:
                while not self._asked:
                    self._changed.wait()
                uid, work = next(iter(self._asked.items()))
                do = work.popleft()
                if work:
                    self._asked.move_to_end(uid)
                else:
                    del self._asked[uid]
            do()
