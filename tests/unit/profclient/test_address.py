"""Where a daemon is looked for, and where not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from profclient import address
from profclient.errors import UnreachableError

SOMEBODY = 65534


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The runtime directory and the home that the environment names."""
    runtime, home = tmp_path / "runtime", tmp_path / "home"
    for name, folder in (("XDG_RUNTIME_DIR", runtime), ("HOME", home)):
        folder.mkdir()
        monkeypatch.setenv(name, str(folder))
    for name in ("PROFD_ADDRESS", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return runtime, home


def test_the_users_own_daemon_comes_first(folders: tuple[Path, Path]) -> None:
    runtime, home = folders
    assert address.candidates() == [str(runtime / "profd" / "profd.sock"), address.SYSTEM_SOCKET]
    runtime.rmdir()
    assert address.candidates() == [str(home / ".local/state/profd/profd.sock"), address.SYSTEM_SOCKET]


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away takes root")
def test_what_listens_in_somebody_elses_folder_is_not_asked(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `su` without a dash: root's processes would attach to what the caller of it has put there."""
    runtime, home = folders
    os.chown(runtime, SOMEBODY, SOMEBODY)
    assert address.candidates() == [str(home / ".local/state/profd/profd.sock"), address.SYSTEM_SOCKET]
    os.chown(home, SOMEBODY, SOMEBODY)
    assert address.candidates() == [address.SYSTEM_SOCKET]
    assert address.of_agents() == ["/run/profd/agent.sock"]
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    assert address.candidates() == [address.SYSTEM_SOCKET]
    # AND an address that is given is asked whoever's it is
    monkeypatch.setenv("PROFD_ADDRESS", f"unix:{runtime}/s")
    assert address.candidates() == [f"{runtime}/s"]


def by(uid: int, path: Path) -> None:
    """A daemon's socket that this user has put there."""
    path.parent.mkdir()
    path.touch()
    for made in (path.parent, path):
        os.chown(made, uid, uid)


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away takes root")
@pytest.mark.parametrize("variable", ["XDG_RUNTIME_DIR", "XDG_STATE_HOME"])
def test_of_a_folder_of_all_users_nobody_elses_socket_is_asked(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """GIVEN a job that has `/tmp` for a folder of its own, as on some clusters WHEN another user is there first THEN
    nothing of the job reaches them."""
    runtime, home = folders
    shared = runtime.parent / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv(variable, str(shared))
    # before anybody is there, too: an agent looks at this path for as long as its program runs
    elsewhere = [str(home / ".local/state/profd/profd.sock")] if variable == "XDG_RUNTIME_DIR" else []
    assert address.candidates() == [*elsewhere, address.SYSTEM_SOCKET]
    by(SOMEBODY, shared / "profd" / "profd.sock")
    assert address.candidates() == [*elsewhere, address.SYSTEM_SOCKET]
    assert address.of_agents()[-1] == "/run/profd/agent.sock"
    # AND where it is our own, it is asked
    os.chown(shared / "profd", os.geteuid(), os.geteuid())
    assert address.candidates()[0] == str(shared / "profd" / "profd.sock")


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away takes root")
def test_who_has_no_folder_of_their_own_is_told_why_no_daemon_of_theirs_is_looked_for(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address, "SYSTEM_SOCKET", "/nowhere/profd.sock")
    for folder in folders:
        os.chown(folder, SOMEBODY, SOMEBODY)
    with pytest.raises(UnreachableError, match="another user could have put one there"):
        address.find()
