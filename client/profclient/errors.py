"""Errors of the client, with the exit code of `profctl` for each.

ClientError          1
+- UsageError       2   the request itself is wrong
+- NotFoundError    3   no such process, capture or trace
+- DeniedError      4   you may not
+- BusyError        5   held by somebody, or over a quota
+- UnreachableError 7   no daemon answers
+- TimeoutExpired 124   it took longer than you allowed
+- Interrupted    130   Ctrl-C

6 is no error: of a capture something was stored, and something is missing (`cli/capture_view.py`).
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself takes 7 ms, and a relay is started for each host of a capture
if TYPE_CHECKING:
    from typing import ClassVar


class ClientError(Exception):
    """Base of all; str() says what happened and what to do next."""

    exit_code: ClassVar[int] = 1
    kind: ClassVar[str] = "failure"


class UsageError(ClientError):
    """The request itself is wrong."""

    exit_code = 2
    kind = "usage"


class NotFoundError(ClientError):
    """No such process, capture or trace."""

    exit_code = 3
    kind = "not_found"


class DeniedError(ClientError):
    """The daemon knows you and says no."""

    exit_code = 4
    kind = "denied"


class BusyError(ClientError):
    """Held by somebody else, or a quota is used up."""

    exit_code = 5
    kind = "busy"


class UnreachableError(ClientError):
    """No daemon answers at the address."""

    exit_code = 7
    kind = "unreachable"


class TimeoutExpired(ClientError):
    """The call took longer than allowed."""

    exit_code = 124
    kind = "timeout"


class Interrupted(ClientError):
    """Ctrl-C."""

    exit_code = 130
    kind = "interrupted"


KINDS: tuple[type[ClientError], ...] = (
    ClientError,
    UsageError,
    NotFoundError,
    DeniedError,
    BusyError,
    UnreachableError,
    TimeoutExpired,
    Interrupted,
)
"""All of them: `kind` names each in JSON."""
