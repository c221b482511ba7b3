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


class _Execute:
    """Stands for `exec_module` in a loader's __dict__ until the modules of these names are executed.

    All modules of a zip archive have one loader. A program that asked for the spec need not import the module: others
    may come before it, or instead of it.
    """

    def __init__(
        self, own: dict[str, Any], execute: Callable[[ModuleType], None], name: str, done: Callable[[str], None]
    ) -> None:
        self.names = {name}
        self._own = own
        self._before = own.get("exec_module")
        self._execute = execute
        self._done = done

    def __call__(self, module: ModuleType) -> None:
        name = _name(module)
        if name not in self.names:
            self._execute(module)
            return
        self.names.discard(name)
        if not self.names:
            self._give_back()
        self._execute(module)
        self._done(name)

    def _give_back(self) -> None:
        if self._own.get("exec_module") is not self:  # somebody has replaced it since, and calls us
            return
        if self._before is None:
            del self._own["exec_module"]
        else:
            self._own["exec_module"] = self._before


def _name(module: ModuleType) -> str:
    """The name of a module as imported; past __getattribute__, which would load a lazy module."""
    try:
        return str(object.__getattribute__(module, "__spec__").name)
    except AttributeError:
        return ""


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
        """None for all imports but those of the names, at the cost of a look into a set."""
        if name not in self._names or name in sys.modules:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is not self and find is not None and (spec := find(name, path, target)) is not None:
                self._follow(name, spec)
                return spec  # type: ignore[no-any-return]  # what finders find
        return None

    def _follow(self, name: str, spec: ModuleSpec) -> None:
        """The loader keeps what it was: its method is replaced until it is called for this name."""
        try:
            own = getattr(spec.loader, "__dict__", None)
            if type(own) is not dict:  # that of a class, or of slots: the next capture tells
                return
            before = own.get("exec_module")
            if isinstance(before, _Execute):
                before.names.add(name)
            else:
                execute = spec.loader.exec_module  # type: ignore[union-attr]
                own["exec_module"] = _Execute(own, execute, name, self._executed)
        except Exception:  # noqa: S110 - of a loader that is unlike others; the job's import comes first
            pass

    def _executed(self, name: str) -> None:
        if name in self._names:
            self._names.discard(name)
            self._tell_quietly()

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
