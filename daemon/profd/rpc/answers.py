"""The answer to a question in pieces, as every RPC that asks one sends it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Callable

from profd.limits import RPC_CHUNK_BYTES
from profd.model.question import Cost
from profd.questions.library import Asked, Library
from profd.rpc.stream import streamed
from profd.trust import caller as callers

Crowded = Callable[[int], bool]  # whether others than this uid wait for a worker


async def pieces(library: Library, asked: Asked, crowded: Crowded) -> AsyncGenerator[bytes, None]:
    """Its bytes. Raises what the job raises, and Exhausted where a long answer is not read for too long."""
    if asked.question.cost is Cost.SHORT:
        text = json.dumps(await library.answer(asked)).encode() + b"\n"
        for at in range(0, len(text), RPC_CHUNK_BYTES):
            yield text[at : at + RPC_CHUNK_BYTES]
        return
    uid = callers.current().uid
    produced = streamed(lambda fd: library.answer(asked, fd), crowded=lambda: crowded(uid))
    async with contextlib.aclosing(produced) as chunks:
        async for chunk in chunks:
            yield chunk
