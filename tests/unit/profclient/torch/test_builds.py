"""Which builds of the observer are loaded: those for this torch that nobody else could have written."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from profclient.cli.commands.torch import torch
from profclient.errors import NotFoundError
from profclient.torch import build as building
from profclient.torch import builds, notes, sources
from profclient.torch.builds import Build, Key, Unusable

from tests.support.people import being

_NOBODY = 65534
KEY = Key("2.13.0+cpu", "cf30153c4c131c81", True, "x86_64", "0123abcd")


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """One that is as it should be, in the only place that is looked at."""
    place = tmp_path / "builds"
    directory = place / KEY.directory
    directory.mkdir(parents=True, mode=0o755)
    (directory / builds.LIBRARY).write_bytes(b"a library")
    made = Build(directory, KEY, builds.digest_of(directory / builds.LIBRARY), "python", "c++ 12", "2026-01-01")
    builds.write_manifest(made)
    monkeypatch.setattr(builds, "places", lambda: [place])
    return made


def test_a_build_is_found_again(build: Build) -> None:
    assert builds.find(KEY) == build


@pytest.mark.parametrize(
    "change", [{"torch": "2.12.0"}, {"git": "aaaaaaaaaaaaaaaa"}, {"machine": "aarch64"}, {"sources": "ffffffff"}]
)
def test_another_torch_has_no_build(build: Build, change: dict[str, Any]) -> None:
    assert builds.find(dataclasses.replace(KEY, **change)) is None


def test_a_build_of_another_abi_is_refused_though_its_name_fits(build: Build) -> None:
    with pytest.raises(Unusable, match="profctl torch build"):
        builds.find(dataclasses.replace(KEY, cxx11_abi=False))


def test_a_library_that_was_changed_is_refused(build: Build) -> None:
    build.library.write_bytes(b"another library")
    with pytest.raises(Unusable, match="SHA-256"):
        builds.find(KEY)


def test_a_part_for_cuda_that_was_changed_is_refused(build: Build) -> None:
    build.cuda_library.write_bytes(b"a part")
    builds.write_manifest(dataclasses.replace(build, cuda_sha256=builds.digest_of(build.cuda_library)))
    assert builds.find(KEY) is not None
    build.cuda_library.write_bytes(b"another part")
    with pytest.raises(Unusable, match=r"observer_cuda.so.*SHA-256"):
        builds.find(KEY)


def test_builds_for_several_torches_lie_side_by_side(build: Build) -> None:
    other = dataclasses.replace(KEY, torch="2.12.0+cpu", git="1234567890abcdef")
    directory = build.path.parent / other.directory
    directory.mkdir(mode=0o755)
    (directory / builds.LIBRARY).write_bytes(b"of another torch")
    second = dataclasses.replace(build, path=directory, key=other, sha256=builds.digest_of(directory / builds.LIBRARY))
    builds.write_manifest(second)
    assert builds.find(KEY) == build
    assert builds.find(other) == second


@pytest.mark.parametrize("which", ["library", "directory", "place"])
def test_what_others_may_write_is_refused(build: Build, which: str) -> None:
    {"library": build.library, "directory": build.path, "place": build.path.parent}[which].chmod(0o777)
    with pytest.raises(Unusable, match="writable by others"):
        builds.find(KEY)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_belongs_to_others_is_refused(build: Build) -> None:
    os.chown(build.library, 12345, 12345)
    with pytest.raises(Unusable, match="uid 12345"):
        builds.find(KEY)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_root_loads_nothing_that_somebody_else_can_exchange(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a root shell that `su` has left with another user's XDG_CACHE_HOME, which leads to a build of root's WHEN a
    job of root's looks there THEN it does not load what that user may have put there since it was looked at."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "profd").symlink_to(tmp_path)
    monkeypatch.setattr(builds, "places", lambda: [theirs / "profd" / "builds"])
    assert builds.find(KEY) is not None
    os.chown(theirs, 65534, 65534)
    with pytest.raises(Unusable, match=rf"can be exchanged by another user, by {theirs}:"):
        builds.find(KEY)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "PROFD_TORCH_DIR"])
def test_nobody_else_loads_it_either(build: Build, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """GIVEN a user with another one's variable, as `su -m` leaves it, which leads to a build of root's WHEN their job
    looks there THEN it does not load what the other has put there by then."""
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copytree(build.path.parent, folder / "of-root" / "torch")
        theirs = folder / "theirs"
        theirs.mkdir()
        (theirs / "profd").symlink_to(folder / "of-root")
        named = theirs if variable == "XDG_CACHE_HOME" else theirs / "profd" / "torch"
        monkeypatch.setenv(variable, str(named))
        monkeypatch.setattr(builds, "places", lambda: [builds.cache() if named == theirs else named])
        with being(_NOBODY):
            assert builds.find(KEY) is not None
        os.chown(theirs, 12345, 12345)
        theirs.chmod(0o755 if named == theirs else 0o777)
        with being(_NOBODY), pytest.raises(Unusable, match=rf"can be exchanged by another user, by {theirs}:"):
            builds.find(KEY)


def test_a_link_is_not_followed(build: Build, tmp_path: Path) -> None:
    build.library.rename(tmp_path / "elsewhere.so")
    build.library.symlink_to(tmp_path / "elsewhere.so")
    with pytest.raises(Unusable, match="symbolic link"):
        builds.find(KEY)


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"key": 5}', '{"key": {}, "extra": 1}'])
def test_a_manifest_that_says_nothing_is_refused(build: Build, manifest: str) -> None:
    (build.path / builds.MANIFEST).write_text(manifest)
    with pytest.raises(Unusable, match="no build of the observer"):
        builds.find(KEY)


def test_a_place_that_was_named_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROFD_TORCH_DIR", "/image/layer")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    found = builds.places()
    assert (found[0], found[-1]) == (Path("/image/layer"), Path("/cache/profd/torch"))


def test_the_digest_is_of_every_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = (
        ("torch/first", "stdc-predef.h"),
        ("torch/cuda/first", "cuda_runtime.h"),
        ("torch/cuda/last/crt", "host_defines.h"),
    )
    ours = (("torch", "all.cpp"), ("torch", "names.h"), ("recorder", "writer.h"), ("recorder", "other.cpp"))
    for part, name in (*ours, *cuda):
        (tmp_path / part).mkdir(exist_ok=True, parents=True)
        (tmp_path / part / name).write_text("one")
    monkeypatch.setattr(sources, "directory", lambda: str(tmp_path))
    before = sources.digest()
    (tmp_path / "recorder" / "other.cpp").write_text("two")  # the observer does not include it
    assert sources.digest() == before
    for path in ("recorder/writer.h", "torch/cuda/last/crt/host_defines.h"):
        (tmp_path / path).write_text("two")
        assert sources.digest() != before
        before = sources.digest()


def test_torch_list_shows_what_cannot_be_used_and_why(build: Build) -> None:
    build.library.write_bytes(b"another library")
    answer = CliRunner().invoke(torch, ["list", "--json"])
    [row] = json.loads(answer.stdout)
    assert "SHA-256" in row["problem"]


def test_what_is_built_is_not_compiled_again(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Path | None] = []

    def compile_it(found: building.Torch, into: Path | None) -> Build:
        compiled.append(into)
        return build

    monkeypatch.setattr(building, "ask", lambda python: building.Torch(python, Path("/torch"), KEY, ""))
    monkeypatch.setattr(building, "build", compile_it)
    place = build.path.parent
    answer = CliRunner().invoke(torch, ["build", "--into", str(place)])
    assert (answer.exit_code, compiled) == (0, [])
    assert f"already built: {build.path}" in answer.stdout
    CliRunner().invoke(torch, ["build", "--into", str(place), "--force"])
    assert compiled == [place]
    build.library.write_bytes(b"a broken library")
    CliRunner().invoke(torch, ["build", "--into", str(place)])
    assert compiled == [place, place]


def test_torch_list_without_builds_names_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "places", lambda: [tmp_path / "none"])
    assert "profctl torch build" in CliRunner().invoke(torch, ["list"]).stdout


def test_torch_list_shows_what_is_being_built_and_what_could_not_be(build: Build) -> None:
    place = build.path.parent
    other = dataclasses.replace(KEY, torch="2.12.0+cpu")
    notes.remember_failure(place, other, "2026-01-02", "no compiler\x1b[2J")
    with notes.building(place, KEY, "2026-01-03"):
        during = CliRunner().invoke(torch, ["list"]).stdout
    assert "being built since 2026-01-03" in during
    assert "could not be built (2026-01-02): no compiler" in during
    assert "\x1b" not in during
    assert notes.failure(place, other) is not None
    assert "being built" not in CliRunner().invoke(torch, ["list"]).stdout
    notes.forget_failure(place, other)
    assert len(json.loads(CliRunner().invoke(torch, ["list", "--json"]).stdout)) == 1  # the build


def test_a_build_whose_builder_was_killed_is_not_shown(build: Build) -> None:
    """Its note stays; nobody holds it."""
    place = build.path.parent
    with notes.building(place, KEY, "2026-01-03"):
        [held] = notes.all_of(place)
        left = held.path.read_bytes()
    held.path.write_bytes(left)
    assert notes.all_of(place) == []


def test_a_compiler_or_a_python_that_says_no_text_is_told_in_a_sentence(tmp_path: Path) -> None:
    """As in another encoding than the user's: it ended with a traceback."""
    program = tmp_path / "odd"
    program.write_text("#!/bin/sh\nprintf 'odd \\377\\n'; printf 'no \\377\\n' >&2; exit 1\n")
    program.chmod(0o755)
    assert building._version([str(program)]) == "odd \N{REPLACEMENT CHARACTER}"
    with pytest.raises(NotFoundError, match="has no torch that can be imported: no \N{REPLACEMENT CHARACTER}"):
        building.ask(str(program))
