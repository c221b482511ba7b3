"""A framework that is imported later is noticed, and importing is what it was before."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

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
    frameworks.watch(["made_up_broken", "made_up_framework"], lambda: 1 / 0)
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
