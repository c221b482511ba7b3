"""One daemon per lock, and leftovers of a crash."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from profd.errors import BadInput, Unavailable
from profd.host.instance import Lock, check_one_filesystem, check_ours, clear_socket, make_directory


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        yield Path(name)


def test_second_lock_names_the_holder(folder: Path) -> None:
    first = Lock(folder / "lock", "the state directory X")
    with pytest.raises(Unavailable, match=rf"the state directory X is in use by another profd \(pid {os.getpid()}"):
        Lock(folder / "lock", "the state directory X")
    first.close()
    Lock(folder / "lock", "again").close()


def test_lock_is_no_way_to_write_elsewhere(folder: Path) -> None:
    (folder / "precious").write_text("gold")
    (folder / "lock").symlink_to(folder / "precious")
    with pytest.raises(BadInput, match="cannot be opened"):
        Lock(folder / "lock", "it")
    assert (folder / "precious").read_text() == "gold"


def test_no_socket_is_nothing_to_clear(folder: Path) -> None:
    clear_socket(folder / "none")


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM])
def test_leftover_is_removed_and_a_live_one_is_named(folder: Path, kind: socket.SocketKind) -> None:
    path = folder / "s"
    with socket.socket(socket.AF_UNIX, kind) as alive:
        alive.bind(str(path))
        if kind != socket.SOCK_DGRAM:
            alive.listen()
        with pytest.raises(Unavailable, match="listens on"):
            clear_socket(path)
        assert path.exists()
    clear_socket(path)
    assert not path.exists()


def test_what_is_no_socket_stays(folder: Path) -> None:
    (folder / "s").write_text("precious")
    with pytest.raises(BadInput, match="not a socket"):
        clear_socket(folder / "s")
    assert (folder / "s").read_text() == "precious"


def test_directory_gets_its_mode_once(folder: Path) -> None:
    make_directory(folder / "a" / "b", 0o711)
    assert (folder / "a" / "b").stat().st_mode & 0o777 == 0o711
    (folder / "a" / "b").chmod(0o750)
    make_directory(folder / "a" / "b", 0o711)  # an operator's choice stays
    assert (folder / "a" / "b").stat().st_mode & 0o777 == 0o750


def test_directory_that_cannot_be(folder: Path) -> None:
    (folder / "file").touch()
    with pytest.raises(BadInput, match="not a directory"):
        make_directory(folder / "file", 0o700)
    with pytest.raises(BadInput, match=r"cannot be made: .*--state-dir"):
        make_directory(folder / "file" / "below", 0o700)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_state_directory_of_another_user_is_none(folder: Path) -> None:
    theirs = folder / "theirs"
    theirs.mkdir()
    os.chown(theirs, 4321, 4321)
    with pytest.raises(BadInput, match="belongs to uid 4321"):
        check_ours(theirs)


def test_a_state_directory_that_everybody_may_write_into_is_none(folder: Path) -> None:
    open_ = folder / "open"
    open_.mkdir()
    check_ours(open_)
    open_.chmod(0o1777)
    with pytest.raises(BadInput, match="chmod go-w"):
        check_ours(open_)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory to a group")
def test_a_state_directory_that_a_group_may_write_into_is_none(folder: Path) -> None:
    theirs = folder / "theirs"
    (theirs / "below").mkdir(parents=True)
    os.chown(theirs, 0, 4321)
    check_ours(theirs)
    theirs.chmod(0o2770)
    with pytest.raises(BadInput, match=r"other users may write .* \(mode 2770\).*chmod go-w"):
        check_ours(theirs)
    with pytest.raises(BadInput, match=rf"another user can .*, by {theirs}\."):
        check_ours(theirs / "below")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_state_directory_whose_place_another_user_can_take_is_none(folder: Path) -> None:
    """They would put a link there to a directory of root's, between two starts or two calls."""
    theirs, state = folder / "theirs", folder / "state"
    for path in (theirs, theirs / "ours", state):
        path.mkdir()
    (theirs / "link").symlink_to(state)
    check_ours(theirs / "ours")
    os.chown(theirs, 4321, 4321)
    for path in (theirs / "ours", theirs / "link"):
        with pytest.raises(BadInput, match=rf"another user can .*, by {theirs}\."):
            check_ours(path)
    check_ours(state)


def test_a_filesystem_mounted_within_the_state_directory(tmp_path: Path) -> None:
    state, mounted = tmp_path / "a state", tmp_path / "mountinfo"
    state.mkdir()
    at = os.fsencode(state).replace(b" ", b"\\040")
    mounted.write_bytes(b"36 35 98:0 / %b rw - ext4 /dev/a rw\n37 36 0:5 / %b2 rw - tmpfs tmpfs rw\n" % (at, at))
    check_one_filesystem(state, mounted)
    with mounted.open("ab") as file:
        file.write(b"38 36 98:1 /traces %b/traces rw - ext4 /dev/b rw\n" % at)
    with pytest.raises(BadInput, match=r"a state/traces is on another filesystem .* Mount that filesystem at "):
        check_one_filesystem(state, mounted)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no second filesystem to be led to")
def test_a_directory_that_is_a_link_to_another_filesystem(tmp_path: Path) -> None:
    if Path("/dev/shm").stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second filesystem to be led to")
    (tmp_path / "nowhere").symlink_to("missing")
    check_one_filesystem(tmp_path)
    (tmp_path / "traces").symlink_to("/dev/shm")
    with pytest.raises(BadInput, match="traces is on another filesystem"):
        check_one_filesystem(tmp_path)
