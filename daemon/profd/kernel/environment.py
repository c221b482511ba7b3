"""The environment of helper processes."""

from __future__ import annotations

import os
import sys
from typing import Final

_KEPT: Final = ("PATH", "LD_LIBRARY_PATH", "LANG", "TZ")


def bare_environment() -> dict[str, str]:
    """Nothing of the daemon's but what Python needs to find itself and this package."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
