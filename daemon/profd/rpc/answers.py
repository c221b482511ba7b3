"""The answer to a question in pieces, as every RPC sends it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Final

from profd.errors import BadInput
from profd.limits import ANSWER_BYTES_MAX, RPC_CHUNK_BYTES
from profd.model.question import Cost
from profd.questions.library import Library
from profd.questions.reading import Asked, with_record
from profd.rpc.stream import streamed
from profd.trust import caller as callers

_OTHERWISE: Final = "ask for fewer rows (`limit`), or by SQL, or export the trace"

Crowded = Callable[[int], bool]  # whether others than this uid wait for a worker


async def pieces(library: Library, asked: Asked, crowded: Crowded) -> AsyncGenerator[bytes, None]:
    """The bytes of an answer. Raises the job's error, and Exhausted where the client does not read for too long."""
    if asked.question.cost is not Cost.LONG:
        text = await _short(library, asked)
        for at in range(0, len(text), RPC_CHUNK_BYTES):
            yield text[at : at + RPC_CHUNK_BYTES]
        return
    uid = callers.current().uid
    produced = streamed(lambda fd: library.answer(asked, fd), crowded=lambda: crowded(uid))
    async with contextlib.aclosing(produced) as chunks:
        async for chunk in chunks:
            yield chunk


async def whole(library: Library, asked: Asked, most: int, otherwise: str) -> bytes:
    """A short answer as its worker wrote it: the daemon does not parse bytes whose size a trace decides.

    Raises BadInput above `most` bytes; `otherwise` is a sentence that names another way to ask.
    """
    text = bytearray()
    async with contextlib.aclosing(streamed(lambda fd: library.answer(asked, fd))) as chunks:
        async for chunk in chunks:
            text += chunk
            if len(text) > most:
                raise BadInput(f"the answer has more than {most} bytes, the limit; {otherwise}")
    return bytes(text)


async def _short(library: Library, asked: Asked) -> bytes:
    answer = await whole(library, asked, ANSWER_BYTES_MAX, _OTHERWISE)
    return with_record(answer, asked.traces[0]) if asked.question.with_record else answer
