"""A question: a row of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any

from profd.errors import BadInput
from profd.model.arguments import Argument, ArgumentKind

_SHOWN_CHARS = 100  # of a name that is none


class AnswerKind(Enum):
    """What an answer is, and what its function does for it; names as in query.proto."""

    VALUE = auto()  # one JSON value: the function returns it, or yields it in pieces of bytes
    ROWS = auto()  # JSON lines: the function yields (how many, their bytes)
    BYTES = auto()  # a file: the function writes it to `out` and returns how many events it has
    LIVE = auto()  # JSON lines, as something changes: no function, the daemon itself answers (rpc/live.py)


class Scope(StrEnum):
    """What a question is about: a field of query.proto's Scope."""

    TRACE = "trace"  # a stored one
    CAPTURE = "capture"  # the stored traces of one, of which the asker may read any
    HOST = "host"  # what happens on it now, as far as the asker may see it


class Cost(Enum):
    """How long an answer holds a worker: `workers/turns.py` shares the workers by it."""

    SHORT = auto()  # as long as the trace is large: the answer comes back whole, and nobody's reading holds it
    LONG = auto()  # as long as somebody reads: the answer is streamed
    GLANCE = auto()  # some ms, once its rollups are kept; somebody moves about meanwhile. Otherwise as SHORT


@dataclass(frozen=True, slots=True)
class Question:
    """What may be asked of whom, and who answers."""

    name: str
    help: str
    function: str  # "module:name": workers import what they are asked for, the daemon never does; empty: of the host
    answer: AnswerKind
    arguments: tuple[Argument, ...] = ()
    cost: Cost = Cost.LONG
    of_capture: str = ""  # as `function`, of a capture (query/captured.py); empty: only a trace can be asked
    capture_arguments: tuple[Argument, ...] = ()  # further ones, of a capture alone
    offline: bool = True  # answered on a store without a daemon, too
    audited: str = ""  # its verb in the audit log, `trace.<verb>`; empty: its name
    with_record: bool = False  # the answer is an object, and `trace` in it is what `profctl list` says of the trace
    rollups: tuple[str, ...] = ()  # files beside a trace in which what is worked out of it may be kept (docs/store.md)
    rollups_of: str = ""  # the question of the same version by whose rules these files are; empty: its own
    kept_of_capture: bool = True  # a capture may be answered by what is kept of its traces alone
    version: int = 1  # of the answer's rules: counts up when the same trace is answered differently

    @property
    def verb(self) -> str:
        """In the audit log."""
        return self.audited or self.name

    @property
    def scopes(self) -> list[Scope]:
        """What it may be asked of."""
        if self.answer is AnswerKind.LIVE:
            return [Scope.HOST]
        return [Scope.TRACE, *([Scope.CAPTURE] if self.of_capture else [])]

    @property
    def others(self) -> list[Argument]:
        """The arguments that name another trace."""
        return [argument for argument in self.arguments if argument.kind is ArgumentKind.TRACE]

    def require(self, scope: Scope) -> None:
        """Raises BadInput where it cannot be asked of such a thing."""
        if scope in self.scopes:
            return
        if Scope.HOST in self.scopes:
            raise BadInput(f"{self.name} is asked of the host, and of no {scope}")
        of, instead = ("the host", "a trace") if scope is Scope.HOST else (f"a {scope}", "one of its traces")
        raise BadInput(f"{self.name} cannot be asked of {of}: ask {instead} (`profctl list`)")

    def checked(self, values: Mapping[str, object], scope: Scope = Scope.TRACE) -> dict[str, Any]:
        """All arguments, those that are absent or None by their defaults. Raises BadInput, also for another scope."""
        self.require(scope)
        of_capture = self.capture_arguments if scope is Scope.CAPTURE else ()
        arguments = (*self.arguments, *of_capture)
        known = [argument.name for argument in arguments]
        for name in values:
            if name not in known:
                if any(name == argument.name for argument in self.capture_arguments):
                    raise BadInput(f"{self.name} has the argument {name!r} for a capture, not for a trace")
                has = f"it has: {', '.join(known)}" if known else "it has none"
                raise BadInput(f"{self.name} has no argument {name[:_SHOWN_CHARS]!r}; {has}")
        given = {name: value for name, value in values.items() if value is not None}
        return {
            argument.name: argument.checked(given[argument.name]) if argument.name in given else argument.default
            for argument in arguments
        }
