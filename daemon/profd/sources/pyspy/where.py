"""The stacks of a process right now, for `profctl where`."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import deque
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

from profd.errors import Denied, Exhausted, JobFailed, NotFound, ProfdError
from profd.model.capture import Reason
from profd.model.frame import Frame
from profd.model.text import printable_text
from profd.sources.pyspy import tool
from profd.sources.pyspy.confinement import confine
from profd.sources.pyspy.dump import Dump, RawFrame, RawThread
from profd.sources.pyspy.joins import Selves, held, joined, named, wait_for_gil, waits_in_join
from profd.sources.pyspy.permission import Rights, dumpable, permission, permission_now
from profd.sources.pyspy.stack import ThreadStack, completed, marked
from profd.sources.pyspy.target import Target
from profd.targets.first_looks import accept
from profd.targets.identity import Accepted
from profd.targets.process import Process

DUMP_SECONDS: Final = 20.0
DUMP_BYTES_MAX: Final = 8 << 20  # of JSON, equal stacks once: decoded with the GIL held, in 0.1 s
SAID_BYTES_MAX: Final = 64 << 20  # of it as it is printed: a thread has each frame's names again
_TAKEN_BYTES: Final = 1 << 18  # at a time: a millisecond
NAME_CHARACTERS: Final = 1024
# A stack may change while it is read, since the process is not paused.
_ATTEMPTS: Final = 3
# Looks again at stacks that may be incomplete. A look takes 0.1 s and pauses nobody.
_LOOKS_AGAIN: Final = 4
_LOOKS_AGAIN_SECONDS: Final = 5.0
_UNPAUSED: Final = "--nonblocking"
_WAITING_MAX: Final = 256  # threads that are asked whether they wait for a lock


async def stacks(process: Process, native: bool = False) -> list[ThreadStack]:
    """Every Python thread of a process, its main thread first.

    Without native frames the process is not paused, and a stack that begins in the middle is looked at again;
    what stays so is `incomplete`. Raises NotFound if it has ended or runs no Python, Denied if its memory may
    not be read, JobFailed or Exhausted if py-spy fails, each with what to do.
    """
    subject = f"process {process.id.pid}"
    allowed = permission(process, Rights.mine(), dumpable(process))
    if not allowed.can:
        raise Denied(f"{allowed.reason} {allowed.fix}")
    target = Target(process)
    # In threads, where a look may take longer than on the event loop: busy hosts let it wait.
    if not await asyncio.to_thread(target.alive):
        raise NotFound(f"{subject} has ended.")
    if native and target.stopped():
        raise JobFailed(f"{subject} is stopped, and native frames need to stop it in another way. Leave out --native.")
    with contextlib.closing(await accept(process.id, process.uid, together=1)) as accepted:
        return await _stacks(target, native, accepted)


async def _stacks(target: Target, native: bool, accepted: Accepted) -> list[ThreadStack]:
    unable = await asyncio.to_thread(accepted.hold)
    if unable:
        raise Denied(unable)
    now = permission_now(target.process, accepted, Rights.mine())
    if not now.can:
        await asyncio.to_thread(_check, accepted)
        raise Denied(f"{now.reason} {now.fix}")
    how = "--native" if native else _UNPAUSED
    stopped = await asyncio.to_thread(target.stopped)  # before the look: py-spy stops it, too, for native frames
    seen = await _look(target, accepted, how)
    seen = await _with_names(target, seen, accepted)
    threads = await asyncio.to_thread(_in_order, seen, target.process.id.pid)  # of a hundred thousand frames, perhaps
    if not native:  # else it was paused while it was read, and begins in the C library
        threads = await _look_again(target, marked(threads), accepted)
    threads = [dataclasses.replace(thread, stopped=stopped) for thread in threads] if stopped else threads
    threads = await _with_joins(target, threads, accepted)
    idents = {thread.thread_id: thread.os_thread_id for thread in seen if thread.os_thread_id}
    return await _with_holders(target, threads, accepted, idents)


async def _with_names(target: Target, seen: list[RawThread], accepted: Accepted) -> list[RawThread]:
    """The same threads, by name. py-spy has no name for any where one is odd: half a character, or very long."""
    if not seen or any(thread.thread_name for thread in seen):
        return seen
    with contextlib.suppress(TimeoutError, ProfdError):
        async with asyncio.timeout(_LOOKS_AGAIN_SECONDS):
            idents = [str(thread.thread_id) for thread in seen]
            said = await _said(target, accepted, None, idents, native=False, what=tool.NAMES)
        names = await asyncio.to_thread(named, said)
        for thread in seen:
            thread.thread_name = names.get(thread.thread_id)
    return seen


async def _look_again(target: Target, threads: list[ThreadStack], accepted: Accepted) -> list[ThreadStack]:
    """The same threads, with whole stacks where another look has them. Stacks that it lacks stay as they are."""
    with contextlib.suppress(TimeoutError, ProfdError):
        async with asyncio.timeout(_LOOKS_AGAIN_SECONDS):
            for _ in range(_LOOKS_AGAIN):
                if not any(thread.incomplete for thread in threads):
                    break
                again = await _look(target, accepted, _UNPAUSED)
                threads = await asyncio.to_thread(_completed, threads, again)
    return threads


async def _with_joins(target: Target, threads: list[ThreadStack], accepted: Accepted) -> list[ThreadStack]:
    """Threads that wait for the end of another name it, where a look at local variables tells, which are not kept."""
    joining = {thread.thread for thread in threads if not thread.active and waits_in_join(thread.frames)}
    if not joining:
        return threads
    with contextlib.suppress(TimeoutError, ProfdError):
        async with asyncio.timeout(_LOOKS_AGAIN_SECONDS):
            seen = await _look(target, accepted, _UNPAUSED, "--locals")
        found = await asyncio.to_thread(joined, map(_selves, seen))
        return [
            dataclasses.replace(thread, joins=found.get(thread.thread, 0)) if thread.thread in joining else thread
            for thread in threads
        ]
    return threads


async def _with_holders(
    target: Target, threads: list[ThreadStack], accepted: Accepted, idents: dict[int, int]
) -> list[ThreadStack]:
    """Threads that wait for a lock name the thread that holds it, where that is sure, or say that it is the GIL.

    `idents`: the thread's id as the process knows it, by what Python knows it as.
    """
    # To py-spy one that waits for the GIL runs.
    asked = sorted((each for each in threads if not (each.owns_gil or each.joins)), key=lambda each: each.active)
    waiting = [thread.thread for thread in asked[:_WAITING_MAX]]
    if not waiting or len(target.process.namespace_pids) > 1:  # there its ids are not the host's
        return threads
    with contextlib.suppress(TimeoutError, ProfdError):
        async with asyncio.timeout(_LOOKS_AGAIN_SECONDS):
            arguments = [str(thread) for thread in waiting]
            said = await _said(target, accepted, None, arguments, native=False)
        found, gil = held(said, idents), wait_for_gil(said)
        return [
            dataclasses.replace(thread, lock_holder=found.get(thread.thread, 0), waits_gil=thread.thread in gil)
            for thread in threads
        ]
    return threads


async def _look(target: Target, accepted: Accepted, *how: str) -> list[RawThread]:
    """The stacks that py-spy saw; a look that fails is repeated, since its data may change meanwhile."""
    for attempt in range(_ATTEMPTS):
        try:
            return await _dump(target, accepted, *how)
        except JobFailed:
            if attempt == _ATTEMPTS - 1 or not accepted.same:
                raise
    raise AssertionError("the last attempt returns or raises")


async def _dump(target: Target, accepted: Accepted, *how: str) -> list[RawThread]:
    """What `py-spy dump` says; ProfdError if it fails, and if the process was not the accepted one."""
    program = tool.find()
    if program is None:
        raise JobFailed("py-spy is not installed. Install it beside profd: pip install py-spy, in profd's environment.")
    arguments = ["dump", "--pid", str(target.process.id.pid), "--json", "--full-filenames", *how]
    dump = Dump()
    left = await _said(target, accepted, program, arguments, native=_UNPAUSED not in how, dump=dump)
    return await asyncio.to_thread(dump.end, left, target.process.id.pid)


async def _said(
    target: Target,
    accepted: Accepted,
    program: Path | None,
    arguments: list[str],
    *,
    native: bool,
    what: str = "locks",
    dump: Dump | None = None,
) -> bytes:
    """What py-spy prints and `dump` has not taken, or `what` of profd-sampler where there is no program.

    ProfdError as of `_dump`.
    """
    _check(accepted)
    pid = target.process.id.pid
    try:
        confinement = await asyncio.to_thread(confine, target.process, native)
        if program is None:  # it opens no library, so nobody need hand one over
            confinement = dataclasses.replace(confinement, warden=False)
        pyspy = await tool.spawn(program, arguments, confinement, "launch" if program else what)
    except OSError as error:
        raise JobFailed(f"py-spy could not be started: {error}.") from error
    said, words = bytearray(), deque[str](maxlen=tool.LINES_KEPT)
    answer = asyncio.create_task(_bounded(pyspy, said, dump))
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
    _check(accepted)  # py-spy reads no more, and nothing of what it said has gone anywhere
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


async def _bounded(pyspy: asyncio.subprocess.Process, said: bytearray, dump: Dump | None) -> None:
    in_all = 0
    while pyspy.stdout is not None and (part := await pyspy.stdout.read(1 << 16)):
        said += part
        in_all += len(part)
        if dump is not None and len(said) >= _TAKEN_BYTES:
            await asyncio.to_thread(dump.take, said)
        held = len(said) + (dump.bytes if dump is not None else 0)
        if held > DUMP_BYTES_MAX or in_all > SAID_BYTES_MAX:
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


def _in_order(threads: list[RawThread], pid: int) -> list[ThreadStack]:
    """The main thread first, by its usual name where the program has not named it."""
    named = (
        dataclasses.replace(stack, name="MainThread") if stack.thread == pid and not stack.name else stack
        for stack in _stacks_of(threads)
    )
    return sorted(named, key=lambda stack: (stack.name != "MainThread", stack.thread))


def _stacks_of(threads: list[RawThread]) -> list[ThreadStack]:
    """Equal stacks stay one."""
    shared: dict[int, tuple[Frame, ...]] = {}
    return [_stack(thread, shared) for thread in threads]


def _completed(threads: list[ThreadStack], again: list[RawThread]) -> list[ThreadStack]:
    return completed(threads, _stacks_of(again))


def _stack(thread: RawThread, shared: dict[int, tuple[Frame, ...]]) -> ThreadStack:
    frames = shared.get(id(thread.frames))
    if frames is None:
        frames = shared[id(thread.frames)] = tuple(map(_frame, thread.frames))
    return ThreadStack(
        thread=thread.os_thread_id or thread.thread_id,
        name=_clean(thread.thread_name or ""),
        active=thread.active,
        owns_gil=thread.owns_gil,
        frames=frames,
    )


def _selves(thread: RawThread) -> Selves:
    return Selves(
        thread=thread.os_thread_id or thread.thread_id,
        frames=tuple(
            (_frame(frame), next((local.repr or "" for local in frame.locals or () if local.name == "self"), ""))
            for frame in thread.frames
        ),
    )


def _frame(frame: RawFrame) -> Frame:
    return Frame(_clean(frame.name), _clean(frame.filename), max(0, frame.line))


def _clean(text: str) -> str:
    return printable_text(text, NAME_CHARACTERS)
