"""Our errors as gRPC statuses.

The status message is the sentence; trailing metadata `profd-error` repeats it
as JSON `{"kind", "message"}` (kind is the class's name), so that a client can
tell types apart without parsing prose. Where a share is used up it has `share`,
`limit`, `use` and `retry_s`, too.
"""

from __future__ import annotations

import errno
import json
from typing import Any, Final

import grpc

from profd.errors import Exhausted, ProfdError
from profd.fairness.shares import Refused
from profd.model.text import encodable

METADATA_KEY: Final = "profd-error"
# gRPC peers refuse metadata above 8 kB. The message travels twice: percent-encoded, and as escaped JSON.
_ENCODED_BYTES_MAX: Final = 3000


class Draining(ProfdError):
    """The daemon is shutting down."""

    status = "UNAVAILABLE"
    exit_code = 7


class Fault(ProfdError):
    """A bug of ours, shown without a traceback."""


def known(error: Exception) -> ProfdError:
    """The error as one of ours: a full disk is Exhausted, an unforeseen error is a Fault."""
    if isinstance(error, ProfdError):
        return error
    # Writing to an open file names none.
    where = f" ({error.filename})" if isinstance(error, OSError) and error.filename else ""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Exhausted(f"the disk is full{where}; free space, or `profctl rm` traces")
    if isinstance(error, OSError):
        return Fault(f"{error.strerror or error}{where}")
    return Fault(f"{type(error).__name__}: {error}. This is a fault of profd; its log says more.")


def status_code(error: ProfdError) -> grpc.StatusCode:
    """The gRPC code of one of our errors."""
    return grpc.StatusCode[error.status]


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: ProfdError) -> None:
    """End the call with this error; never returns."""
    told = detail(error)
    await context.abort(status_code(error), str(told["message"]), ((METADATA_KEY, json.dumps(told)),))


def detail(error: ProfdError) -> dict[str, float | str]:
    """The metadata of an error."""
    return {"kind": type(error).__name__, "message": _fitting(str(error)), **_numbers(error)}


def _numbers(error: ProfdError) -> dict[str, float | str]:
    """The numbers by which a client decides when to ask again."""
    if not isinstance(error, Refused):
        return {}
    return {"share": error.kind, "limit": error.limit, "use": error.use, "retry_s": round(error.retry_seconds, 3)}


def _fitting(message: str) -> str:
    """The message, cut to what metadata holds; a hostile name may take twelve bytes a character."""
    clean = encodable(message)
    encoded = 0
    for count, character in enumerate(clean):
        encoded += _cost(character)
        if encoded > _ENCODED_BYTES_MAX:
            return f"{clean[:count]} ..."
    return clean


def _cost(character: str) -> int:
    """The bytes of the longer of its two forms: `%0A` or `\\u000a`."""
    if character < " " or character == "\x7f":
        return 6
    if character > "~" or character == "%":
        return 3 * len(character.encode())
    return 2 if character in '"\\' else 1
