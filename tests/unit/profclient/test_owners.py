"""Whose folders are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from profclient.owners import are_ours, open_above, stay_ours

ALICE = 52400
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
