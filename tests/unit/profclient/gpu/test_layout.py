"""What we know of CUPTI's records, against NVIDIA's own headers where a machine has them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


def test_offsets_and_numbers_are_those_of_the_headers() -> None:
    folders = [folder for folder in os.environ.get("PROFD_CUPTI_INCLUDE", "").split(os.pathsep) if folder]
    compiler = shutil.which("c++")
    if not folders or compiler is None:
        pytest.skip("PROFD_CUPTI_INCLUDE does not name the folders of cupti.h and cuda.h")
    command = [compiler, "-std=c++20", "-fsyntax-only", f"-I{ROOT / 'native' / 'gpu'}", *(f"-I{f}" for f in folders)]
    done = subprocess.run(
        [*command, str(ROOT / "tests" / "support" / "cupti_layout.cpp")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
