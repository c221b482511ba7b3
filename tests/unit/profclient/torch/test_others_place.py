"""Places of builds that another user owns, who exchanges directories while root builds there or removes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from profclient.cli.commands.torch import torch
from profclient.errors import DeniedError
from profclient.torch import build as building
from profclient.torch import builds, private, sources
from profclient.torch.build import Torch
from profclient.torch.builds import Key

TORCH = Torch("python", Path("/nowhere/torch"), Key("2.13.0", "cf30153c4c13", True, "aarch64", sources.digest()))

# What compiles has the time that the owner of the place needs. It writes through its own -o, as a linker does.
COMPILER = """#!/bin/sh
case "$1" in --version) echo "c++ 14"; exit;; esac
while [ "$1" != -o ]; do shift; done
cd "$PLACE"
name=$(echo .building-*)
mv "$name" "$TAKEN"
mkdir "$name"
ln -s "$VICTIM" "$name/observer.so"
ln -s "$VICTIM" "$name/build.json"
echo library > "$2"
"""


def test_what_is_built_goes_through_no_link_of_who_owns_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, compiler, victim = tmp_path / "place", tmp_path / "c++", tmp_path / "victim"
    place.mkdir()
    victim.write_text("precious")
    victim.chmod(0o600)
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    for name, value in {"CXX": compiler, "PLACE": place, "TAKEN": tmp_path / "taken", "VICTIM": victim}.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(DeniedError, match=r"who owns .*place exchanged it"):
        building.build(TORCH, place)
    assert victim.read_text() == "precious"
    assert victim.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "taken" / "observer.so").read_text() == "library\n"


@pytest.mark.parametrize("linked", ["profd", "profd/torch"])
def test_prune_follows_no_link_into_another_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: str) -> None:
    cache, other = tmp_path / "cache", tmp_path / "opt"
    (other / "torch" / "torch-2.1").mkdir(parents=True)
    (other / "torch-2.1").mkdir()
    (cache / linked).parent.mkdir(parents=True, mode=0o700)
    os.symlink(other, cache / linked)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    assert builds.cache().is_dir()
    done = CliRunner().invoke(torch, ["prune"])
    assert isinstance(done.exception, DeniedError)
    assert "symbolic link" in str(done.exception)
    assert (other / "torch-2.1").is_dir()
    assert (other / "torch" / "torch-2.1").is_dir()


def test_nothing_is_built_that_no_process_would_load(tmp_path: Path) -> None:
    """GIVEN a cache in a folder whose members may exchange it WHEN something is to be built there THEN it says so."""
    project = tmp_path / "project"
    (project / "cache").mkdir(parents=True)
    project.chmod(0o777)
    with (
        pytest.raises(DeniedError, match=f"can be exchanged by another user, by {project}:"),
        private.place(project / "cache"),
    ):
        pass
    assert not list((project / "cache").iterdir())
    project.chmod(0o1777)
    with private.place(project / "cache") as place:
        assert place.is_dir()
