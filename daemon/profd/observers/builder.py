"""One build, from the daemon's side: a process of the daemon's own program with the identity of who wants it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final

from profd.kernel.sealed import sealed
from profd.limits import (
    OBSERVER_ANSWER_BYTES_MAX,
    OBSERVER_BUILD_ALONE_SECONDS,
    OBSERVER_BUILD_SECONDS,
    OBSERVER_TASKS_MAX,
)
from profd.observers.group import Group
from profd.observers.tasks import Tasks
from profd.observers.torch_of import Wanted, still_there
from profd.targets import delegation, procfs
from profd.workers.listener import kernel_is

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_POLL_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 2.0  # at what its processes are at: all of /proc is gone through
_KILLED_SECONDS: Final = 5.0
_LISTENER_SECONDS: Final = 60.0  # a busy host
_PACKAGES: Final = Path(__file__).resolve().parents[2]
# Without site-packages, which cost as much as the rest of the start.
_LAUNCH: Final = (
    *(sys.executable, "-I", "-S", "-c"),
    "import sys; sys.path.append(sys.argv.pop(1)); from profd.observers.launch import main; main(sys.argv[1:])",
)

log = logging.getLogger("profd.observers")


@dataclass(frozen=True, slots=True)
class Built:
    """What became of it. `why`: there is none; `directory`: where it lies, or would."""

    why: str = ""
    directory: str = ""
    again: bool = False  # it did not begin, or had no time to end: that says nothing of the next try
    too_long: bool = False


async def build(wanted: Wanted, *, change_identity: bool, awaited: Callable[[], bool] = lambda: True) -> Built:
    """Have one built; ended, with all that it has started, when it takes too long or this is cancelled.

    `awaited`: whether somebody else waits for its place. A build has the lowest priority, so that a busy host decides
    how long it takes, and it may go on for longer while nobody does.
    """
    with contextlib.ExitStack() as opened:
        answer = opened.enter_context(sealed(b"\0" * OBSERVER_ANSWER_BYTES_MAX))
        try:
            process, listener = await _started(wanted, answer, change_identity=change_identity)
        except OSError as error:
            return Built(
                f"the builder could not be started: {error.strerror} ({error.filename or sys.executable})", again=True
            )
        tasks = Tasks(listener, too_many=lambda: _end(process))
        try:
            late, why = await _late_or_why(process, awaited)
        finally:
            tasks.close()
            _end(process)
            await _ended(process, _KILLED_SECONDS)
            code = process.poll()
        log.debug("a build has ended", extra={"tasks": tasks.started})
        if tasks.used_up:
            return Built(f"it started more than {OBSERVER_TASKS_MAX} processes and threads, and was ended")
        if why:
            return Built(f"{why}, and it was ended", too_long=True)
        if late or code is None:
            return Built(late or "it did not end", again=True, too_long=True)
        return _understood(os.pread(answer.fileno(), OBSERVER_ANSWER_BYTES_MAX, 0).rstrip(b"\0"), code)


async def _started(wanted: Wanted, answer: IO[bytes], *, change_identity: bool) -> tuple[subprocess.Popen[bytes], int]:
    """What `_start` returns. One that is cancelled meanwhile waits for it, and ends what has begun."""
    starting = asyncio.ensure_future(asyncio.to_thread(_start, wanted, answer, change_identity=change_identity))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.wait({starting})
        if starting.exception() is None:
            process, listener = starting.result()
            os.close(listener)
            _end(process)
            await _ended(process, _KILLED_SECONDS)
        raise


def _start(wanted: Wanted, answer: IO[bytes], *, change_identity: bool) -> tuple[subprocess.Popen[bytes], int]:
    """The process, and the listener of what it starts. Raises OSError."""
    if not kernel_is(5, 5):
        raise _not_counted()
    who = (wanted.uid, wanted.gid) if change_identity else (-1, -1)
    group = delegation.current().group(delegation.ChildKind.BUILDS, wanted.uid)
    with contextlib.ExitStack() as opened:
        ours, theirs = map(opened.enter_context, socket.socketpair())
        root = _root(wanted)
        if root is not None:
            opened.callback(os.close, root)
        asked = {**asdict(wanted), "root": "" if root is None else f"/proc/self/fd/{root}"}
        process = subprocess.Popen(
            [*_LAUNCH, str(_PACKAGES), group, str(theirs.fileno()), *map(str, who), *command()],
            stdin=opened.enter_context(sealed(json.dumps(asked).encode(), fcntl.F_SEAL_WRITE)),
            stdout=answer,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno(), *([] if root is None else [root])],
            cwd="/",
            env=_environment(),
            start_new_session=True,
        )
        theirs.close()
        try:
            return process, _listener(ours)
        except BaseException:
            process.kill()
            process.wait()
            raise


def command() -> list[str]:
    """What builds."""
    return [sys.executable, "-P", "-s", "-m", "profclient.torch.builder"]


def _not_counted() -> OSError:
    return OSError(errno.ENOSYS, "the kernel does not let what it starts be counted", "seccomp_unotify")


def _listener(conversation: socket.socket) -> int:
    """Of the filter that bounds what the process starts, before it is anybody's but ours. Raises OSError."""
    conversation.settimeout(_LISTENER_SECONDS)
    _, listeners, _, _ = socket.recv_fds(conversation, 1, 1)
    if not listeners:
        raise _not_counted()
    os.set_inheritable(listeners[0], False)
    return listeners[0]


