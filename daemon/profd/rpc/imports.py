"""Files that callers stream to us: how many at once, how long they may stall, and how much of the disk they take."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import BinaryIO, Final

from profproto.v1 import trace_pb2 as pb

from profd.errors import BadInput, BadTrace, Exhausted
from profd.limits import IMPORT_BYTES_MAX, IMPORT_IDLE_SECONDS, IMPORTS_MAX, IMPORTS_PER_UID_MAX
from profd.rpc.translate import text
from profd.store.ingest import format_of
from profd.store.space import Claim
from profd.trust.caller import Caller

LABEL_CHARS_MAX: Final = 255


class Slots:
    """Imports that run, from their first message to their trace. On the event loop."""

    def __init__(self) -> None:
        self._held: Counter[int] = Counter()  # by uid

    @contextlib.contextmanager
    def held_by(self, caller: Caller) -> Iterator[None]:
        """A slot for as long as it lasts. Raises Exhausted."""
        if self._held[caller.uid] >= IMPORTS_PER_UID_MAX:
            raise Exhausted(
                f"{self._held[caller.uid]} imports of yours are running, the most that one user may have: "
                "wait for one to end, then try again"
            )
        if self._held.total() >= IMPORTS_MAX and not caller.admin:
            raise Exhausted(f"{IMPORTS_MAX} imports are running on this host, the most there may be; try again later")
        self._held[caller.uid] += 1
        try:
            yield
        finally:
            self._held[caller.uid] -= 1
            self._held += Counter()  # forget who has none


async def received(
    chunks: AsyncIterator[pb.ImportChunk], file: BinaryIO, claim: Claim, idle_seconds: float = IMPORT_IDLE_SECONDS
) -> tuple[str, str]:
    """Write a streamed file down; its label and dialect.

    Raises BadTrace when it is empty, BadInput when it is too large, Exhausted when it stalls or the disk runs short.
    """
    label, dialect = "", ""
    size = promised = 0
    while (chunk := await _next(chunks, idle_seconds)) is not None:
        label = label or text(chunk.filename)[:LABEL_CHARS_MAX]
        if chunk.dialect:
            dialect = chunk.dialect
            format_of(dialect)  # before the whole file has come
        more = len(chunk.data)
        if size + more > IMPORT_BYTES_MAX:
            raise BadInput(f"the file is larger than {IMPORT_BYTES_MAX} bytes, the limit of one import")
        if size + more > promised:
            promised = size + await asyncio.to_thread(claim.hold, size, more)
        size += more
        await asyncio.to_thread(file.write, chunk.data)
    if not size:
        raise BadTrace("the file is empty")
    await asyncio.to_thread(file.seek, 0)  # flushes, too
    claim.wrote(size)
    return label or "import", dialect


async def _next(chunks: AsyncIterator[pb.ImportChunk], seconds: float) -> pb.ImportChunk | None:
    try:
        async with asyncio.timeout(seconds):
            return await anext(chunks, None)
    except TimeoutError:
        raise Exhausted(f"nothing came of this import for {seconds:g} s, so it was given up: send it again") from None
