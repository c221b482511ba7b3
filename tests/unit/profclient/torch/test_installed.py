"""Whether the observer is built for the torch beside us."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
from profclient.cli.commands.host import _add_observer
from profclient.torch import builds, installed, sources
from profclient.torch.builds import Build, Key
from profproto.v1 import host_pb2


def _check() -> tuple[str, str, str]:
    status = host_pb2.HostStatus()
    _add_observer(status)
    [check] = status.checks
    return check.name, check.verdict, check.fix


def test_a_build_for_this_torch_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "places", lambda: [tmp_path])
    monkeypatch.setattr(metadata, "version", lambda name: "2.13.0")
    assert _check() == ("torch observer", "warning", "profctl torch build")
    key = Key("2.13.0", "cf30153c4c131c81", True, "x86_64", sources.digest())
    directory = tmp_path / key.directory
    directory.mkdir(mode=0o755)
    (directory / builds.LIBRARY).write_bytes(b"a library")
    digest = builds.digest_of(directory / builds.LIBRARY)
    builds.write_manifest(Build(directory, key, digest, "python", "c++ 12", "2026-01-01"))
    assert _check() == ("torch observer", "ok", "")
    monkeypatch.setattr(metadata, "version", lambda name: "2.12.0")
    assert _check()[1] == "warning"


def test_without_torch_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert installed.state() is None
    status = host_pb2.HostStatus()
    _add_observer(status)
    assert not status.checks
