"""`profctl torch prune`: what this profclient never loads goes, all else stays."""

from __future__ import annotations

import dataclasses
import mmap
from pathlib import Path

import pytest
from click.testing import CliRunner
from profclient.cli.commands.torch import torch
from profclient.torch import builds, sources
from profclient.torch.builds import Build, Key

KEY = Key("2.13.0+cpu", "cf30153c4c131c81", True, "x86_64", sources.digest())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    builds.cache().mkdir(parents=True, mode=0o700)
    return builds.cache()


def make(place: Path, **changes: str) -> Path:
    key = dataclasses.replace(KEY, **changes)  # type: ignore[arg-type]  # texts alone are changed
    directory = place / key.directory
    directory.mkdir(mode=0o755)
    library = directory / builds.LIBRARY
    library.write_bytes(b"a library")
    library.chmod(0o644)
    builds.write_manifest(Build(directory, key, builds.digest_of(library), "python", "c++ 12", "2026-01-01"))
    return directory


def prune(*arguments: str) -> list[str]:
    done = CliRunner().invoke(torch, ["prune", *arguments])
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


def test_builds_of_other_sources_and_broken_ones_go(cache: Path) -> None:
    current, other = make(cache), make(cache, torch="2.12.0")
    stale, broken = make(cache, sources="0123abcd"), make(cache, torch="2.11.0")
    (broken / builds.MANIFEST).write_text("{}")
    (unknown := cache / "something-else").mkdir()
    lines = prune()
    assert sorted(line.split()[1] for line in lines) == sorted([str(stale), str(broken)])
    assert all(line.startswith("removed ") for line in lines)
    assert sorted(cache.iterdir()) == sorted([current, other, unknown])
    assert prune() == [f"nothing to remove in {cache}"]


def test_a_dry_run_removes_nothing(cache: Path) -> None:
    stale = make(cache, sources="0123abcd")
    [line] = prune("--dry-run")
    assert line.startswith(f"would remove {stale}")
    assert stale.is_dir()


def test_what_a_process_has_loaded_is_kept(cache: Path) -> None:
    stale = make(cache, sources="4567abcd")  # no other test's: users are known by the name alone, wherever it lies
    with (
        (stale / builds.LIBRARY).open("rb") as library,
        mmap.mmap(library.fileno(), 0, access=mmap.ACCESS_READ),
    ):
        [line] = prune()
        assert line.startswith(f"kept {stale}: loaded by pid ")
    assert stale.is_dir()
    [line] = prune()
    assert line.startswith(f"removed {stale}")


def test_a_link_is_neither_followed_nor_removed(cache: Path, tmp_path: Path) -> None:
    (elsewhere := tmp_path / "elsewhere").mkdir()
    link = cache / make(elsewhere, sources="0123abcd").name
    link.symlink_to(elsewhere / link.name)
    prune()
    assert link.is_symlink()
    assert (link / builds.LIBRARY).is_file()


def test_a_file_with_such_a_name_stays_and_keeps_nothing_else_from_going(cache: Path) -> None:
    (file := cache / "torch-a-file").write_text("not ours")
    stale, hostile = make(cache, sources="0123abcd"), make(cache, torch="2.11.0")
    (hostile / builds.MANIFEST).write_text("[" * 60_000)
    assert len(prune()) == 2
    assert list(cache.iterdir()) == [file]
    assert not stale.exists()


def test_a_cache_that_there_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    assert prune() == [f"nothing to remove in {tmp_path}/none/profd/torch"]
