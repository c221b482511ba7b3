"""The demangler against torch's own, on the symbols of torch itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from profd import _engine
from profd.limits import DEMANGLE_NAME_BYTES_MAX, DEMANGLE_RESULT_BYTES_MAX

torch = pytest.importorskip("torch", reason="compares with torch's demangler, and there is no torch here")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm"),
    pytest.mark.skipif(not _engine.demangles, reason="built without libsupc++.a: nothing is demangled"),
]
EVERY = 4  # of some 40,000
DATA = ("_ZT", "_ZG")  # tables of classes, guards of statics: no functions


def test_every_function_is_shown_as_torch_shows_it_or_left_as_it_is() -> None:
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    listed = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    names = {line.split()[-1].partition("@")[0] for line in listed.stdout.splitlines() if line}
    symbols = sorted(name for name in names if name.startswith("_Z") and not name.startswith(DATA))[::EVERY]
    assert len(symbols) > 1000
    ours = _engine.demangle(symbols, name_max=DEMANGLE_NAME_BYTES_MAX, result_max=DEMANGLE_RESULT_BYTES_MAX)
    left = 0
    for symbol, shown in zip(symbols, ours, strict=True):
        theirs = torch._C._demangle(symbol)
        left += shown == symbol != theirs
        assert shown in (symbol, theirs)
    assert left < len(symbols) / 100
