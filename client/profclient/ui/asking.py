"""Questions of the page, put to the daemon or to a store: those that read, and no others."""

from __future__ import annotations

import re
import select
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from profclient.errors import Interrupted, UsageError

if TYPE_CHECKING:
    from profclient.traces import Traces

QUESTIONS: Final = frozenset(
    (
        *(
            "summary",
            "explain",
            "steps",
            "top",
            "merged_tree",
            "merged_diff",
            "diff",
            "sql",
            "traces",
            "tiles",
            "tiles_index",
            "event",
            "search",
            "window",
        ),
        *("ranks", "comm", "critical", "memory", "memory_peak", "gpu"),
    ),
)
"""A store's verbs are asked by the same call: `rm` must not be among these."""
ANSWER_BYTES_MAX: Final = 64 << 20
LISTED_MAX: Final = 1000
AT_ONCE: Final = 4
"""Questions that are answered side by side; each may hold a whole answer."""
GLANCES: Final = frozenset(("tiles", "tiles_index", "event"))
GLANCES_AT_ONCE: Final = 2
"""Of those that are asked while somebody moves: they wait for no question that reads a whole trace."""
LINES: Final = frozenset(("tiles_index",))
"""Their answers are told as they come: they say how far something is."""
_ARGUMENT: Final = re.compile(r"[a-z][a-z_]{0,39}")
_TAKEN: Final = frozenset(("question", "trace", "id", "capture", "verb", "self"))  # by the call itself


@dataclass(frozen=True, slots=True)
class Question:
    """One question, checked as far as a client can; whoever answers it knows the rest."""

    name: str
    trace: str
    arguments: dict[str, Any] = field(default_factory=dict)


def checked(body: Any) -> Question:
    """The question in a request's JSON: `question`, `trace`, `arguments`. Raises UsageError."""
    if not isinstance(body, dict):
        raise UsageError("a question is a JSON object.")
    name, trace, arguments = body.get("question"), body.get("trace", ""), body.get("arguments", {})
    if not isinstance(name, str) or name not in QUESTIONS:
        raise UsageError(f"the page asks {', '.join(sorted(QUESTIONS))}; use profctl for anything else.")
    if not isinstance(trace, str) or not isinstance(arguments, dict):
        raise UsageError("a question names its trace in a string, and its arguments in an object.")
    for key, value in arguments.items():
        if not _ARGUMENT.fullmatch(key) or key in _TAKEN:
            raise UsageError("a question has an argument of a name that no question has.")
        if not isinstance(value, str | int | None):  # of the questions above none takes anything else
            raise UsageError(f"the argument {key} is neither a text nor a whole number nor a flag.")
    return Question(name, trace, arguments)


@dataclass(frozen=True, slots=True)
class Library:
    """Where traces are: a daemon, found anew for each question (it may have been restarted), or a store's folder."""

    store: Path | None = None
    _turns: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(AT_ONCE))
    _glances: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(GLANCES_AT_ONCE))

    @property
    def name(self) -> str:
        """For people."""
        return "" if self.store is None else str(self.store)

    def prepare(self) -> None:
        """Import what the first question needs: a browser takes as long to start."""
        if self.store is None:
            import profclient.traces  # noqa: F401 - gRPC comes along, 0.15 s

    def newest(self) -> list[dict[str, Any]]:
        """As `profctl list --json`. Raises ClientError."""
        with self._opened() as (traces, _):
            return traces.newest(LISTED_MAX)

    def answer(self, asked: Question, asker: socket.socket) -> bytes:
        """The whole answer. It is given up where who asked goes away. Raises ClientError."""
        with self.asked(asker, glance=asked.name in GLANCES) as traces:
            return _whole(traces.ask(asked.name, asked.trace, **asked.arguments))

    def lines(self, asked: Question, asker: socket.socket) -> Iterator[bytes]:
        """The answer as it comes, in pieces that end anywhere; given up as above. Raises ClientError."""
        with self.asked(asker, glance=asked.name in GLANCES) as traces:
            yield from traces.ask(asked.name, asked.trace, **asked.arguments)

    @contextmanager
    def asked(self, asker: socket.socket, *, glance: bool = False) -> Iterator[Traces]:
        """The traces, for a question that is given up where who asked goes away. Raises ClientError."""
        with (
            self._glances if glance else self._turns,
            self._opened() as (traces, stop),
            stopped_with(asker, stop) as gone,
        ):
            try:
                yield traces
            except ValueError as error:
                if gone.is_set():  # gRPC's word for a call on a channel that was closed before it
                    raise Interrupted("the page that asked is gone.") from error
                raise

    @contextmanager
    def _opened(self) -> Iterator[tuple[Traces, Callable[[], None]]]:
        """The traces, and how what is being asked of them is given up."""
        if self.store is not None:
            from profclient.offline import OfflineTraces

            of_store = OfflineTraces(self.store)
            yield of_store, of_store.stop
            return
        from profclient.connection import Daemon
        from profclient.traces import RemoteTraces

        with Daemon() as daemon:
            yield RemoteTraces(daemon), daemon.close


def _whole(pieces: Iterable[bytes]) -> bytes:
    found = bytearray()
    for piece in pieces:
        found += piece
        if len(found) > ANSWER_BYTES_MAX:
            raise UsageError(
                f"the answer is larger than {ANSWER_BYTES_MAX >> 20} MiB: ask for less of it, or ask profctl."
            )
    return bytes(found)


@contextmanager
def stopped_with(asker: socket.socket, stop: Callable[[], None]) -> Iterator[threading.Event]:
    """Call `stop`, from another thread, when who asked closes the connection before the block ends.

    The event says whether that was so.
    """
    over, ends = socket.socketpair()
    gone = threading.Event()

    def wait() -> None:
        watched = select.poll()
        watched.register(asker, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
        watched.register(over, select.POLLIN)
        if all(number != over.fileno() for number, _ in watched.poll()):
            gone.set()
            stop()

    waiting = threading.Thread(target=wait, name="ui-asker", daemon=True)
    with over, ends:
        waiting.start()
        try:
            yield gone
        finally:
            ends.send(b"x")
            waiting.join()
