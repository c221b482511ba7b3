"""A framework that is imported later is noticed, and importing is what it was before."""

from __future__ import annotations

import importlib
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
