"""Names of a million characters, which take no longer than many short ones: they were matched once for each place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from profd.answers.calls import waits_for_device
from profd.answers.detectors import jit_compilation
from profd.query import outside

_FRAME = "lib/asyncio/events.py(80): "


@pytest.mark.parametrize(
    ("fits", "part", "end", "wanted"),
    [
        (waits_for_device, "Synchronize_", "!", False),
        (waits_for_device, "Synchronize_", "v2", True),
        (jit_compilation._FUNCTION, " (jit_", "", False),
        (jit_compilation._FUNCTION, " (jit_", "f)", True),
        (outside._is_callback, _FRAME, "Handle.run", False),
        (outside._is_callback, _FRAME, "Handle._run", True),
        (outside._begins_anew, "multiprocessing/process.py(1): ", "main", False),
        (outside._begins_anew, "multiprocessing/process.py(1): ", "BaseProcess._bootstrap", True),
    ],
)
def test_names_of_any_length(fits: Callable[[str], object], part: str, end: str, wanted: bool) -> None:
    assert bool(fits("cuda" + part * (10**6 // len(part)) + end)) == wanted
    assert bool(fits("cuda" + part + end)) == wanted
