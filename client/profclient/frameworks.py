"""Notices when a framework is imported, so that the daemon learns of it before anybody asks for a capture."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class _Watch:
    """A finder that finds what the others find, and has the loader say when it is done. Each name once."""

    def __init__(self, names: set[str], tell: Callable[[], None]) -> None:
        self._names = names
        self._tell = tell

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Of all imports but those of the names: None, at the cost of a look into a set."""
        if name not in self._names:
            return None
        self._names.discard(name)
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)) is not None:
                self._follow(spec)
                return spec
        return None

    def _follow(self, spec: ModuleSpec) -> None:
        loader, tell = spec.loader, self._tell
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def execute_and_tell(module: ModuleType) -> None:
            execute(module)
            try:  # noqa: SIM105 - contextlib takes 3 ms to import
                tell()
            except Exception:  # noqa: S110 - the job's import comes first, and the next capture tells as well
                pass

        try:  # noqa: SIM105 - the same
            loader.exec_module = execute_and_tell  # type: ignore[union-attr,method-assign]
        except AttributeError:  # a loader with slots: the next capture tells
            pass


def watch(names: Iterable[str], tell: Callable[[], None]) -> None:
    """Call `tell` after each of these modules has been imported; those that are need no watching."""
    missing = {name for name in names if name not in sys.modules}
    if missing:
        sys.meta_path.insert(0, _Watch(missing, tell))
