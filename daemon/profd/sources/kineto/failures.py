"""The words of a recording that brought no whole trace. Sentences name the cause and the next step."""

from __future__ import annotations

from typing import Final

from profd.model.capture import Reason, Recording, State
from profd.sources.kineto.registry import Registered
from profd.targets.pickup import FoundFile, NotTaken, Refusal
from profd.targets.process import ProcessId

_NO_ROOM_BYTES: Final = 1 << 20
_KNOWN_FAULT: Final = (
    "torch up to 2.13 dies with SIGSEGV when its interpreter exits during a trace (fixed by kineto#1442); "
    "trace earlier, or for a shorter time"
)


def failed(reason: Reason, message: str) -> Recording:
    """Nothing to decode."""
    return Recording(State.FAILED, reason, message)


def cancelled() -> Recording:
    """Stopped before the process had read the request."""
    message = "stopped before the process read the request; nothing ran in it"
    return Recording(State.CANCELLED, Reason.CANCELLED_BY_USER, message)


def busy(holder: str) -> Recording:
    """Somebody else profiles the process."""
    return Recording(State.BUSY, Reason.OTHER_PROFILER, f"{holder}; try again when that is over")


def capture_running(capture: str) -> Recording:
    """Captures of one process are serialised."""
    message = f"capture {capture} is recording this process; profctl wait {capture}"
    return Recording(State.BUSY, Reason.CAPTURE_RUNNING, message)


def unregistered(waited_seconds: float, out_of_reach: str) -> Recording:
    """It was going to ask, by all that can be seen from outside, and did not. `out_of_reach`: why it cannot, if so."""
    if out_of_reach:
        return failed(Reason.TARGET_SILENT, f"the process has not registered: {out_of_reach}")
    return failed(
        Reason.TARGET_SILENT,
        f"the process has not registered within {waited_seconds:.0f} s: its stderr may say why (a program that "
        "does not import torch, or a build of it without Kineto, never does); for samples: --source pyspy",
    )


def silent(known: Registered | None, now_ns: int) -> Recording:
    """It stopped asking."""
    since = "" if known is None else f" for {(now_ns - known.last_poll_ns) // 1_000_000_000} s"
    message = f"the process has not asked for a config{since}: is it stopped? (profctl where --pid)"
    return failed(Reason.TARGET_SILENT, message)


def missed() -> Recording:
    """It overslept its own window, every time."""
    return failed(
        Reason.SOURCE_FAILED,
        "kineto missed its own window every time it was asked: the process was stopped or starved of CPU; "
        "try a longer window",
    )


_REASONS: Final = {
    Refusal.MISSING: Reason.NO_FILE,
    Refusal.NO_SPACE: Reason.DISK_FULL,
    Refusal.OTHER_PROGRAM: Reason.TARGET_ENDED,
    Refusal.NO_ANSWER: Reason.TIMEOUT,
}


def refused(why: NotTaken) -> Recording:
    """The file in the trace's place was not taken, and not deleted."""
    return failed(_REASONS.get(why.code, Reason.FILE_REFUSED), why.message)


def ended(process: ProcessId, window_open: bool, accepted: bool) -> Recording:
    """The process ended before its file was whole."""
    if not window_open and not accepted:
        return failed(Reason.TARGET_ENDED, f"pid {process.pid} ended before the window opened")
    return failed(Reason.TARGET_ENDED, f"pid {process.pid} ended while kineto traced it: {_KNOWN_FAULT}")


def idle(directory: str, tmp: FoundFile | None, free_bytes: int, held_up: bool) -> Recording:
    """It says that it traces no more, and there is no file."""
    if free_bytes < _NO_ROOM_BYTES:
        return failed(Reason.DISK_FULL, f"no space left in {directory} of the process; the trace was cut off")
    if tmp is None:
        return failed(
            Reason.NO_FILE,
            f"kineto took the request and wrote no file to {directory}: the process was held up, the directory "
            "is not writable for it, or another request came first; its stderr says which",
        )
    if tmp.bytes:
        return failed(Reason.TRUNCATED, f"kineto gave up while it wrote its trace to {directory}")
    if held_up:
        return missed()
    return failed(
        Reason.OTHER_PROFILER,
        "kineto began and was cancelled, most likely by torch.profiler in the job itself; "
        "try again when the job's own profiling is over",
    )


def deadline(known: Registered | None, now_ns: int, was_active: bool, iterations: bool) -> Recording:
    """Neither a file nor an end in all the time there was."""
    if known is None or known.silent(now_ns):
        return silent(known, now_ns)
    if not known.takes_config:
        return failed(
            Reason.TIMEOUT,
            "kineto still traces or writes: a very long trace, or the job's own torch.profiler took its place",
        )
    if iterations and not was_active:
        return failed(Reason.TIMEOUT, "no optimizer step came; ask for --duration instead of --iterations")
    return failed(Reason.TIMEOUT, "kineto took the request and neither traced nor wrote a file")
