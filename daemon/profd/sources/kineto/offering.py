"""Whether a process can be traced by kineto now, and if not, why and what would change that."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from profd.model.capture import Reason
from profd.sources.base import Offer
from profd.sources.kineto.registry import Registered
from profd.targets import procfs
from profd.targets.process import Process

_ENABLE: Final = "KINETO_USE_DAEMON"
_DIRECTORY: Final = "KINETO_IPC_SOCKET_DIR"
_START_AGAIN: Final = f"start it again with {_ENABLE}=1 in its environment"


def offer(
    process: Process,
    known: Registered | None,
    *,
    capture: str,
    idle_after_ns: int,
    now_ns: int,
    abstract: bool,
    directory: Path | None,
    off: str,
    out_of_reach: str,
    expected: bool,
) -> Offer:
    """Answer `Source.offer`.

    `capture` is ours that runs in the process, if any. `idle_after_ns`: polls
    before it still speak of a capture of ours. `abstract` and `directory` are
    the modes that are open, `off` why others are not. `out_of_reach`: why
    nobody can register in the directory now, if so. `expected`: a process
    that is going to ask would not have had to by now.
    """
    if capture:
        return Offer.recording(capture, process.id.pid)
    if known is None:
        return _unregistered(process, abstract, directory, off, out_of_reach, expected)
    return _registered(process, known, idle_after_ns, now_ns)


def _registered(process: Process, known: Registered, idle_after_ns: int, now_ns: int) -> Offer:
    if process.stopped:
        return Offer(False, "the process is stopped (state T)", "continue it: kill -CONT", Reason.TARGET_SILENT)
    if known.silent(now_ns):
        seconds = (now_ns - known.last_poll_ns) // 1_000_000_000
        return Offer(
            False,
            f"it last asked for a config {seconds} s ago, so its kineto thread hangs or is gone",
            "look at the process: profctl where --pid; libkineto comes back only with a restart",
            Reason.TARGET_SILENT,
        )
    if not known.takes_config and known.last_poll_ns > idle_after_ns:
        return Offer(
            False,
            "a profiler is active in the process and it is not ours (torch.profiler in the job?)",
            "try again when the job's own profiling is over",
            Reason.OTHER_PROFILER,
            busy=True,
        )
    if os.geteuid() not in (0, process.uid):
        return Offer(
            False,
            f"the trace would belong to uid {process.uid}, whose files this daemon may not take",
            "run profd as root, or as that user (profd --user)",
            Reason.NOT_PERMITTED,
        )
    return Offer(True)


def _unregistered(
    process: Process, abstract: bool, directory: Path | None, off: str, out_of_reach: str, expected: bool
) -> Offer:
    if not abstract and directory is None:
        return Offer(False, f"kineto is off: {off or 'no mode is configured'}", "profctl doctor says more")
    if _ENABLE not in process.environ:
        if process.framework == "torch":
            return Offer(False, f"PyTorch was started without {_ENABLE}", _START_AGAIN)
        return Offer(False, "it is not a PyTorch process", concerns=False)
    wanted = process.environ.get(_DIRECTORY)
    if wanted is not None:
        return _other_directory(wanted, directory, off) or _silent_so_far(process, expected, out_of_reach)
    if not abstract:
        fix = f"start it again with {_DIRECTORY}={directory}"
        return Offer(False, f"it looks for the abstract socket, which is off: {off}", fix)
    if _other_network(process):
        where = directory or "/run/profd/kineto"
        return Offer(
            False,
            "it is in another network namespace, where abstract sockets do not reach",
            f"mount {where} into the container at the same path and set {_DIRECTORY}={where}",
        )
    return _silent_so_far(process, expected)


def _other_directory(wanted: str, directory: Path | None, off: str) -> Offer | None:
    if directory is None:
        return Offer(
            False,
            f"it looks in {_DIRECTORY}={wanted}, and directory mode is off: {off or 'not configured'}",
            f"start profd with that directory, or the process without {_DIRECTORY}",
        )
    if wanted != str(directory):
        return Offer(
            False,
            f"it looks in {_DIRECTORY}={wanted}, the daemon listens in {directory}",
            f"start it again with {_DIRECTORY}={directory}, spelled exactly so",
        )
    return None


def _silent_so_far(process: Process, expected: bool, out_of_reach: str = "") -> Offer:
    if process.framework != "torch" and not (expected and process.python):
        return Offer(False, f"{_ENABLE} is set, but torch is not imported yet", "wait until it imports torch")
    if expected and not process.stopped and os.geteuid() in (0, process.uid):
        return Offer(True, "it has not registered yet; a capture waits until it does")
    if out_of_reach:
        return Offer(False, f"it has not registered: {out_of_reach}", "profctl doctor says whether it still is so")
    return Offer(
        False,
        "it has not asked for a config yet",
        "wait 15 s; if it stays so, its stderr says why (a build of torch without Kineto never asks)",
    )


def _other_network(process: Process) -> bool:
    theirs = procfs.link(Path("/proc", str(process.id.pid), "ns/net"))
    ours = procfs.link(Path("/proc/self/ns/net"))
    return bool(theirs and ours and theirs != ours)
