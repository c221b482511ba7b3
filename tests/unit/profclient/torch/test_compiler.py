"""A C++ compiler that is not there, says nothing, or is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from profclient.errors import UsageError
from profclient.torch import build as building
from profclient.torch.build import BuildFailed, Torch
from profclient.torch.builds import Key

TORCH = Torch("python", Path("/no/torch"), Key("2.13.0", "cf30153c4c131c81", True, "x86_64", "0123abcd"), "")


def test_one_that_is_not_there_is_named_with_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    with pytest.raises(BuildFailed, match=rf"{tmp_path}/none.*\n.*CXX="):
        building.build(TORCH, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_one_that_does_not_answer_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 1000\n")
    silent.chmod(0o755)
    monkeypatch.setenv("CXX", str(silent))
    monkeypatch.setattr(building, "_ASK_SECONDS", 0.1)
    with pytest.raises(BuildFailed, match=rf"{silent}.*timed out"):
        building.build(TORCH, tmp_path / "builds")


def test_a_variable_that_is_no_command_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", 'c++ "-O2')
    with pytest.raises(UsageError, match=r'CXX is no command .*c\+\+ "-O2'):
        building.compiler()
