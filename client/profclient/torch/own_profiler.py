"""A notice before PyTorch's own profiler begins: libkineto then looks for CUPTI, which may be ours.

libkineto looks once, at the first profile of a process. Where it finds CUPTI held by another, neither that profile nor
any later one of the process has device events (seen on an H100, torch 2.11: docs/gpu.md).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

_MODULE: Final = "torch.autograd.profiler"
_PREPARE: Final = "_prepare_profiler"  # the first call of each profile that reaches libkineto


def before_it_begins(tell: Callable[[], None]) -> Callable[[], None]:
    """Call `tell` once, on the thread that is about to begin a profile. Returns what undoes this. No torch: nothing.

    A key of the module's dictionary gets another value, and the first one back: its size stays as it is.
    """
    module = sys.modules.get(_MODULE)
    original = getattr(module, _PREPARE, None)
    if original is None:
        return lambda: None

    def prepare(*arguments: Any, **named: Any) -> Any:
        remove()
        tell()
        return original(*arguments, **named)

    def remove() -> None:
        if getattr(module, _PREPARE, None) is prepare:  # else somebody has wrapped it meanwhile
            setattr(module, _PREPARE, original)

    setattr(module, _PREPARE, prepare)
    return remove
