"""The socket between a streamer and its daemon: one small JSON object per packet, an arena's descriptor with some.

The daemon says `{"do": "drain" | "lead" | "finish" | "drop", "incarnation",
"epoch"}`, `drain` with the descriptor, `drain` and `lead` with `"lead"` (bytes
that may be allocated in the arena, in all), `finish` with `"target_died"`. The
streamer says `{"said": "finished" | "failed" | "lead", "incarnation", "epoch",
"why"}`; `lead` asks for more of it. Ids are 16 hexadecimal digits.
The end of the socket is the end of the streamer: the daemon, or its successor,
starts another.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import os
import socket
from dataclasses import dataclass
from typing import Any

MESSAGE_BYTES_MAX = 4096
Key = tuple[int, int]  # incarnation, epoch


@dataclass(frozen=True, slots=True)
class StreamerOrder:
    """An order of the daemon. The receiver owns the descriptor."""

    do: str
    key: Key
    fd: int | None
    target_died: bool
    lead: int  # bytes


class Link:
    """The streamer's end."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock

    async def order(self) -> StreamerOrder | None:
        """The next one; None when the daemon is gone. Raises ValueError when it speaks something else."""
        data, fds = await self._receive()
        if not data:
            return None
        fd = fds.pop() if fds else None
        for surplus in fds:
            os.close(surplus)
        try:
            message = json.loads(data)
            key = (int(message["incarnation"], 16), int(message["epoch"], 16))
            died, lead = bool(message.get("target_died", False)), int(message.get("lead", 0))
            return StreamerOrder(str(message["do"]), key, fd, died, lead)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"the daemon said {data!r:.200}") from error

    def say(self, said: str, key: Key, why: str = "") -> None:
        """Tell the daemon; when it is gone, `order` says so."""
        message = {"said": said, "incarnation": f"{key[0]:016x}", "epoch": f"{key[1]:016x}", "why": why[:1024]}
        with contextlib.suppress(OSError):
            self._sock.send(json.dumps(message).encode(), socket.MSG_NOSIGNAL)

    def close(self) -> None:
        """End it."""
        self._sock.close()

    async def _receive(self) -> tuple[bytes, list[int]]:
        while True:
            try:
                # Not recv_fds: it loses the close-on-exec flag on the Pythons we run on.
                data, ancillary, _, _ = self._sock.recvmsg(
                    MESSAGE_BYTES_MAX, socket.CMSG_SPACE(4 * 4), socket.MSG_CMSG_CLOEXEC
                )
                return data, _descriptors(ancillary)
            except BlockingIOError:
                await self._readable()
            except OSError:
                return b"", []

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._sock.fileno(), ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._sock.fileno())


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found: list[int] = []
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds: Any = array.array("i")
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
            found.extend(fds)
    return found
