"""Where folders for a while may be made."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from profclient import temporary
from profclient.errors import UsageError
from profclient.fleet.way import Way, reachable

ALICE = 52400
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away takes root")


@pytest.fixture
def tmpdir_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes the folder that TMPDIR names another user's, and of this mode."""

    def given(uid: int, mode: int) -> Path:
        folder = tmp_path / "temporary"
        folder.mkdir()
        folder.chmod(mode)
        os.chown(folder, uid, uid)
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        return folder

    return given


def test_a_folder_of_all_users_will_do_where_nobody_takes_others_things_away(tmpdir_of) -> None:
    folder = tmpdir_of(os.geteuid(), 0o1777)
    assert temporary.place() == str(folder)


def test_one_where_everybody_can_will_not(tmpdir_of) -> None:
    folder = tmpdir_of(os.geteuid(), 0o777)
    with pytest.raises(PermissionError, match="TMPDIR") as caught:
        temporary.place()
    assert caught.value.filename == str(folder)


@needs_root
def test_one_of_a_group_will_not(tmpdir_of) -> None:
    """As the folder of a project is, in which its members work together."""
    folder = tmpdir_of(os.geteuid(), 0o770)
    os.chown(folder, 0, ALICE)
    with pytest.raises(PermissionError, match="TMPDIR"):
        temporary.place()
    (folder / "ours").mkdir()
    tempfile.tempdir = str(folder / "ours")
    with pytest.raises(PermissionError, match="TMPDIR"):
        temporary.place()


@needs_root
async def test_no_socket_that_leads_to_a_daemon_is_made_where_another_user_can_listen_in_its_place(tmpdir_of) -> None:
    """GIVEN a root shell that `su` has left with another user's TMPDIR WHEN hosts are to be reached THEN nothing is.

    What answers there would be given root's tokens of the hosts' daemons.
    """
    folder = tmpdir_of(ALICE, 0o755)
    with pytest.raises(UsageError, match="no place for sockets: another user can exchange"):
        async with reachable(Way(("n1",), "x {host}")):
            pass
    (folder / "ours").mkdir()
    tempfile.tempdir = str(folder / "ours")
    with pytest.raises(UsageError, match="no place for sockets"):
        async with reachable(Way(("n1",), "x {host}")):
            pass
