"""On the path of `tools/sanitize`'s interpreters: takes profd's native modules from PROFD_SANITIZED.

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


class SanitizedModules:
    """Finds `profd._name` as the one file of that name below a build directory."""

    def __init__(self, build: Path) -> None:
        self._files = {f"profd.{file.name.partition('.')[0]}": file for file in build.glob("native/*/_*.so")}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's spec; None for all others."""
        file = self._files.get(name)
        return None if file is None else spec_from_file_location(name, file)


sys.meta_path.insert(0, SanitizedModules(Path(os.environ["PROFD_SANITIZED"])))
