"""One build, from the daemon's side: a process of the daemon's own program with the identity of who wants it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final

from profd.limits import OBSERVER_ANSWER_BYTES_MAX, OBSERVER_BUILD_SECONDS
from profd.observers.torch_of import Wanted

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Built:
    """What became of it. `why`: there is none; `directory`: where it lies, or would."""

    why: str = ""
    directory: str = ""


async def build(wanted: Wanted, *, change_identity: bool) -> Built:
    """Have one built; ended, with all that it has started, when it takes too long or this is cancelled."""
    try:
        process = await asyncio.to_thread(_start, wanted, change_identity=change_identity)
    except OSError as error:
        return Built(f"the builder could not be started: {error.strerror} ({error.filename or sys.executable})")
    answering = asyncio.ensure_future(asyncio.to_thread(_answer, process))
    try:
        done, _ = await asyncio.wait({answering}, timeout=OBSERVER_BUILD_SECONDS)
    finally:
        _end(process)
        said = await asyncio.shield(answering)
    if not done:
        return Built(f"it took longer than {OBSERVER_BUILD_SECONDS:.0f} s")
    return _understood(said, process.returncode)


def _start(wanted: Wanted, *, change_identity: bool) -> subprocess.Popen[bytes]:
    """Raises OSError."""
    who: dict[str, Any] = {}
    if change_identity:
        # Set between fork and exec, in C: the program never runs with what the daemon may.
        who = {"user": wanted.uid, "group": wanted.gid, "extra_groups": []}
    root = _root(wanted)
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-s", "-m", "profclient.torch.builder"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=[root] if root is not None else [],
            cwd="/",
            env=_environment(),
            start_new_session=True,
            **who,
        )
    finally:
        if root is not None:
            os.close(root)
    asked = {**asdict(wanted), "root": "" if root is None else f"/proc/self/fd/{root}"}
    with contextlib.suppress(OSError), _pipe(process.stdin) as pipe:
        pipe.write(json.dumps(asked).encode())
    return process


def _pipe(end: IO[bytes] | None) -> IO[bytes]:
    """It is one: PIPE was asked for."""
    if end is None:
        raise OSError("no pipe")
    return end


def _root(wanted: Wanted) -> int | None:
    """The target's root, where our own mounts are read-only (`ProtectSystem=`): its user may write there."""
    if not wanted.pid:
        return None
    return os.open(f"/proc/{wanted.pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _environment() -> dict[str, str]:
    """Made here. Of the daemon's own only where its programs lie; of the target's nothing."""
    given = os.environ.get("PATH", "")
    path = os.pathsep.join(part for part in given.split(os.pathsep) if part.startswith("/")) or PATH
    made = {"PATH": path, "HOME": "/", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
    if libraries := os.environ.get("LD_LIBRARY_PATH"):  # of the daemon's Python
        made["LD_LIBRARY_PATH"] = libraries
    return {**made, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}


def _answer(process: subprocess.Popen[bytes]) -> bytes:
    """What it says until it ends; what it has started ends with it."""
    with _pipe(process.stdout) as pipe:
        said = pipe.read(OBSERVER_ANSWER_BYTES_MAX)
    _end(process)
    process.wait()
    return said


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
