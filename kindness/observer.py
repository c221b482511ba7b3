"""A build of the observer for the torch of this Python, where the rig's jobs find it and others do not."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from kindness import place
from kindness.jobs import BIN


def directory() -> Path | None:
    """PROFD_TORCH_DIR with a usable build, made once for these sources; None without torch or a compiler."""
    folder = place.SCRATCH / f"torch-{place.digest()}"
    if (folder / "built").exists():
        return folder
    if not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        return None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    command: list[str | Path] = [BIN / "profctl", "torch", "build", "--into", folder]
    done = subprocess.run(command, env={**os.environ, "PROFD_TORCH_DIR": str(folder)}, check=False)
    if done.returncode:
        return None
    (folder / "built").touch()
    return folder
