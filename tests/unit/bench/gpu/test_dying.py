"""What a process that dies of a signal says of itself."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys

import pytest

from bench.measure import ROOT

_DIES = "from bench.gpu import dying; dying.say_where(); import ctypes; ctypes.string_at(0)"


def test_the_stack_of_libraries_and_that_of_python() -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    done = subprocess.run([sys.executable, "-c", _DIES], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == -signal.SIGSEGV
    native, _, python = done.stderr.partition("Fatal Python error")
    assert "native stack:" in native
    assert "libffi.so" in native
    assert "in string_at" in python
