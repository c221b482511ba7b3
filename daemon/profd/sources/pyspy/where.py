"""The stacks of a process right now, for `profctl where`."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from profd.errors import Denied, Exhausted, JobFailed, NotFound, ProfdError
from profd.model.capture import Reason
from profd.model.decodable import decodable
from profd.sources.pyspy import tool
from profd.sources.pyspy.confinement import confine
from profd.sources.pyspy.permission import Rights, dumpable, permission
from profd.sources.pyspy.target import Target
from profd.targets.identity import Accepted
from profd.targets.process import Process
from profd.targets.procfs import printable

DUMP_SECONDS: Final = 20.0
DUMP_BYTES_MAX: Final = 16 << 20
THREADS_MAX: Final = 4096
NAME_CHARACTERS: Final = 1024
# A stack may change while it is read, since the process is not paused.
_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame; `line` is the line it is at, 0 where it is not known."""

    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """One thread. `thread` is its id as the process knows it; frames innermost first."""

    thread: int
    name: str
    active: bool
    owns_gil: bool
    frames: tuple[Frame, ...]


class _RawFrame(msgspec.Struct):
    name: str = ""
    filename: str = ""
    line: int = 0


@decodable
class _RawThread(msgspec.Struct):
    thread_id: int
    thread_name: str | None = None
    os_thread_id: int | None = None
    active: bool = False
    owns_gil: bool = False
    frames: list[_RawFrame] = []


async def stacks(process: Process, native: bool = False) -> list[ThreadStack]:
    """Every Python thread of a process, its main thread first.

    Without native frames the process is not paused. Raises NotFound if it has
    ended or runs no Python, Denied if its memory may not be read, JobFailed or
    Exhausted if py-spy fails, each with what to do.
    """
    subject = f"process {process.id.pid}"
    allowed = permission(process, Rights.mine(), dumpable(process))
    if not allowed.can:
        raise Denied(f"{allowed.reason} {allowed.fix}")
    target = Target(process)
    if not target.alive():
        raise NotFound(f"{subject} has ended.")
    if native and target.stopped():
        raise JobFailed(f"{subject} is stopped, and native frames need to stop it in another way. Leave out --native.")
    with contextlib.closing(Accepted(process.id, process.uid)) as accepted:
        return await _stacks(target, native, accepted)


async def _stacks(target: Target, native: bool, accepted: Accepted) -> list[ThreadStack]:
    unable = await asyncio.to_thread(accepted.hold)
    if unable:
        raise Denied(unable)
    for attempt in range(_ATTEMPTS):
        try:
            said = await _dump(target, native, accepted)
            return await asyncio.to_thread(_parse, said, target.process.id.pid)
        except JobFailed:
            if attempt == _ATTEMPTS - 1 or not accepted.same:
                raise
    raise AssertionError("the last attempt returns or raises")


async def _dump(target: Target, native: bool, accepted: Accepted) -> bytes:
    """What `py-spy dump` says; ProfdError if it fails, and if what it read was not what was accepted."""
    _check(accepted)
    program = tool.find()
    if program is None:
        raise JobFailed("py-spy is not installed. Install it beside profd: pip install py-spy, in profd's environment.")
    pid = target.process.id.pid
    arguments = ["dump", "--pid", str(pid), "--json", "--full-filenames"]
    arguments.append("--native" if native else "--nonblocking")
    try:
        confinement = await asyncio.to_thread(confine, target.process, native)
        pyspy = await tool.spawn(program, arguments, confinement)
    except OSError as error:
        raise JobFailed(f"py-spy could not be started: {error}.") from error
    said, words = bytearray(), deque[str](maxlen=tool.LINES_KEPT)
    answer = asyncio.create_task(_bounded(pyspy, said))
    complaints = asyncio.create_task(_complaints(pyspy, words))
    try:
        async with asyncio.timeout(DUMP_SECONDS):
            await _first_of(answer, tool.gone(pyspy))
            await tool.gone(pyspy)
            # All that it said is on its way; others may hold its pipes, and are not waited for.
            await asyncio.wait((answer, complaints), timeout=tool.HELD_SECONDS)
    except TimeoutError as error:
        raise JobFailed(f"py-spy did not read process {pid} within {DUMP_SECONDS:.0f} s.") from error
    finally:
        answer.cancel()
        complaints.cancel()
        await asyncio.gather(answer, complaints, return_exceptions=True)
        killed = pyspy.returncode is None
        await tool.reap(pyspy)
        if native and killed:
            await target.resume_if_left_stopped()
    _check(accepted)  # py-spy reads no more, and nothing of what it said has been looked at
    if pyspy.returncode:
        raise _failure(pid, words)
    return bytes(said)


async def _first_of(answer: asyncio.Task[None], end: Coroutine[Any, Any, None]) -> None:
    """Raises what the reader of the answer raises."""
    ending = asyncio.ensure_future(end)
    try:
        await asyncio.wait((answer, ending), return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            answer.result()
    finally:
        ending.cancel()


def _check(accepted: Accepted) -> None:
    if not accepted.same:
        raise NotFound(f"{accepted.moved_on()}.")


async def _bounded(pyspy: asyncio.subprocess.Process, said: bytearray) -> None:
    while pyspy.stdout is not None and (part := await pyspy.stdout.read(1 << 16)):
        said += part
        if len(said) > DUMP_BYTES_MAX:
            raise Exhausted(
                f"The stacks of a process exceed {DUMP_BYTES_MAX >> 20} MiB; sample it instead: "
                "profctl start --source pyspy."
            )


async def _complaints(pyspy: asyncio.subprocess.Process, words: deque[str]) -> None:
    if pyspy.stderr is not None:
        await tool.last_lines(pyspy.stderr, words.append, pyspy.kill)


def _failure(pid: int, complaints: deque[str]) -> ProfdError:
    reason, sentence = tool.explain(complaints)
    kinds: dict[Reason, type[ProfdError]] = {
        Reason.NOT_PERMITTED: Denied,
        Reason.NO_SOURCE: NotFound,
        Reason.TARGET_ENDED: NotFound,
    }
    return kinds.get(reason, JobFailed)(f"process {pid} could not be read. {sentence}")


def _parse(said: bytes, pid: int) -> list[ThreadStack]:
    try:
        threads = msgspec.json.decode(said, type=list[_RawThread])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise JobFailed(f"py-spy's answer about process {pid} is malformed: {error}.") from error
    found = [_stack(thread) for thread in threads[:THREADS_MAX]]
    return sorted(found, key=lambda stack: (stack.name != "MainThread" and stack.thread != pid, stack.thread))


def _stack(thread: _RawThread) -> ThreadStack:
    return ThreadStack(
        thread=thread.os_thread_id or thread.thread_id,
        name=_clean(thread.thread_name or ""),
        active=thread.active,
        owns_gil=thread.owns_gil,
        frames=tuple(Frame(_clean(f.name), _clean(f.filename), max(0, f.line)) for f in thread.frames),
    )


def _clean(text: str) -> str:
    return printable(text[:NAME_CHARACTERS].encode("utf-8", "replace"), NAME_CHARACTERS)
