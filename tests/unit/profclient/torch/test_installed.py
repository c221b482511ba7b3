"""Whether the observer is built for the torch beside us."""

from __future__ import annotations

import importlib
import os
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner
from profclient.cli.commands.host import _add_observer
from profclient.cli.commands.torch import torch
from profclient.torch import builds, installed, sources
from profclient.torch.builds import Build, Key
from profproto.v1 import host_pb2

from tests.support.people import being


def _check() -> tuple[str, str, str]:
    status = host_pb2.HostStatus()
    _add_observer(status)
    [check] = status.checks
    return check.name, check.verdict, check.fix


def _torch(folder: Path, package: str, own: str) -> None:
    """A torch as pip leaves it: the package's version may lack the local part that torch has."""
    about = folder / f"torch-{package}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {package}\n")
    (folder / "torch").mkdir()
    (folder / "torch" / "version.py").write_text(f"__version__ = '{own}'\ncuda = None\n")


@pytest.fixture
def readable_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """As another uid finds this installation that may read it: it may be in a folder of root's."""
    for module in ("private", "prune"):  # that commands import late
        importlib.import_module(f"profclient.torch.{module}")
    digest = sources.digest()
    monkeypatch.setattr(sources, "digest", lambda: digest)


@pytest.mark.usefixtures("readable_for_others")
def test_a_home_that_is_not_ours_has_no_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN the HOME of another user, as `su -m` leaves it THEN `doctor` goes on."""
    _torch(tmp_path / "site", "2.13.0", "2.13.0")
    monkeypatch.syspath_prepend(tmp_path / "site")
    home = tmp_path / "home"
    home.mkdir(mode=0)
    monkeypatch.setattr(builds, "places", lambda: [home / ".cache" / "profd" / "torch"])
    monkeypatch.setattr(installed, "_own_version", lambda _: "2.13.0")  # its file is in a folder of root's
    distribution = metadata.distribution("torch")
    monkeypatch.setattr(metadata, "distribution", lambda _: distribution)
    with being(65534 if os.geteuid() == 0 else None):
        found = installed.state()
        loaded = builds.find(Key("2.13.0", "cf30153c4c131c81", True, "x86_64", sources.digest()))
    assert (found, loaded) == (("2.13.0", False), None)


@pytest.mark.usefixtures("readable_for_others")
def test_there_is_nothing_to_list_or_prune_in_a_home_that_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.joinpath("home").mkdir(mode=0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    with being(65534 if os.geteuid() == 0 else None):
        listed, pruned = (CliRunner().invoke(torch, [command]) for command in ("list", "prune"))
    assert (listed.exit_code, listed.exception) == (0, None)
    assert (pruned.exit_code, pruned.output) == (0, f"nothing to remove in {builds.cache()}\n")


@pytest.mark.parametrize("own", ["2.13.0", "2.13.0+cu130"])
def test_a_build_for_this_torch_is_found(own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "places", lambda: [tmp_path / "builds"])
    _torch(tmp_path / "site", "2.13.0", own)
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert _check() == ("torch observer", "warning", "profctl torch build")
    key = Key(own, "cf30153c4c131c81", True, "x86_64", sources.digest())
    directory = tmp_path / "builds" / key.directory
    directory.mkdir(mode=0o755, parents=True)
    (directory / builds.LIBRARY).write_bytes(b"a library")
    digest = builds.digest_of(directory / builds.LIBRARY)
    builds.write_manifest(Build(directory, key, digest, "python", "c++ 12", "2026-01-01"))
    assert _check() == ("torch observer", "ok", "")
    (tmp_path / "site" / "torch" / "version.py").write_text("__version__ = '2.12.0'\n")
    assert _check()[1] == "warning"


def test_a_torch_without_its_file_has_the_packages_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _torch(tmp_path, "2.13.0", "2.13.0")
    (tmp_path / "torch" / "version.py").unlink()
    monkeypatch.syspath_prepend(tmp_path)
    found = installed.state()
    assert found is not None
    assert found[0] == "2.13.0"


def test_without_torch_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert installed.state() is None
    status = host_pb2.HostStatus()
    _add_observer(status)
    assert not status.checks
