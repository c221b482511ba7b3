"""Messages of a call: bounds of their sizes, and of the rate of small ones.

They are parsed on the event loop, and a byte of one can stand for an object: two of an empty element, in a list of
millions. So what is parsed is small, or is one field of bytes; `limits.py` says how small, and for which methods more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from google.protobuf.message import DecodeError
from profclient.wire import fields

from profd.errors import BadInput
from profd.limits import (
    INGEST_CHUNK_BYTES_MAX,
    QUESTION_MESSAGE_BYTES_MAX,
    RPC_MESSAGE_BYTES_MAX,
    RPC_REQUEST_BYTES_MAX,
    SMALL_MESSAGE_BYTES,
    UNPROVED_MESSAGE_BYTES_MAX,
)

OURS: Final = "/profd.v1."
STREAM: Final = f"{OURS}IngestService/Stream"
IMPORT: Final = f"{OURS}TraceService/Import"
_BYTES_MAX: Final = {
    STREAM: INGEST_CHUNK_BYTES_MAX + SMALL_MESSAGE_BYTES,  # its fields beside
    IMPORT: RPC_MESSAGE_BYTES_MAX,
    f"{OURS}QueryService/Query": QUESTION_MESSAGE_BYTES_MAX,
    f"{OURS}TraceService/Sql": QUESTION_MESSAGE_BYTES_MAX,
}
_CONTENT: Final = {STREAM: (2, 2), IMPORT: (2,)}  # field numbers on the way to what alone may be large: `bytes data`
_FIELDS_MAX: Final = 16  # of a message around it


class Messages:
    """The messages of one call: its deserialiser, and the number of small messages since the last question."""

    def __init__(
        self, method: str, parse: Callable[[bytes], Any] | None, refused: Callable[[], None] = lambda: None
    ) -> None:
        """`refused` is called when a large message was refused."""
        self._method = method
        self._refused = refused
        self._parse = parse
        self._most = _BYTES_MAX.get(method, RPC_REQUEST_BYTES_MAX if method.startswith(OURS) else 0)
        self._most = self._most or UNPROVED_MESSAGE_BYTES_MAX
        self._content = _CONTENT.get(method)
        self._small = 0

    def parsed(self, data: bytes) -> Any:
        """The message. Raises BadInput."""
        if refusal := self._refusal(data):
            if len(data) > RPC_REQUEST_BYTES_MAX:
                self._refused()
            del data  # the error's traceback has this frame, and lives until the collector finds it
            raise BadInput(refusal)
        self._small += len(data) <= SMALL_MESSAGE_BYTES
        try:
            return self._parse(data) if self._parse else data
        except DecodeError as error:
            del data
            raise BadInput(f"the request is none of {self._method}") from error

    def _refusal(self, data: bytes) -> str:
        """Why it is not parsed; empty if it is."""
        size = len(data)
        if size > self._most:
            return f"a message of {size} bytes; {self._method} takes {self._most}"
        if size > RPC_REQUEST_BYTES_MAX and self._content and not _plain(memoryview(data), self._content):
            return f"a message of {size} bytes that is none of {self._method}: data is all that may be large"
        return ""

    def small(self) -> int:
        """The number of small messages since the last call."""
        small, self._small = self._small, 0
        return small


class Paced:
    """The requests of a call. After small ones the next is read later, so that the sender waits."""

    def __init__(self, requests: AsyncIterator[Any], messages: Messages, pause: Callable[[int], float]) -> None:
        """`pause`: seconds after so many small ones; raises where there may be no more."""
        self._requests = requests
        self._messages = messages
        self._pause = pause

    def __aiter__(self) -> Paced:
        return self

    async def __anext__(self) -> Any:
        """The next message. Raises the errors of its deserialiser and of `pause`."""
        if small := self._messages.small():
            seconds = self._pause(small)
            if seconds > 0:
                await asyncio.sleep(seconds)
        return await anext(self._requests)


def _plain(data: memoryview, content: tuple[int, ...]) -> bool:
    """Whether a message has few fields, small ones but for the one that its content is in."""
    field, *rest = content
    try:
        for count, (number, found) in enumerate(fields(data)):
            value = found or data[:0]
            if count >= _FIELDS_MAX or (number != field and len(value) > SMALL_MESSAGE_BYTES):
                return False
            if number == field and rest and not _plain(value, tuple(rest)):
                return False
    except (ValueError, IndexError):
        return False
    return True
