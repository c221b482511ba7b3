"""Folders of the user. Imported in targets: it brings nothing along."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Where what can be made again is kept, by the XDG rules. Raises RuntimeError for a user without a home."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and base.startswith("/") else Path.home() / ".cache") / "profd"
