"""What brings lines to a relay and back: a process for each host, or a share in one (`profclient.fleet.step`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from profclient.errors import UnreachableError

GOODBYE_SECONDS: Final = 3.0
SHELL_FOUND_NOTHING: Final = 127
_REMARKS: Final = 8
_REMARK_CHARACTERS: Final = 300
_READ_BYTES: Final = 64 * 1024
T = TypeVar("T")


class Carrier(Protocol):
    """Lines go in whole, bytes come out; `leave` at the end, however that went."""

    @property
    def remarks(self) -> Sequence[str]:
        """The last lines that it wrote beside the relay's."""

    def write(self, line: bytes) -> None:
        """Takes it, or drops it where the carrier has ended."""

    async def drain(self) -> None:
        """Until there is room for more. Raises OSError where it has ended."""

    async def read(self) -> bytes:
        """Empty at the end."""

    async def why_ended(self) -> str:
        """After the end."""

    def give_up(self) -> None:
        """End it now."""

    async def leave(self) -> None:
        """The conversation is over: it ends by itself soon, or is ended."""


class Alone:
    """A process that carries one relay."""

    def __init__(self, process: Process, heard: Callable[[str], None]) -> None:
        self.remarks: deque[str] = deque(maxlen=_REMARKS)
        self.pid = process.pid
        self._process, self._heard = process, heard
        self._input, self._output = _there(process.stdin), _there(process.stdout)
        self._listening = asyncio.get_running_loop().create_task(self._listen(_there(process.stderr)))

    @classmethod
    async def started(
        cls,
        command: Sequence[str],
        environ: Mapping[str, str] | None = None,
        heard: Callable[[str], None] = lambda _: None,
    ) -> Alone:
        """`heard` is called with each line that it remarks. Raises UnreachableError where it cannot be started."""
        environ = os.environ if environ is None else environ
        # A session of its own: Ctrl-C is ours, and what to do about it. Nothing of ours is a target.
        making = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                start_new_session=True,
                env={**environ, "PROFD_ATTACH": "0"},
            )
        )
        try:
            return cls(await asyncio.shield(making), heard)
        except (OSError, ValueError) as error:
            raise UnreachableError(f"{command[0]!r} cannot be run: {error}") from error
        except asyncio.CancelledError:
            await cls(await making, heard).leave()  # it runs, or is about to
            raise

    def write(self, line: bytes) -> None:
        """See Carrier."""
        if not self._input.is_closing():
            self._input.write(line)

    async def drain(self) -> None:
        """See Carrier."""
        await self._input.drain()

    async def read(self) -> bytes:
        """See Carrier."""
        return await self._output.read(_READ_BYTES)

    async def why_ended(self) -> str:
        """See Carrier. One that has closed its output says why by its exit code."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), GOODBYE_SECONDS)
        await asyncio.wait([self._listening], timeout=1.0)
        code = self._process.returncode
        if code == SHELL_FOUND_NOTHING:
            return "the host has no such command; --remote-python names a Python there that has profclient"
        return "the carrier closed its output" if code is None else f"the carrier ended with exit code {code}"

    def give_up(self) -> None:
        """See Carrier."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    async def leave(self) -> None:
        """See Carrier."""
        self._input.close()
        try:
            await asyncio.wait_for(self._process.wait(), GOODBYE_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        _transport(self._process).close()  # a pipe that is full, and not read any more, never comes to its end
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)

    async def _listen(self, errors: asyncio.StreamReader) -> None:
        rest = ""
        while data := await errors.read(_READ_BYTES):
            *lines, rest = (rest + data.decode(errors="replace")).split("\n")
            for line in lines:
                self._remark(line)
            rest = rest[:_REMARK_CHARACTERS]
        if rest:
            self._remark(rest)

    def _remark(self, line: str) -> None:
        self.remarks.append(line[:_REMARK_CHARACTERS])
        self._heard(line[:_REMARK_CHARACTERS])


def _transport(process: Process) -> asyncio.SubprocessTransport:
    found: asyncio.SubprocessTransport = vars(process)["_transport"]
    return found


def _there(pipe: T | None) -> T:
    if pipe is None:
        raise UnreachableError("the carrier has no pipes")
    return pipe
