"""Whose folders are."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from profclient.owners import are_ours, open_above, others_write, stay_ours

ALICE, PROJECT = 52400, 52409
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away takes root")


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder of another user, with one of ours in it."""
    (tmp_path / "theirs" / "ours").mkdir(parents=True)
    os.chown(tmp_path / "theirs", ALICE, ALICE)
    return tmp_path / "theirs"


def test_a_folder_of_ours_in_one_of_theirs_is_not_out_of_their_reach(theirs: Path) -> None:
    assert open_above(str(theirs / "ours")) == str(theirs)
    assert open_above(str(theirs / "ours" / "not" / "there")) == str(theirs)
    assert are_ours(str(theirs.parent))
    assert not are_ours(str(theirs.parent), "theirs", "ours")
    assert not are_ours(str(theirs / "not there"), "below")


def test_what_is_missing_in_a_folder_of_all_users_is_whoever_s_comes_first(tmp_path: Path) -> None:
    """As of `/tmp`: nobody can take ours away there, and anybody can be there before us."""
    tmp_path.chmod(0o1777)
    assert are_ours(str(tmp_path), "a", "b")
    assert not stay_ours(str(tmp_path), "a", "b")
    (tmp_path / "a").mkdir(mode=0o700)
    assert stay_ours(str(tmp_path), "a", "b")
    os.chown(tmp_path / "a", ALICE, ALICE)
    assert not stay_ours(str(tmp_path), "a", "b")
    assert not stay_ours(str(tmp_path), "a")


def test_members_of_a_group_that_may_write_are_others(tmp_path: Path) -> None:
    """A folder of a project, in which each member can put another folder in the place of ours."""
    shared = tmp_path / "shared"
    (shared / "ours").mkdir(parents=True)
    shared.chmod(0o2775)
    # the group of a user alone has that user's number, and root's has root
    assert not others_write(str(shared))
    os.chown(shared, ALICE, ALICE)
    assert not others_write(str(shared))
    os.chown(shared, 0, PROJECT)
    shared.chmod(0o2775)
    assert others_write(str(shared))
    assert not are_ours(str(shared))
    assert not are_ours(str(shared / "ours"))
    assert not stay_ours(str(shared), "new")
    assert open_above(str(shared / "ours")) == str(shared)
    shared.chmod(0o3775)  # sticky: they make names, and take away their own
    assert are_ours(str(shared / "ours"))
    assert not stay_ours(str(shared), "new")


def test_whom_an_access_list_lets_write_is_somebody_else(tmp_path: Path) -> None:
    entries = [
        (0x01, 7, -1),
        (0x02, 7, ALICE),
        (0x04, 5, -1),
        (0x10, 7, -1),
        (0x20, 5, -1),
    ]  # acl(5), as the kernel has it
    packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, may, who % 2**32) for tag, may, who in entries)
    try:
        os.setxattr(tmp_path, "system.posix_acl_access", packed)
    except OSError as error:
        pytest.skip(f"no access lists here: {error.strerror}")
    assert tmp_path.stat().st_mode & 0o777 == 0o775
    assert others_write(str(tmp_path))


def test_a_link_of_somebody_else_s_leads_where_they_like(tmp_path: Path) -> None:
    """Also from a folder such as `/tmp`, and while it leads to one of ours."""
    tmp_path.chmod(0o1777)
    (tmp_path / "ours").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "ours")
    assert are_ours(str(tmp_path / "link"))
    os.lchown(tmp_path / "link", ALICE, ALICE)
    assert not are_ours(str(tmp_path / "link"))
    assert open_above(str(tmp_path / "link" / "store")) == str(tmp_path)


def test_a_link_counts_where_it_lies_and_where_it_leads(theirs: Path) -> None:
    (theirs / "link").symlink_to(theirs.parent)
    (theirs.parent / "link").symlink_to(theirs / "ours")
    assert open_above(str(theirs / "link" / "x")) == str(theirs)
    assert open_above(str(theirs.parent / "link" / "x")) == str(theirs)


def test_in_a_user_namespace_what_is_above_is_the_hosts(theirs: Path) -> None:
    """Root there is nobody's root here, and cannot tell the host's root from others."""
    code = "import sys; from profclient.owners import open_above; print(open_above(sys.argv[1]))"
    command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", code, str(theirs / "ours")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare failed" in done.stderr:
        pytest.skip(done.stderr)
    assert (done.stdout, done.stderr) == ("\n", "")
