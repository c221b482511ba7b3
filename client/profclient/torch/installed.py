"""Whether the observer is built for the torch beside us, without importing that torch, which takes seconds."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from typing import Final

from profclient.torch import build, builds

_FILE: Final = "torch/version.py"
_VERSION: Final = re.compile(r"^__version__ = '([^']{1,64})'$", re.MULTILINE)


def state() -> tuple[str, bool] | None:
    """The version of torch in this Python, and whether a usable build for it is there; None without torch."""
    try:
        distribution = metadata.distribution("torch")
    except metadata.PackageNotFoundError:
        return None
    version = _own_version(distribution)
    usable = (one for one, _, problem in build.known(builds.places()) if one is not None and not problem)
    return version, any(one.key.torch == version for one in usable)


def _own_version(distribution: metadata.Distribution) -> str:
    """The value of `torch.__version__`: "2.11.0+cu130" where the package's version may be "2.11.0"."""
    try:
        text = Path(str(distribution.locate_file(_FILE))).read_text("utf-8", "replace")
    except OSError:
        return distribution.version
    found = _VERSION.search(text)
    return found[1] if found else distribution.version
