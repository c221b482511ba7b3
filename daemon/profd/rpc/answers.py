"""The answer to a question in pieces, as every RPC sends it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Final

from profd.errors import BadInput
from profd.fairness.shares import Holder
from profd.limits import ANSWER_BYTES_MAX, RPC_CHUNK_BYTES, MiB
from profd.model.question import AnswerKind, Cost
from profd.questions.library import Library
from profd.questions.reading import Asked, with_record
from profd.rpc.calls import HeldAnswers
from profd.rpc.stream import streamed
from profd.trust import caller as callers

_OTHERWISE: Final = "ask for fewer rows (`limit`), or by SQL, or export the trace"

Crowded = Callable[[int], bool]  # whether others than this uid wait for a worker


class Answers:
    """Answers of a library to all callers, and what the daemon holds of them until it is read."""

    def __init__(self, library: Library, crowded: Crowded, held: HeldAnswers | None = None) -> None:
        """`held`: where what is held is counted, of all that answers."""
        self._library = library
        self._crowded = crowded
        self._held = held or HeldAnswers()

    async def pieces(self, asked: Asked) -> AsyncGenerator[bytes, None]:
        """The bytes of an answer.

        Raises the job's error, Exhausted where the client does not read for too long, and Refused.
        """
        short = asked.question.cost is not Cost.LONG and asked.question.answer is not AnswerKind.ROWS
        text = await self._short(asked) if short else await self._kept(asked) if asked.question.rollups else b""
        if short or text:
            for at in range(0, len(text), RPC_CHUNK_BYTES):
                yield text[at : at + RPC_CHUNK_BYTES]
            return
        uid = callers.current().uid
        produced = streamed(lambda fd: self._library.answer(asked, fd), crowded=lambda: self._crowded(uid))
        async with contextlib.aclosing(produced) as chunks:
            async for chunk in chunks:
                yield chunk

    async def whole(self, asked: Asked, most: int, otherwise: str) -> bytes:
        """A short answer as its worker wrote it: the daemon does not parse bytes whose size a trace decides.

        It counts as held until the call of this task has ended. Raises BadInput above `most` bytes (`otherwise` is a
        sentence that names another way to ask), and Refused where its user leaves too much unread.
        """
        return await self._read(lambda fd: self._library.answer(asked, fd), most, otherwise)

    async def _read(self, produce: Callable[[int], Coroutine[Any, Any, object]], most: int, otherwise: str) -> bytes:
        text, counted = bytearray(), 0
        async with contextlib.aclosing(streamed(produce)) as chunks:
            try:
                async for chunk in chunks:
                    text += chunk
                    if len(text) > most:
                        raise BadInput(f"the answer has more than {most} bytes, the limit; {otherwise}")
                    self._held.hold(Holder.of(callers.current()), len(text) // MiB - counted)
                    counted = len(text) // MiB
            except BaseException:
                text.clear()  # the error's traceback has this frame, and lives until the collector finds it
                raise
        return bytes(text)

    async def _kept(self, asked: Asked) -> bytes:
        """A long answer, where it was kept; else nothing. It is read at once: its job is a glance."""
        return await self._read(lambda fd: self._library.answer_kept(asked, fd), ANSWER_BYTES_MAX, _OTHERWISE)

    async def _short(self, asked: Asked) -> bytes:
        answer = await self.whole(asked, ANSWER_BYTES_MAX, _OTHERWISE)
        return with_record(answer, asked.traces[0]) if asked.question.with_record else answer
