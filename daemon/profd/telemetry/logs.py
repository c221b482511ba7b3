"""Logging: JSON lines for machines, text for a person at a terminal.

The standard library's records; `extra={…}` becomes fields. Strings from
targets may be hostile: both forms escape control characters.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Final, TextIO

from profd.fairness.rare_line import RareLine

_STANDARD: Final = frozenset(logging.LogRecord("", 0, "", 0, "", None, None).__dict__) | {
    "message",
    "asctime",
    "taskName",
}

_SAYS_CHARACTERS_MAX: Final = 300  # of a line of gRPC's


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC, RFC 3339), level, logger, message, then the extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        entry: dict[str, object] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class TextFormatter(logging.Formatter):
    """`12:03:04 warning profd.store  message  key=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, followed by a traceback if there is one."""
        when = time.strftime("%H:%M:%S", time.localtime(record.created))
        fields = "".join(f"  {name}={_printable(str(value))}" for name, value in _extra(record).items())
        line = f"{when} {record.levelname.lower():7} {record.name}  {_printable(record.getMessage())}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def setup(level: str, form: str = "auto", stream: TextIO | None = None) -> None:
    """Send all logging to the stream, or stderr; `form` is auto (text on a terminal), json or text."""
    stream = stream or sys.stderr
    text = form == "text" or (form == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter() if text else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    grpc = logging.getLogger("grpc")
    grpc.handlers[:] = [_Rarely()]
    grpc.propagate = False


class _Rarely(logging.Handler):
    """For what gRPC's server logs, with a traceback for each client that went away too early: now and then one."""

    def __init__(self) -> None:
        super().__init__()
        self._line = RareLine(logging.getLogger("profd.rpc"), "gRPC's server says something")

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._line.tell(error=error, says=record.getMessage()[:_SAYS_CHARACTERS_MAX])


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
