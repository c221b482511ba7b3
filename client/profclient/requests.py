"""Captures that a program asks for, of itself: `request_capture`, and PROFD_CAPTURE at a step. Nothing here waits."""

from __future__ import annotations

import os

from profclient.labels import labels, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

try:
    from profclient import _recorder
except ImportError:  # a platform that it was not built for
    _recorder = None  # type: ignore[assignment]

VARIABLE = "PROFD_CAPTURE"
_LOCAL_WORLD = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
# What tells runs of one job's id apart. A controller that has lost its state gives ids again, and 22.05 does not say
# when a job began: the port of the step's srun is the same for all its tasks, and another one in the next run.
_RUN_VARIABLES = ("SLURM_STEP_ID", "SLURM_RESTART_COUNT", "SLURM_JOB_START_TIME", "SLURM_STEP_LAUNCHER_PORT")
_EXAMPLE = "iterations:5@step:100"
_MOST = 1 << 53  # of a number; one that the daemon cannot read costs the connection
FIRST_STEP = 2  # the recording begins a step before, and is asked for in the first one


class RequestedCapture:
    """A request, and what came of it so far."""

    __slots__ = ("_number", "_pid", "_why")

    def __init__(self, number: int, why: str) -> None:
        self._number = number
        self._why = why
        self._pid = os.getpid()

    @property
    def state(self) -> str:
        """`asked`, `granted` (a capture has begun, or waits for its step), or `refused`."""
        capture, why = self._came_of()
        return "granted" if capture else "refused" if why else "asked"

    @property
    def capture(self) -> str:
        """The id for `profctl show`; empty without one. Of a key and several hosts the one that all of them have."""
        return self._came_of()[0]

    @property
    def why(self) -> str:
        """The reason for a refusal; else empty."""
        return self._came_of()[1]

    def __repr__(self) -> str:
        return f"<profclient: capture {self.state}: {self.capture or self.why or 'no answer yet'}>"

    def _came_of(self) -> tuple[str, str]:
        if not self._number:
            return "", self._why
        if os.getpid() != self._pid:
            return "", "another process asked, of which this one is a fork"
        return _recorder.agent_came_of(self._number) or ("", "")


def request_capture(
    *,
    iterations: int = 0,
    duration: float = 0.0,
    begin_step: int | None = None,
    reason: str = "",
    key: str = "",
) -> RequestedCapture:
    """Ask the local daemon to record this process: so many iterations, or seconds. Returns at once; never raises.

    `reason` is a sentence for people, which `profctl show` repeats. `key`: processes of a job that give the same one
    get one capture on each host; without one this process is recorded alone. `begin_step`: the first of the iterations,
    as `profclient.step()` numbers them. The daemon may refuse, as a `profctl start` of the same user; a process may ask
    once a second. What came of it is in the answer, in `profctl captures` and in the daemon's log.
    """
    try:
        if _recorder is None or _recorder.agent_state()[0] == "off":
            return RequestedCapture(0, "this process is not attached: call profclient.attach() before")
        number, why = _recorder.agent_ask(_lines(iterations, duration, begin_step, reason, key, os.environ))
    except Exception as error:
        return RequestedCapture(0, one_line(f"{type(error).__name__}: {error}"))
    return RequestedCapture(number, why)


def ask_as_told(environ: Mapping[str, str] = os.environ) -> str:
    """Obey PROFD_CAPTURE, once in this process: empty, or why that cannot be."""
    text = environ.get(VARIABLE, "")
    try:
        unit, amount, step = _parse(text)
    except ValueError:
        return f"{VARIABLE}={one_line(text)!r} is not understood: give one such as {_EXAMPLE} or duration:5s@step:100"
    if step < FIRST_STEP:
        return f"{VARIABLE}={one_line(text)}: the first step that can be recorded whole is {FIRST_STEP}"
    counts = unit == "iterations"
    lines = _lines(
        amount if counts else 0, 0 if counts else amount, step if counts else None, f"{VARIABLE}={text}", text, environ
    )
    _recorder.agent_ask_at(step, counts, lines)
    return ""


def _parse(text: str) -> tuple[str, int, int]:
    """Raises ValueError."""
    window, _, at = text.partition("@")
    unit, _, amount = window.partition(":")
    word, _, step = at.partition(":")
    if word != "step" or unit not in ("iterations", "duration") or len(text) > 64:
        raise ValueError(text)
    return unit, _number(amount.removesuffix("s") if unit == "duration" else amount), _number(step)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= _MOST):
        raise ValueError(text)
    return int(text)


def _lines(
    iterations: int, duration: float, begin_step: int | None, reason: str, key: str, environ: Mapping[str, str]
) -> bytes:
    said = {
        "iterations": _within("iterations", int(iterations)) or "",
        "duration": _within("duration", int(duration * 1e9)) or "",
        "begin_step": "" if begin_step is None else _within("begin_step", int(begin_step)),
        "reason": one_line(reason),
        "key": _key(key, environ) if key else "",
        "local": _local(environ),
        "hosts": _number_of(environ, ("SLURM_JOB_NUM_NODES", "SLURM_NNODES")),
    }
    return "".join(f"{name}={value}\n" for name, value in said.items() if value != "").encode()


def _within(name: str, number: int) -> int:
    if not 0 <= number <= _MOST:
        raise ValueError(f"{name} is negative, or larger than any capture's")
    return number


def _key(key: str, environ: Mapping[str, str]) -> str:
    """The key of the job's processes: equal in all of them, on all hosts, and another one when the job runs again."""
    run = labels(environ).get("job", "") or environ.get("PROFD_RUN_ID", "")
    if not run:  # nothing tells these processes from those of yesterday
        return ""
    again = [environ.get(name, "") for name in _RUN_VARIABLES]
    whole = "/".join([run, *again, key])
    said = one_line(whole)
    if said == whole:
        return said
    from hashlib import sha256  # here: most programs ask for nothing

    return sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()  # what is cut off may be what tells two apart


def _local(environ: Mapping[str, str]) -> str:
    found = labels(environ)
    return _number_of(environ, _LOCAL_WORLD) if "rank" in found else "1"


def _number_of(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    for name in names:
        value = environ.get(name, "")
        if value.isascii() and value.isdigit() and len(value) < 7:
            return value
    return ""
