"""(d) Beside others: late attach, torch.profiler before and after us, a second subscriber; a process for each.

What happens is recorded as it is; a check says whether it is one of the outcomes that we promise: we record, or we say
who is in the way; and torch.profiler gets its kernels, or says that it does not.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from bench.gpu import device, machine
from bench.gpu.results import Check, Result
from bench.measure import ChildFailed, child

CASES = ("late_attach", "profiler_first", "armed_first", "after_profiler", "second_subscriber")
STEPS = 10
_MISSING = "CUDA profiler activities will be missing"  # as libkineto says it
_OTHER_SUBSCRIBER = 39  # CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED


def run() -> Result:
    """All cases."""
    result = Result("coexist", machine.describe())
    for case in CASES:
        try:
            outcome = child(f"bench.gpu.coexist:{case}", {})["result"]
        except ChildFailed as error:
            outcome = {"crashed": str(error)[-2000:]}
        result.data[case] = outcome
        result.checks.append(judge(case, outcome))
    return result


def judge(case: str, outcome: dict[str, Any]) -> Check:
    """Whether an outcome is one that we promise."""
    text = ", ".join(f"{key}: {value}" for key, value in outcome.items())
    if "crashed" in outcome:
        return Check(case, False, text)
    ours_told = outcome.get("kernels", 0) > 0 or bool(outcome.get("why"))
    theirs_told = _MISSING in outcome.get("said", "")
    theirs_whole = outcome.get("their_kernels") is None or outcome["their_kernels"] > 0 or theirs_told
    if outcome.get("later_kernels") == 0:
        return Check(case, False, text)
    if case == "second_subscriber":
        return Check(case, outcome["error"] in (0, _OTHER_SUBSCRIBER) and outcome["kernels"] > 0, text)
    if case == "late_attach":
        return Check(case, outcome.get("kernels", 0) > 0, text)
    return Check(case, ours_told and theirs_whole, text)


# --- in processes of their own ---


def late_attach() -> dict[str, Any]:
    """CUDA has been used for a while when our library is loaded for the first time."""
    step = _warm_step()
    return _recorded(lambda: _work(step))


def profiler_first() -> dict[str, Any]:
    """torch.profiler records already."""
    step = _warm_step()
    with _standard_error() as said, _profiler() as theirs:
        ours = _recorded(lambda: _work(step))
        _work(step)
    return {**ours, "their_kernels": _kernels(theirs), "said": said[0]}


def armed_first() -> dict[str, Any]:
    """We record already; torch.profiler begins and ends meanwhile."""
    step = _warm_step()
    found: dict[str, Any] = {}

    def both() -> None:
        with _profiler() as theirs:
            _work(step)
        found["their_kernels"] = _kernels(theirs)
        _work(step)

    with _standard_error() as said:
        ours = _recorded(both)
        with _profiler() as later:  # nobody else is there any more
            _work(step)
    return {**ours, **found, "later_kernels": _kernels(later), "said": said[0]}


def after_profiler() -> dict[str, Any]:
    """torch.profiler was here before: it may have left CUPTI another clock."""
    step = _warm_step()
    with _profiler():
        _work(step)
    return _recorded(lambda: _work(step))


def second_subscriber() -> dict[str, Any]:
    """Somebody else subscribes while we record."""
    step = _warm_step()
    found: dict[str, Any] = {}

    def theirs() -> None:
        from bench.gpu.corpus import mapped_cupti

        subscriber = ctypes.c_void_p()
        callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint, ctypes.c_void_p)
        nothing = callback(lambda *_: None)
        found["error"] = ctypes.CDLL(mapped_cupti()).cuptiSubscribe(ctypes.byref(subscriber), nothing, None)
        _work(step)

    return {**_recorded(theirs), **found}


def _recorded(work: Callable[[], None]) -> dict[str, Any]:
    """What our collector says and sees of it."""
    from profclient import _recorder, gpu

    _recorder.arm(arena_bytes=256 << 20, sources=8)
    try:
        try:
            told = gpu.start()
        except gpu.CuptiUnavailable as error:
            return {"kernels": 0, "why": str(error)}
        work()
        report = gpu.stop()
        return {"kernels": int(report["gpu.device_events"]), "why": told or report.get("gpu.notes", "")}
    finally:
        _recorder.disarm()


def _warm_step() -> Any:
    from bench.gpu.loops import launch_bound

    step = launch_bound()
    _work(step)
    return step


def _work(step: Any) -> None:
    for _ in range(STEPS):
        step()
    device.synchronize()


def _profiler() -> Any:
    from torch.profiler import profile

    return profile(activities=device.profiled())


@contextlib.contextmanager
def _standard_error() -> Iterator[list[str]]:
    """What is written there within, also by libraries: one text, once it has ended."""
    said: list[str] = []
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield said
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            said.append(os.pread(file.fileno(), 2000, 0).decode(errors="replace"))


def _kernels(profiler: Any) -> int:
    return sum(event.device_type.name == device.NAME.upper() for event in profiler.events())