async def _late_or_why(process: subprocess.Popen[bytes], awaited: Callable[[], bool]) -> tuple[str, str]:
    """Waits for its end. A sentence where it is late, or another where it is not to be waited for any longer."""
    began, group = time.monotonic(), Group(process.pid)
    while not await _ended(process, _LOOK_SECONDS):
        most = OBSERVER_BUILD_SECONDS if awaited() else OBSERVER_BUILD_ALONE_SECONDS
        if time.monotonic() - began >= most:
            return f"it took longer than {most:.0f} s", ""
        if why := await asyncio.to_thread(group.why_to_end):
            return "", why
    return "", ""


async def _ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether it ended in time; one that waits for a dead disk does not end even when it is killed.

    It is not reaped, so that its number stays its own until its group has been ended.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                await asyncio.sleep(_POLL_SECONDS)
            return True
    return False


def _root(wanted: Wanted) -> int | None:
    """The target's root, where our own mounts are read-only (`ProtectSystem=`): its user may write there."""
    if not wanted.pid:
        return None
    root = procfs.opened(f"/proc/{wanted.pid}/root", os.O_PATH | os.O_DIRECTORY)
    if not still_there(wanted):
        os.close(root)
        raise ProcessLookupError(errno.ESRCH, "the process has ended", f"/proc/{wanted.pid}/root")
    return root


def _environment() -> dict[str, str]:
    """Made here. Of the daemon's own only where its programs lie; of the target's nothing."""
    given = os.environ.get("PATH", "")
    path = os.pathsep.join(part for part in given.split(os.pathsep) if part.startswith("/")) or PATH
    made = {"PATH": path, "HOME": "/", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
    if libraries := os.environ.get("LD_LIBRARY_PATH"):  # of the daemon's Python
        made["LD_LIBRARY_PATH"] = libraries
    return {**made, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to all of its group, which is its own."""
    if process.returncode is None:  # nobody has reaped it, so the number is still its
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _understood(said_untrusted: bytes, code: int) -> Built:
    try:
        said = json.loads(said_untrusted)
        state, why = str(said["state"]), str(said.get("why", ""))
        directory = str(said["directory"])
    except (ValueError, KeyError, TypeError, RecursionError):
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return Built(f"the builder {how}")
    if not Path(directory).is_absolute():
        return Built("the builder said something that makes no sense")
    return Built("" if state == "built" else _line(why) or "it did not say why", directory)


def _line(text: str) -> str:
    """One that can be told: of a compiler's many lines the first error, else the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    chosen = next((line for line in lines if "error:" in line), lines[0] if lines else "")
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in chosen)[:300]
