"""Recordings by `profclient.profile` of its own process: through the daemon, or without one."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from profclient import _recorder, agent, temporary
from profclient.errors import BusyError, ClientError, UnreachableError

ARENA_BYTES = 64 << 20
STRINGS_BYTES = 8 << 20
CONNECT_SECONDS = 5.0  # for a daemon that listens to know us
BEGIN_SECONDS = 60.0  # for profctl to load, and for the daemon to arm us
END_SECONDS = 600.0  # for the trace to be stored
_PROFCTL = (sys.executable, "-P", "-c", "from profclient.cli import main; main()")
_SOURCES = {"stacks": 2, "modules": 2, "c_calls": 2, "torch": 4, "flops": 4, "memory": 16}  # native/recorder/writer.h
_RANGES = 1
_NOTHING = "nothing was recorded"  # in the daemon's sentence about an empty recording


@dataclass(frozen=True)
class Result:
    """A trace, and where it is; empty where nothing was recorded. `owner` keeps its store."""

    trace: str
    environ: Mapping[str, str]
    store: str = ""
    not_honoured: tuple[str, ...] = ()
    lost: Mapping[str, int] = field(default_factory=dict)
    owner: object = None

    def profctl(self, *arguments: str) -> str:
        """Run `profctl`; returns its output. Raises ClientError with its sentence."""
        where = ("--store", self.store) if self.store else ()
        return _profctl((*where, *arguments), self.environ)


class Session(Protocol):
    """A recording that runs."""

    def end(self) -> Result:
        """Stop it and store it. Raises ClientError."""
        ...


def begin(options: tuple[str, ...], address: str | None, local: bool | None) -> Session:
    """Record this process from now on. Raises ClientError."""
    if local is not True and _daemon_listens(address):
        return _ByDaemon(options, address)
    if local is False:
        raise UnreachableError(f"no profd records this process: {agent.attach(address, quiet=True).why}.")
    if importlib.util.find_spec("profd") is None:
        raise ClientError(
            "no profd listens, and this installation has no engine to read a recording with: "
            "start one with `profd --user`, or run pip install '.[daemon]' in a clone of profd's repository."
        )
    return _ByItself(options)


def _daemon_listens(address: str | None) -> bool:
    """Whether this process is attached; one that is listening gets a moment to answer."""
    attached = agent.attach(address, quiet=True)
    if not any(os.path.exists(path) for path in agent.sockets(address)):
        return False
    _wait(CONNECT_SECONDS, lambda: attached.state not in ("looking", "stopped"))
    if attached.state == "armed":
        raise BusyError("another capture records this process; wait for it, or stop it with `profctl stop`.")
    return attached.state == "connected"


class _ByDaemon:
    """`profctl start` of this very process, which ends it on SIGINT."""

    def __init__(self, options: tuple[str, ...], address: str | None) -> None:
        self._environ = _environ(address)
        begun = agent.hooks_begun()
        flags = [f"--{name.replace('_', '-')}" for name in options]
        self._process = subprocess.Popen(
            [*_PROFCTL, "start", "--pid", str(os.getpid()), "--source", "sdk", "--json", *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environ,
        )
        # Hooks begin after ARMED: the block waits for them, so that its first call is in its trace.
        if not _wait(BEGIN_SECONDS, lambda: agent.hooks_begun() > begun or self._process.poll() is not None):
            self._process.kill()
        if self._process.poll() is not None:
            _said, complaint = self._process.communicate()
            raise ClientError(_sentence(complaint) or "profctl has not begun to record")

    def end(self) -> Result:
        self._process.send_signal(signal.SIGINT)
        try:
            said, complaint = self._process.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise ClientError(f"the capture was not stored within {END_SECONDS:.0f} s") from None
        if not said:
            raise ClientError(_sentence(complaint) or "profctl gave no answer")
        (target,) = json.loads(said)["targets"]
        trace, why = target.get("trace") or "", target.get("message") or target.get("state")
        if not trace and _NOTHING not in str(why):
            raise ClientError(f"nothing was stored: {why}")
        return Result(
            trace=trace,
            environ=self._environ,
            not_honoured=tuple(target.get("not_honoured") or ()),
            lost={loss["reason"]: loss["count"] for loss in target.get("lost") or ()},
        )


class _ByItself:
    """The recorder, emptied by a process of its own into a file that the engine then reads."""

    def __init__(self, options: tuple[str, ...]) -> None:
        try:
            self._folder = tempfile.TemporaryDirectory(prefix="profd-profile-", dir=temporary.place())
        except OSError as error:
            raise ClientError(f"nothing is recorded into {error.filename}: {error.strerror}.") from error
        self._file = os.path.join(self._folder.name, "chunks")
        asked = (*options, "torch") if "torch" in sys.modules else options
        sources = _RANGES
        for name in asked:
            sources |= _SOURCES.get(name, 0)
        try:
            fd = _recorder.arm(ARENA_BYTES, STRINGS_BYTES, sources)
        except RuntimeError as error:
            raise BusyError(f"this process cannot be recorded now: {error}") from error
        self._drainer = subprocess.Popen(
            [sys.executable, "-P", "-m", "profclient.drain", str(fd), self._file],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[fd],
            env=_environ(None),
        )
        words = dict.fromkeys(asked, "") | ({"torch": "observer"} if "torch" in asked else {})
        agent.prepare()
        # On a thread of its own, as the agent does: the tracer leaves out the one that starts it.
        starting = threading.Thread(target=agent.start_hooks, args=(words,), name="profclient-profile")
        starting.start()
        starting.join()

    def end(self) -> Result:
        not_honoured = tuple(agent.stop_hooks())
        _recorder.disarm()
        said, complaint = self._drainer.communicate()
        _wait(CONNECT_SECONDS, _recorder.release)
        if self._drainer.returncode:
            raise ClientError(f"the recording could not be read: {_sentence(complaint)}")
        lost = {reason: count for reason, count in json.loads(said).items() if count}
        if not os.path.getsize(self._file):
            return Result("", {}, not_honoured=not_honoured, lost=lost)
        store = os.path.join(self._folder.name, "store")
        os.mkdir(store)
        environ = _environ(None)
        stored = json.loads(_profctl(("--store", store, "import", self._file, "--json"), environ))
        return Result(stored["trace"], environ, store, not_honoured, lost, owner=self._folder)


def _environ(address: str | None) -> dict[str, str]:
    """The environment of processes that work for us, and are not to be profiled."""
    environ = {**os.environ, "PROFD_ATTACH": "0"}
    return {**environ, "PROFD_ADDRESS": address} if address else environ


def _profctl(arguments: tuple[str, ...], environ: Mapping[str, str]) -> str:
    done = subprocess.run([*_PROFCTL, *arguments], env=environ, capture_output=True, check=False)
    if done.returncode:
        raise ClientError(_sentence(done.stderr))
    return done.stdout.decode()


def _sentence(said: bytes) -> str:
    """Its last words: a sentence, or JSON with one."""
    lines = said.decode(errors="replace").strip().splitlines()
    if not lines:
        return ""
    try:
        answer: Any = json.loads(lines[-1])
        return str(answer["error"])
    except (ValueError, KeyError, TypeError):
        return lines[-1].removeprefix("profctl: ")


def _wait(seconds: float, holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.002)
    return True
