"""Files that callers stream to us, with bounds of their stalls and their disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import BinaryIO, Final, NamedTuple

from profproto.v1 import trace_pb2 as pb

from profd.disk.space import Claim
from profd.errors import BadInput, BadTrace, Exhausted
from profd.fairness.shares import Holder
from profd.fairness.threads import in_thread
from profd.importing.ingest import format_of
from profd.limits import IMPORT_ASIDE_BYTES, IMPORT_ASIDE_SECONDS, IMPORT_BYTES_MAX, IMPORT_IDLE_SECONDS
from profd.rpc.translate import text

LABEL_CHARS_MAX: Final = 255


class Received(NamedTuple):
    """What a file is called, is to be read as, and is to be of."""

    label: str
    dialect: str
    capture: str


async def received(
    chunks: AsyncIterator[pb.ImportChunk],
    file: BinaryIO,
    claim: Claim,
    holder: Holder,
    idle_seconds: float = IMPORT_IDLE_SECONDS,
    *,
    awaited: Callable[[], bool] = lambda: False,
) -> Received:
    """Write a streamed file down; what came with it. `holder`: whose it is.

    It comes slowly while an answer is `awaited`: to carry it here takes both ends, and all cores of a small host.

    Raises BadTrace when it is empty, BadInput when it is too large, Exhausted when it stalls or the disk runs short.
    """
    label, dialect, capture = "", "", ""
    size = promised = in_a_row = 0
    first = True
    while (chunk := await _next(chunks, idle_seconds, first)) is not None:
        first = False
        label = label or text(chunk.filename)[:LABEL_CHARS_MAX]
        capture = capture or text(chunk.capture)[:LABEL_CHARS_MAX]
        if chunk.dialect:
            dialect = chunk.dialect
            format_of(dialect)  # before the whole file has come
        more = len(chunk.data)
        if size + more > IMPORT_BYTES_MAX:
            raise BadInput(f"the file is larger than {IMPORT_BYTES_MAX} bytes, the limit of one import")
        if size + more > promised:
            promised = size + await in_thread(holder, claim.hold, size, more)
        size += more
        await in_thread(holder, file.write, chunk.data)
        in_a_row += more
        if in_a_row >= IMPORT_ASIDE_BYTES:
            in_a_row = 0
            if awaited():
                await asyncio.sleep(IMPORT_ASIDE_SECONDS)
    if not size:
        raise BadTrace("the file is empty")
    await in_thread(holder, file.seek, 0)  # flushes, too
    claim.wrote(size)
    return Received(label or "import", dialect, capture)


async def _next(chunks: AsyncIterator[pb.ImportChunk], seconds: float, first: bool) -> pb.ImportChunk | None:
    """The next message with content: empty ones are no progress, except for the first, which names the dialect."""
    try:
        async with asyncio.timeout(seconds):
            while (chunk := await anext(chunks, None)) is not None and not (chunk.data or first):
                pass
            return chunk
    except TimeoutError:
        raise Exhausted(f"nothing came of this import for {seconds:g} s, so it was given up: send it again") from None
