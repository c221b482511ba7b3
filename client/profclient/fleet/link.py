"""The client's side of a relay: the conversation, on a carrier's back, and a socket that leads to its daemon.

gRPC connects to that socket, which lies in a directory of ours alone. All of it runs on one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final, TypeGuard

from profclient.errors import BusyError, ClientError, DeniedError, UnreachableError
from profclient.fleet.carrier import Carrier
from profclient.fleet.clocks import Clock
from profclient.fleet.messages import sentence
from profclient.relay.lines import DATA_BYTES_MAX, VERSION, Garbled, Message, Reader, Writer
from profclient.relay.serve import WINDOW_BYTES, acknowledged
from profclient.text import printable

CONNECT_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 30.0
PING_SECONDS: Final = 20.0
_TOKEN_SECONDS: Final = 60.0  # where the relay does not say how long one lasts
_TOKEN_SECONDS_MAX: Final = 86_400
_NS_MAX: Final = (1 << 62) - 1
_KINDS: Final[dict[str, type[ClientError]]] = {BusyError.kind: BusyError, DeniedError.kind: DeniedError}


class _Stream:
    """A connection of gRPC's, on its way through the relay."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number, self.reader, self.writer = number, reader, writer
        self.credit = WINDOW_BYTES  # that we may still send
        self.credited = asyncio.Event()
        self.brought = 0  # bytes of the daemon's, not acknowledged yet
        self.more = asyncio.Event()
        self.over = False
        writer.transport.set_write_buffer_limits(high=0)  # drain() returns when all of it has gone


