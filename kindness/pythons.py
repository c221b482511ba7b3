"""Other CPythons that are installed here, each with profd's client in an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

from kindness import place

VERSIONS: Final = ("3.11", "3.12", "3.13")
OWN: Final = f"{sys.version_info.major}.{sys.version_info.minor}"


def ready(version: str) -> bool:
    """Whether jobs can run on it without anything being made first."""
    return version == OWN or (_folder(version, _client()) / "installed").exists()


@cache
def installed(version: str) -> Path | None:
    """An interpreter of this version: on PATH, or pyenv's newest. None where there is none."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    ours = sorted((root / "versions").glob(f"{version}.*/bin/python"), key=lambda path: len(str(path)))
    for found in (*ours[::-1], shutil.which(f"python{version}")):
        if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return Path(found)
    return None


@cache
def with_profd(version: str) -> Path | None:
    """An interpreter that `profctl run` can attach. Made once for these sources: the client alone, no torch.

    Our own environment serves its own version. None where that CPython is not installed.
    """
    if version == OWN:
        return Path(sys.executable)
    return environment(version, _client(), (str(place.TRIED),))


def _client() -> str:
    return f"client-{place.digest(place.IN_A_JOB)}"


def _folder(version: str, name: str) -> Path:
    return place.SCRATCH / "environments" / f"{version}-{name}"


def environment(version: str, name: str, packages: tuple[str, ...], base: Path | None = None) -> Path | None:
    """The interpreter of an environment with these packages, made when it is first asked for.

    Raises CalledProcessError where they cannot be installed.
    """
    base = base or installed(version)
    if base is None:
        return None
    folder = _folder(version, name)
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([base, "-m", "venv", folder], check=True)
        command: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", "-q", "install", *packages]
        # pip would read the tree that it is run in.
        if packages:
            subprocess.run(command, check=True, cwd=folder)
        (folder / "installed").touch()
    return python


def layered(name: str, packages: tuple[str, ...], first: Path | None = None) -> Path:
    """An environment with these packages over our own, which has torch and profclient: nothing of it is built again.

    `first`: another environment whose packages come before ours. Raises CalledProcessError where pip fails.
    """
    python = environment(OWN, name, packages, Path(sys.executable))
    if python is None:
        raise FileNotFoundError(sys.executable)
    below = [Path(sys.executable).parent.parent, *([first] if first else [])]
    folders = [str(next(each.glob("lib/python3*/site-packages"))) for each in reversed(below)]
    lines = [f"import site; site.addsitedir({folder!r})" for folder in folders]
    own = next(python.parent.parent.glob("lib/python3*/site-packages"))
    (own / "below.pth").write_text("\n".join(lines) + "\n")
    return python
