"""On the path of `tools/sanitize`'s interpreters: takes the native modules from PROFD_SANITIZED.

The installed ones stay as they are: other processes have them mapped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

PACKAGES = {"_engine": "profd", "_host": "profd", "_scan": "profd", "_recorder": "profclient"}


class SanitizedModules:
    """Finds each module as the one file of that name below a build directory."""

    def __init__(self, build: Path) -> None:
        files = {file.name.partition(".")[0]: file for file in build.glob("native/*/_*.so")}
        self._files = {f"{PACKAGES[name]}.{name}": file for name, file in files.items() if name in PACKAGES}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's spec; None for all others."""
        file = self._files.get(name)
        return None if file is None else spec_from_file_location(name, file)


sys.meta_path.insert(0, SanitizedModules(Path(os.environ["PROFD_SANITIZED"])))
