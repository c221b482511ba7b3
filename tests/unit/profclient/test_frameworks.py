"""A framework that is imported later is noticed, and importing is what it was before."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import zipfile
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest
from profclient import frameworks


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made_up_framework.py").write_text("__version__ = '7'\n")
    (tmp_path / "made_up_broken.py").write_text("raise RuntimeError('broken')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in ("made_up_framework", "made_up_broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.usefixtures("modules")
def test_the_end_of_an_import_is_told_once() -> None:
    told: list[str] = []
    frameworks.watch(["made_up_framework"], lambda: told.append(sys.modules["made_up_framework"].__version__))
    import made_up_framework

    assert told == ["7"]
    importlib.reload(made_up_framework)
    assert told == ["7"]


@pytest.mark.usefixtures("modules")
def test_what_an_import_raises_is_raised_and_what_we_raise_is_not() -> None:
    frameworks.watch(["made_up_broken", "made_up_framework"], lambda: divmod(1, 0) and None)
    with pytest.raises(RuntimeError, match="broken"):
        importlib.import_module("made_up_broken")
    assert importlib.import_module("made_up_framework").__version__ == "7"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("made_up_absent")


def test_nothing_is_watched_that_is_there() -> None:
    before = list(sys.meta_path)
    frameworks.watch(["sys", "os"], lambda: None)
    assert sys.meta_path == before


@pytest.mark.usefixtures("modules")
def test_who_only_asks_has_not_imported_it() -> None:
    told: list[str] = []
    frameworks.watch(["made_up_framework"], lambda: told.append("told"))
    assert importlib.util.find_spec("made_up_framework") is not None
    assert told == []
    importlib.import_module("made_up_framework")
    assert told == ["told"]


@pytest.mark.usefixtures("modules")
def test_the_loader_is_what_it_was() -> None:
    frameworks.watch(["made_up_framework"], lambda: None)
    loader = importlib.import_module("made_up_framework").__loader__
    assert "exec_module" not in vars(loader)


@pytest.mark.usefixtures("modules")
def test_a_module_that_is_loaded_lazily_is_told_of_when_it_is_loaded() -> None:
    told: list[str] = []
    frameworks.watch(["made_up_framework"], lambda: told.append("told"))
    spec = importlib.util.find_spec("made_up_framework")
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["made_up_framework"] = module
    spec.loader.exec_module(module)
    assert told == []
    assert module.__version__ == "7"
    assert told == ["told"]


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that have one loader."""
    names = ("made_up_framework", "made_up_second", "made_up_other")
    with zipfile.ZipFile(tmp_path / "modules.zip", "w") as file:
        for name in names:
            file.writestr(f"{name}.py", "")
    monkeypatch.syspath_prepend(str(tmp_path / "modules.zip"))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.usefixtures("archive")
def test_another_module_of_the_loader_is_not_taken_for_the_one_that_was_asked_about() -> None:
    told: list[str] = []
    frameworks.watch(["made_up_framework"], lambda: told.append("told"))
    assert importlib.util.find_spec("made_up_framework") is not None
    loader = importlib.import_module("made_up_other").__loader__
    assert told == []
    framework = importlib.import_module("made_up_framework")
    assert (told, framework.__loader__ is loader, "exec_module" in vars(loader)) == (["told"], True, False)


@pytest.mark.usefixtures("archive")
def test_two_frameworks_of_one_loader_are_both_told() -> None:
    told: list[str] = []
    names = ["made_up_framework", "made_up_second"]
    frameworks.watch(names, lambda: told.append("told"))
    for name in names:
        assert importlib.util.find_spec(name) is not None
    for name in names:
        loader = importlib.import_module(name).__loader__
    assert told == ["told"] * 2
    assert "exec_module" not in vars(loader)


class LoaderThatIsAClass:
    """Also its own finder."""

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, cls) if name.startswith("made_up") else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> None: ...

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        module.found = 1  # type: ignore[attr-defined]


class LoaderThatIsUnlikeOthers(LoaderThatIsAClass):
    """Its __dict__ keeps nothing that is written to it."""

    class Kept(dict):
        def __setitem__(self, name: str, value: object) -> None:
            raise RuntimeError(name)

    __dict__: ClassVar = Kept()

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, cls()) if name.startswith("made_up") else None  # type: ignore[arg-type]


class LoaderThatRaises(LoaderThatIsUnlikeOthers):
    """Whatever it is asked for but what importing needs."""

    @property
    def __dict__(self) -> dict[str, object]:  # type: ignore[override]
        raise RuntimeError


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize("finder", [LoaderThatIsAClass, LoaderThatIsUnlikeOthers, LoaderThatRaises])
def test_a_loader_that_cannot_be_followed_imports_as_before(finder: type) -> None:
    sys.meta_path.insert(0, finder)  # type: ignore[arg-type]
    frameworks.watch(["made_up_framework"], lambda: None)
    assert importlib.import_module("made_up_framework").found == 1
