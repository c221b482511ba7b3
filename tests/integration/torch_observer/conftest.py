"""A build of the observer for the torch of this Python, made once for all test processes of a run."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def torch_builds() -> Path:
    """PROFD_TORCH_DIR with a usable build, also set in the environment. Skips without torch or a compiler."""
    torch = pytest.importorskip("torch", reason="needs torch")
    if not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        pytest.skip("needs a C++ compiler: the observer is built for the torch at hand")
    from profclient.torch import build, builds

    # Kept between runs: another torch or other sources get a directory of their own in it.
    place = Path(tempfile.gettempdir()) / f"profd-tests-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    with open(place / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.environ[builds.DIRECTORY_VARIABLE] = str(place)
        if builds.find(builds.key_of(torch)) is None:
            import sys

            build.build(build.ask(sys.executable), place)
    return place
