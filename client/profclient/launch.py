"""The work of `profctl run`: it gives a command our start-up folder, and becomes the command.

It imports next to nothing: click and pathlib alone would double what starting a program this way costs.
"""

from __future__ import annotations

import os
import sys
import time

from profclient.address import of_agents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn

_HERE = os.path.dirname(os.path.abspath(__file__))
STARTUP = os.path.join(_HERE, "startup")
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as of a shell
_IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ")
_NVTX_VARIABLE = "NVTX_INJECTION64_PATH"  # NVTX's own


def plain_command(arguments: list[str]) -> list[str]:
    """The command of `run [--] COMMAND`; empty for anything else, which is for the parser of all options."""
    if arguments[:1] != ["run"]:
        return []
    command = arguments[2:] if arguments[1:2] == ["--"] else arguments[1:]
    starts_with_option = arguments[1:2] != ["--"] and command[:1] and command[0].startswith("-")
    return [] if starts_with_option else command


def launch(command: list[str], environ: Mapping[str, str]) -> int:
    """Become the command. Returns only where that cannot be: the exit code, the reason having been written."""
    if not any(os.path.exists(path) for path in of_agents()):
        _say("no profd listens here; the command runs, and attaches when one appears.")
    try:
        _become(command, environment(_with_nvtx(environ)))
    except FileNotFoundError:
        _say(f"there is no command {command[0]!r}")
        return NOT_FOUND
    except OSError as error:
        _say(f"{command[0]!r} cannot be run: {error.strerror}")
        return NOT_EXECUTABLE


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the command: its Pythons find our start-up folder first."""
    path = environ.get("PYTHONPATH", "")
    # An empty entry would mean the working directory.
    return {
        **environ,
        "PYTHONPATH": f"{STARTUP}{os.pathsep}{path}" if path else STARTUP,
        "PROFD_RUN": str(os.getpid()),  # exec keeps it: this process is the one that may speak
        # All that the command starts has it: what asks for one capture together.
        "PROFD_RUN_ID": environ.get("PROFD_RUN_ID") or f"{os.getpid()}.{time.time_ns()}",
    }


def native(name: str) -> str:
    """Path of one of our libraries: beside this module, or where a checkout is built."""
    beside = os.path.join(_HERE, name)
    if os.path.exists(beside):
        return beside
    from profclient.agent import COLLECTOR  # loads the native part of profclient: 2 ms that are not spent otherwise

    return os.path.join(os.path.dirname(COLLECTOR), name)


def _with_nvtx(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment with our library for NVTX, unless it names another tool's: NVTX ranges are recorded, too."""
    library = "" if environ.get(_NVTX_VARIABLE) else native("libprofd_nvtx.so")
    if not os.path.exists(library):
        return {**environ}
    return {**environ, _NVTX_VARIABLE: library}


def _become(command: list[str], environ: dict[str, str]) -> NoReturn:
    import _signal as signals  # type: ignore[import-not-found]  # typeshed has only the module on top, which brings enum

    for name in _IGNORED_BY_PYTHON:  # the command must not inherit that
        signals.signal(getattr(signals, name), signals.SIG_DFL)
    os.execvpe(command[0], command, environ)  # noqa: S606 - what the user typed is to be run


def _say(sentence: str) -> None:
    sys.stderr.write(f"profctl run: {sentence}\n")
    sys.stderr.flush()