class RelayLink:
    """One relay, from `opened` to `close`. `why_broken` says what ended it meanwhile; empty: nothing has."""

    def __init__(self, carrier: Carrier, path: Path) -> None:
        self.path = path  # of the socket that leads to the daemon
        self.why_broken = ""
        self.about: dict[str, Any] = {}
        self._carrier = carrier
        self._lines = Writer()
        self._answers: dict[str, deque[asyncio.Future[Any]]] = {}
        self._streams: dict[int, _Stream] = {}
        self._number = 0
        self._heard = Reader()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @classmethod
    async def opened(cls, carrier: Carrier, path: Path) -> RelayLink:
        """Greet the relay that is carried. Raises UnreachableError with the carrier's words, having left it."""
        link = cls(carrier, path)
        try:
            await link._greet()
        except BaseException:
            await link.close()
            raise
        return link

    async def token(self) -> tuple[str, float]:
        """A token of the relay's, and the seconds that it lasts. Raises ClientError."""
        answer = await self._ask("token")
        token = answer.get("token")
        if isinstance(token, str):
            if not (token.isascii() and token.isprintable()):  # gRPC sends it on, as metadata
                raise UnreachableError("the relay's token is none of a profd")
            lasts = answer.get("expires_s")
            return token, float(lasts) if _is_within(lasts, _TOKEN_SECONDS_MAX) else _TOKEN_SECONDS
        why = " ".join(str(answer.get("error") or "the relay has no token, and does not say why").split())
        raise _KINDS.get(str(answer.get("kind")), UnreachableError)(printable(sentence(why)))

    async def clock(self) -> Clock:
        """The host's clock compared to ours. Raises ClientError."""
        before, start = time.time_ns(), time.monotonic_ns()
        answer = await self._ask("clock")
        took = time.monotonic_ns() - start
        now, error, synchronised = answer.get("unix_ns"), answer.get("error_ns"), answer.get("synchronised")
        if not _is_within(now, _NS_MAX):
            raise UnreachableError("the relay does not say what time it is")
        return Clock(
            int(now) - (before + took // 2),
            took // 2,
            int(error) if _is_within(error, _NS_MAX) else None,
            synchronised if isinstance(synchronised, bool) else None,
        )

    async def close(self) -> None:
        """Say goodbye, and end the process where that does not."""
        if self._server is not None:
            self._server.close()
        if not self.why_broken:
            self._say("bye")
        self._break("it was closed here")
        await self._carrier.leave()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.path.unlink(missing_ok=True)

    async def _greet(self) -> None:
        self._run(self._read())
        self.about = await self._ask("hello", json.dumps({"version": VERSION}).encode(), CONNECT_SECONDS)
        self._run(self._ping())
        # Not serving yet: who is cancelled while asyncio begins with that has lost the socket.
        self._server = await asyncio.start_unix_server(self._accept, self.path, start_serving=False)
        await self._server.start_serving()

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _ask(self, kind: str, payload: bytes = b"", seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """The relay's answer, which is of the same kind."""
        if self.why_broken:
            raise UnreachableError(self.why_broken)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers.setdefault(kind, deque()).append(future)
        self._say(kind, 0, payload)
        try:
            return await asyncio.wait_for(future, seconds)
        except TimeoutError:
            self._break(self._sentence(f"it has said nothing for {seconds:g} s"))
            raise UnreachableError(self.why_broken) from None

    def _say(self, kind: str, stream: int = 0, payload: bytes = b"") -> None:
        self._carrier.write(self._lines.line(kind, stream, payload))

    async def _ping(self) -> None:
        """The relay ends itself where it hears nothing; and so do we."""
        while not self.why_broken:
            await asyncio.sleep(PING_SECONDS)
            await self._ask_pong()

    async def _ask_pong(self) -> None:
        with contextlib.suppress(UnreachableError):
            await self._ask("ping")

    # --- what the relay says ---

    async def _read(self) -> None:
        try:
            while data := await self._carrier.read():
                for line in self._heard.feed(data):
                    self._take(line)
            self._heard.end()
        except Garbled as error:
            self._break(self._sentence(str(error)))
            self._carrier.give_up()
            return
        self._break(self._sentence(await self._carrier.why_ended()))

    def _sentence(self, why: str) -> str:
        said = [*self._carrier.remarks] or [line.decode(errors="replace") for line in self._heard.noise]
        words = "; ".join(printable(line.strip()) for line in said if line.strip())
        return f"{why}: {words}" if words else why

    def _take(self, line: Message) -> None:
        """Raises Garbled for what no relay says."""
        if line.kind == "error":
            raise Garbled(f"the relay gave up: {printable(sentence(line.payload.decode(errors='replace')))}")
        if line.kind in ("data", "ack", "close"):
            stream = self._streams.get(line.stream)
            if stream is not None:  # else it was closed here a moment ago
                self._carry(stream, line)
            return
        waiting = self._answers.get({"pong": "ping"}.get(line.kind, line.kind))
        if not waiting:
            raise Garbled(f"the relay says {line.kind}, and nobody has asked")
        answer = _object(line)
        future = waiting.popleft()
        if not future.done():
            future.set_result(answer)

    def _carry(self, stream: _Stream, line: Message) -> None:
        if line.kind == "data":
            stream.brought += len(line.payload)
            if stream.brought > WINDOW_BYTES:
                raise Garbled(f"stream {stream.number} has more on the way than its window")
            stream.writer.write(line.payload)
            stream.more.set()
        elif line.kind == "ack":
            stream.credit += acknowledged(line, WINDOW_BYTES - stream.credit)
            stream.credited.set()
        else:
            self._forget(stream)

    # --- gRPC's connections ---

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._number += 1
        stream = self._streams[self._number] = _Stream(self._number, reader, writer)
        if self.why_broken:
            self._forget(stream)
            return
        self._say("open", stream.number)
        self._run(self._acknowledge(stream))
        self._run(self._send(stream))

    async def _send(self, stream: _Stream) -> None:
        """Send bytes of gRPC to the relay: never more than the relay has room for."""
        try:
            while data := await stream.reader.read(min(DATA_BYTES_MAX, stream.credit)):
                stream.credit -= len(data)
                self._say("data", stream.number, data)
                await self._carrier.drain()
                while not stream.credit:
                    stream.credited.clear()
                    await stream.credited.wait()
                    if stream.over:
                        return
        except OSError:
            pass  # either end has gone, and is told so below, or has been
        if not stream.over:
            self._say("close", stream.number)
            self._forget(stream)

    async def _acknowledge(self, stream: _Stream) -> None:
        """Tell the relay that gRPC has the daemon's bytes, and that it may bring more."""
        while not stream.over:
            await stream.more.wait()
            stream.more.clear()
            sent = stream.brought
            try:
                await stream.writer.drain()
            except OSError:
                return
            if sent and not stream.over:
                stream.brought -= sent
                self._say("ack", stream.number, b"%d" % sent)

    def _forget(self, stream: _Stream) -> None:
        stream.over = True
        self._streams.pop(stream.number, None)
        stream.writer.close()
        stream.more.set()
        stream.credited.set()

    def _break(self, why: str) -> None:
        if self.why_broken:
            return
        self.why_broken = why
        for futures in self._answers.values():
            for future in futures:
                if not future.done():
                    future.set_exception(UnreachableError(why))
                    future.exception()  # whoever asked may have gone
        self._answers.clear()
        for stream in list(self._streams.values()):
            self._forget(stream)


def _object(line: Message) -> dict[str, Any]:
    if line.kind == "pong":
        return {}
    try:
        value = json.loads(line.payload)
    except (ValueError, RecursionError):
        raise Garbled(f"the relay's {line.kind} is no JSON") from None
    if not isinstance(value, dict):
        raise Garbled(f"the relay's {line.kind} is no JSON object")
    return value


def _is_within(value: Any, most: int) -> TypeGuard[float]:
    """A number of the relay's that we can count with; its host may be anybody's."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most
