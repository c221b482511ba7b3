"""Whose the workers' files are, before and after the store has adopted them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from profd.errors import BadInput
from profd.kernel import identity
from profd.kernel.identity import SAME, WorkerIdentity
from profd.kernel.privileges import missing

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
OTHER = WorkerIdentity(uid=4321, gid=4322, name="worker")


@pytest.fixture
def other() -> Iterator[None]:
    identity.use(OTHER)
    yield
    identity.use(SAME)


def mode_of(path: Path) -> tuple[int, int, int]:
    found = path.lstat()
    return found.st_uid, found.st_gid, found.st_mode & 0o7777


def test_same_uid_changes_nothing(tmp_path: Path) -> None:
    before = mode_of(tmp_path)
    (tmp_path / "segment").write_text("x")
    identity.make_readable(tmp_path)
    assert mode_of(tmp_path) == before


@as_root
@pytest.mark.usefixtures("other")
def test_what_workers_write_is_kept_by_root(tmp_path: Path) -> None:
    file = tmp_path / "segment"
    file.write_text("x")
    os.chown(file, 4321, 4322)
    file.chmod(0o666)
    (tmp_path / "deep").mkdir(mode=0o777)
    identity.make_readable(tmp_path)
    assert mode_of(tmp_path) == (0, 4322, 0o750)
    assert mode_of(file) == (0, 4322, 0o640)
    assert mode_of(tmp_path / "deep") == (0, 4322, 0o750)


@pytest.mark.parametrize("kind", ["symlink", "fifo", "hard link"])
def test_what_no_worker_may_leave(tmp_path: Path, kind: str) -> None:
    outside = tmp_path / "outside"
    outside.write_text("secret")
    before = mode_of(outside)
    staging = tmp_path / "staging"
    staging.mkdir()
    match kind:
        case "symlink":
            (staging / "x").symlink_to(outside)
        case "fifo":
            os.mkfifo(staging / "x")
        case "hard link":
            (staging / "x").hardlink_to(outside)
    with pytest.raises(BadInput, match="may leave"):
        identity.make_readable(staging)
    assert mode_of(outside) == before


@as_root
@pytest.mark.usefixtures("other")
def test_a_file_that_is_still_written_is_not_taken(tmp_path: Path) -> None:
    with (tmp_path / "segment").open("wb"), pytest.raises(BadInput, match="open for writing"):
        identity.make_readable(tmp_path)
    identity.make_readable(tmp_path)


def test_ordinary_user_has_nothing_to_drop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert identity.choose("whoever") == SAME


def test_root_of_a_container_that_dropped_its_capabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(identity, "_missing_capabilities", lambda: missing(~(1 << 7)))
    with pytest.raises(BadInput, match="never as root; but the daemon has no CAP_SETUID"):
        identity.choose()


def test_capabilities_are_read_from_the_kernel(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tx\nCapEff:\t0000000000000041\n")
    assert [lacking.name for lacking in identity._missing_capabilities(status)] == ["CAP_DAC_OVERRIDE", "CAP_SETUID"]


@as_root
def test_configured_user_must_exist() -> None:
    if identity._missing_capabilities():
        pytest.skip("root without capabilities")
    with pytest.raises(BadInput, match="no-such-user"):
        identity.choose("no-such-user")


@as_root
def test_user_that_cannot_read_python_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if identity._missing_capabilities():
        pytest.skip("root without capabilities")
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    monkeypatch.syspath_prepend(str(private))
    with pytest.raises(BadInput, match=r"cannot read .*Install profd"):
        identity.choose()


@as_root
def test_the_worker_user_is_not_root() -> None:
    if identity._missing_capabilities():
        pytest.skip("root without capabilities")
    with pytest.raises(BadInput, match="worker_user is root"):
        identity.choose("root")


def test_without_any_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(identity, "_missing_capabilities", list)
    monkeypatch.setattr(identity, "WORKER_USERS", ("no-such-user",))
    with pytest.raises(BadInput, match="useradd"):
        identity.choose()
