"""Notices when a framework is imported, so that the daemon learns of it before anybody asks for a capture.

All of it happens on the thread that imports, within its import: the modules that a capture will need of us are loaded
there, too, for the agent's own thread may not change sys.modules.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


class _Watch:
    """A finder that finds what the others find, and has the loader say when it is done. Each name once.

    A program that only asks whether there is such a module (importlib.util.find_spec) has not imported it.
    """

    def __init__(self, names: set[str], tell: Callable[[], None]) -> None:
        self._names = names
        self._tell = tell

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Of all imports but those of the names: None, at the cost of a look into a set."""
        if name not in self._names or name in sys.modules:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is not self and find is not None and (spec := find(name, path, target)) is not None:
                self._follow(name, spec)
                return spec  # type: ignore[no-any-return]  # what finders find
        return None

    def _follow(self, name: str, spec: ModuleSpec) -> None:
        """The loader keeps what it was: its method is replaced until it is called."""
        loader: Any = spec.loader
        execute = getattr(loader, "exec_module", None)
        own = getattr(loader, "__dict__", None)
        if execute is None or own is None:  # a loader with slots: the next capture tells
            return
        before = own.get("exec_module")

        def execute_and_tell(module: ModuleType) -> None:
            if before is None:
                own.pop("exec_module", None)
            else:
                own["exec_module"] = before
            execute(module)
            if name in self._names:
                self._names.discard(name)
                self._tell_quietly()

        own["exec_module"] = execute_and_tell

    def _tell_quietly(self) -> None:
        try:  # noqa: SIM105 - contextlib takes 3 ms to import
            self._tell()
        except Exception:  # noqa: S110 - the job's import comes first, and the next capture tells as well
            pass


def watch(names: Iterable[str], tell: Callable[[], None]) -> None:
    """Call `tell` after each of these modules has been imported; those that are need no watching."""
    missing = {name for name in names if name not in sys.modules}
    if missing:
        sys.meta_path.insert(0, _Watch(missing, tell))
