"""Files that a target wrote: only plain ones of its own are taken, and only those are ever deleted."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from profd import limits
from profd.disk import copying
from profd.disk.copying import Room
from profd.disk.space import Claim, Space
from profd.targets import pickup
from profd.targets.pickup import NotTaken, Refusal, Taken, TargetDirectory


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A target's root with /traces in it."""
    (tmp_path / "root" / "traces").mkdir(parents=True)
    return tmp_path / "root"


@pytest.fixture
def directory(root: Path) -> Iterator[TargetDirectory]:
    opened = TargetDirectory.open("/traces", os.geteuid(), root)
    assert isinstance(opened, TargetDirectory)
    yield opened
    opened.close()
    opened.close()


@pytest.fixture
def traces(root: Path) -> Path:
    return root / "traces"


def refusal(found: object) -> Refusal:
    assert isinstance(found, NotTaken), found
    return found.code


@pytest.mark.parametrize("size", [0, 1, 4095, 100_000])
def test_take_and_remove(directory: TargetDirectory, traces: Path, tmp_path: Path, size: int) -> None:
    (traces / "t").write_bytes(os.urandom(size))
    content = (traces / "t").read_bytes()
    taken = directory.take("t", tmp_path / "copy")
    assert isinstance(taken, Taken)
    assert taken.bytes == size
    assert (tmp_path / "copy").read_bytes() == content
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o600
    assert (traces / "t").exists()
    assert directory.remove("t", taken.inode)
    assert not (traces / "t").exists()
    assert not directory.remove("t", taken.inode)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["copy", "root"]


def test_copy_across_filesystems(directory: TargetDirectory, traces: Path) -> None:
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == traces.stat().st_dev:
        pytest.skip("no second filesystem at /dev/shm")
    (traces / "t").write_bytes(os.urandom(300_000))
    copy = shm / f"profd-test-{os.getpid()}"
    try:
        assert isinstance(directory.take("t", copy), Taken)
        assert copy.read_bytes() == (traces / "t").read_bytes()
    finally:
        copy.unlink(missing_ok=True)


def test_a_writer_that_goes_on_does_not_reach_the_copy(
    directory: TargetDirectory, traces: Path, tmp_path: Path
) -> None:
    with (traces / "t").open("wb", buffering=0) as writer:
        writer.write(b"before")
        assert isinstance(directory.take("t", tmp_path / "copy"), Taken)
        writer.write(b"after")
    assert (tmp_path / "copy").read_bytes() == b"before"


def test_symbolic_links(directory: TargetDirectory, traces: Path, root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (traces / "out").symlink_to(tmp_path / "secret")
    (traces / "real").write_text("r")
    (traces / "near").symlink_to("real")
    (traces / "dangling").symlink_to("nothing")
    for name in ("out", "near", "dangling"):
        assert refusal(directory.take(name, tmp_path / "copy")) is Refusal.LINK
        seen = directory.look(name)
        assert seen is not None
        assert not directory.remove(name, seen.inode)
        assert (traces / name).is_symlink()
    (root / "link").symlink_to("traces")
    assert refusal(TargetDirectory.open("/link", 0, root)) is Refusal.LINK


def test_root_is_not_left(root: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    assert refusal(TargetDirectory.open("/../outside", 0, root)) is Refusal.MISSING
    assert refusal(TargetDirectory.open("/../../../../etc", 0, root)) is Refusal.MISSING


@pytest.mark.parametrize("path", ["", "traces", "/nothing", "/traces\0"])
def test_directories_that_are_none(root: Path, path: str) -> None:
    assert refusal(TargetDirectory.open(path, 0, root)) is Refusal.MISSING


def test_file_as_directory_and_ended_target(root: Path) -> None:
    (root / "file").touch()
    assert refusal(TargetDirectory.open("/file", 0, root)) is Refusal.MISSING
    assert refusal(TargetDirectory.open("/traces", 0, Path("/proc/0/root"))) is Refusal.MISSING


def test_fifo_socket_and_folder(directory: TargetDirectory, traces: Path, tmp_path: Path) -> None:
    os.mkfifo(traces / "fifo")
    (traces / "folder").mkdir()
    for name in ("fifo", "folder"):
        assert refusal(directory.take(name, tmp_path / "copy")) is Refusal.NOT_REGULAR
        seen = directory.look(name)
        assert seen is not None
        assert not directory.remove(name, seen.inode)
        assert (traces / name).exists()


def test_a_lease_is_not_waited_for(directory: TargetDirectory, traces: Path, tmp_path: Path) -> None:
    holder = signal.signal(signal.SIGIO, signal.SIG_IGN)  # which tells who holds one that somebody waits
    file = os.open(traces / "t", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        refused = directory.take("t", tmp_path / "copy")
    finally:
        os.close(file)
        signal.signal(signal.SIGIO, holder)
    assert refusal(refused) is Refusal.UNREADABLE
    assert "held by a lease" in str(refused)


def test_hard_link(directory: TargetDirectory, traces: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("o")
    os.link(tmp_path / "other", traces / "t")
    assert refusal(directory.take("t", tmp_path / "copy")) is Refusal.HARD_LINKED
    seen = directory.look("t")
    assert seen is not None
    assert not directory.remove("t", seen.inode)
    assert (traces / "t").exists()


def test_file_of_another_owner(root: Path, traces: Path, tmp_path: Path) -> None:
    (traces / "t").write_text("t")
    stranger = TargetDirectory.open("/traces", os.geteuid() + 1, root)
    assert isinstance(stranger, TargetDirectory)
    assert refusal(stranger.take("t", tmp_path / "copy")) is Refusal.FOREIGN
    seen = stranger.look("t")
    assert seen is not None
    assert not stranger.remove("t", seen.inode)
    stranger.close()
    assert (traces / "t").exists()


def test_too_large(directory: TargetDirectory, traces: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(limits, "TRACE_FILE_BYTES_MAX", 10)
    (traces / "t").write_bytes(b"x" * 11)
    assert refusal(directory.take("t", tmp_path / "copy")) is Refusal.TOO_LARGE


def claim(free: int) -> Claim:
    """On a disk that has so much free before anything is written."""
    space = Space(Path("/"), uid_share=2.0, measure=lambda: (free - claimed.written, 0))
    claimed = space.claim(1, "the raw data of this capture")
    return claimed


def test_no_space_is_said_before_it_runs_out(directory: TargetDirectory, traces: Path, tmp_path: Path) -> None:
    (traces / "t").write_bytes(os.urandom(100_000))
    found = directory.take("t", tmp_path / "copy", claim(99_999))
    assert refusal(found) is Refusal.NO_SPACE
    assert isinstance(found, NotTaken)
    assert "may be written" in found.message
    assert not (tmp_path / "copy").exists()
    assert (traces / "t").exists()


def sparse(path: Path, size: int, *pieces: tuple[int, bytes]) -> None:
    with path.open("wb") as file:
        for at, data in pieces:
            file.seek(at)
            file.write(data)
        file.truncate(size)


def test_holes_are_not_copied(directory: TargetDirectory, traces: Path, tmp_path: Path) -> None:
    """32 GiB that cost its owner nothing cost us nothing: not of the disk, not of what was promised."""
    size = limits.TRACE_FILE_BYTES_MAX
    sparse(traces / "t", size, (0, b"begin"), (size // 2, b"middle"))
    own = claim(1 << 20)
    taken = directory.take("t", tmp_path / "copy", own)
    assert isinstance(taken, Taken)
    assert not taken.cut
    found = (tmp_path / "copy").stat()
    assert found.st_size == size
    assert max(taken.bytes, found.st_blocks * 512, own.written) <= 1 << 20
    with (tmp_path / "copy").open("rb") as file:
        for at, data in ((0, b"begin"), (size // 2, b"middle")):
            file.seek(at)
            assert file.read(len(data)) == data


def test_a_file_of_nothing_but_a_hole(directory: TargetDirectory, traces: Path, tmp_path: Path) -> None:
    sparse(traces / "t", 1 << 30)
    taken = directory.take("t", tmp_path / "copy", claim(1000))
    assert isinstance(taken, Taken)
    assert taken.bytes == (tmp_path / "copy").stat().st_blocks == 0


def test_a_file_of_too_many_holes(directory: TargetDirectory, traces: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(copying, "PICKUP_PIECES_MAX", 3)
    sparse(traces / "t", 1 << 20, *((number << 16, b"x" * 4096) for number in range(5)))
    taken = directory.take("t", tmp_path / "copy")
    assert isinstance(taken, Taken)
    assert "more than 3 holes" in taken.cut
    assert taken.bytes == 3 * 4096


def test_more_data_than_is_taken_is_cut_off(directory: TargetDirectory, traces: Path, tmp_path: Path) -> None:
    content = os.urandom(300_000)
    (traces / "t").write_bytes(content)
    taken = directory.take("t", tmp_path / "copy", data_max=200_000)
    assert isinstance(taken, Taken)
    assert "is cut off: it holds more than 200000 bytes" in taken.cut
    assert (tmp_path / "copy").read_bytes() == content[:200_000]


def changing(monkeypatch: pytest.MonkeyPatch, change: Callable[[], None]) -> None:
    """Let a target do this while its file is copied: when that has been looked at, before the first byte."""

    def meanwhile(source: int, target: int, size: int, data_max: int, room: Room) -> tuple[int, str]:
        change()
        return copying.copy(source, target, size, data_max, room)

    monkeypatch.setattr(pickup, "copy", meanwhile)


def test_a_file_that_grows_is_cut_where_it_was(
    directory: TargetDirectory, traces: Path, tmp_path: Path, monkeypatch
) -> None:
    (traces / "t").write_bytes(b"x" * 5000)

    def grow() -> None:
        with (traces / "t").open("ab") as file:
            file.write(b"y" * 100_000)

    changing(monkeypatch, grow)
    taken = directory.take("t", tmp_path / "copy", claim(5000))
    assert isinstance(taken, Taken)
    assert "it had 5000 bytes at first and 105000 when" in taken.cut
    assert (tmp_path / "copy").read_bytes() == b"x" * 5000


def test_holes_that_are_filled_meanwhile_take_no_more_than_there_is_room_for(
    directory: TargetDirectory, traces: Path, tmp_path: Path, monkeypatch
) -> None:
    """What it held when it was looked at was promised; what comes after that is asked for piece by piece."""
    monkeypatch.setattr(copying, "_PIECE_BYTES", 64 << 10)
    sparse(traces / "t", 1 << 20, (0, b"x"))

    def fill() -> None:
        (traces / "t").write_bytes(b"x" * (1 << 20))

    changing(monkeypatch, fill)
    taken = directory.take("t", tmp_path / "copy", claim(256 << 10))
    assert isinstance(taken, Taken)
    assert "is cut off" in taken.cut
    assert "may be written" in taken.cut
    assert (tmp_path / "copy").stat().st_size == taken.bytes <= 256 << 10


def test_swapped_while_it_is_read(directory: TargetDirectory, traces: Path, tmp_path: Path, monkeypatch) -> None:
    (traces / "t").write_text("first")

    def swap() -> None:
        (traces / "new").write_text("other")
        os.rename(traces / "new", traces / "t")

    changing(monkeypatch, swap)
    assert refusal(directory.take("t", tmp_path / "copy")) is Refusal.SWAPPED
    assert [entry.name for entry in tmp_path.iterdir()] == ["root"]
    assert (traces / "t").read_text() == "other"


def test_only_the_taken_inode_is_removed(directory: TargetDirectory, traces: Path, tmp_path: Path) -> None:
    (traces / "t").write_text("first")
    taken = directory.take("t", tmp_path / "copy")
    assert isinstance(taken, Taken)
    (traces / "new").write_text("other")
    os.rename(traces / "new", traces / "t")
    assert not directory.remove("t", taken.inode)
    assert (traces / "t").read_text() == "other"


def test_existing_destination_part_is_not_written_through(
    directory: TargetDirectory, traces: Path, tmp_path: Path
) -> None:
    (traces / "t").write_text("t")
    (tmp_path / "copy.part").symlink_to(tmp_path / "elsewhere")
    assert refusal(directory.take("t", tmp_path / "copy")) is Refusal.UNREADABLE
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("mode", "owner", "gids", "writable"),
    [
        (0o700, 5, (), False),
        (0o703, 5, (), True),
        (0o1777, 5, (), True),
        (0o730, 5, (7,), True),
        (0o777, 5, (7,), True),
        (0o707, 5, (7,), False),  # its group decides, and others do not count
        (0o070, 5, (), False),
        (0o300, 1000, (), True),
        (0o577, 1000, (7,), False),  # its owner decides
    ],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory away")
def test_unwritable(root: Path, mode: int, owner: int, gids: tuple[int, ...], writable: bool) -> None:
    os.chown(root / "traces", owner, 7)
    os.chmod(root / "traces", mode)
    directory = TargetDirectory.open("/traces", 1000, root)
    assert isinstance(directory, TargetDirectory)
    assert (directory.unwritable(gids) == "") is writable
    assert directory.free_bytes() > 0
    directory.close()
    as_root = TargetDirectory.open("/traces", 0, root)
    assert isinstance(as_root, TargetDirectory)
    assert as_root.unwritable(()) == ""
    as_root.close()


@pytest.mark.parametrize("what", ["folder", "nothing", "file", "link"])
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory away")
def test_what_is_in_a_folder_of_others_is_not_told(root: Path, what: str) -> None:
    """A process names any path: whether there is something at it is nobody's to know who could not look there."""
    theirs = root / "traces" / "theirs"
    (theirs / "folder").mkdir(parents=True, mode=0o777)
    (theirs / "file").touch()
    (theirs / "link").symlink_to("/tmp")
    os.chown(theirs, 1001, 7)
    theirs.chmod(0o770)
    refused = TargetDirectory.open(f"/traces/theirs/{what}", 1000, root, (8, 9))
    assert isinstance(refused, NotTaken)
    assert refused.message == f"/traces/theirs/{what} is out of reach of uid 1000, who may not enter /traces/theirs"
    itself = TargetDirectory.open("/traces/theirs", 1000, root, ())  # with the names in it
    assert refusal(itself) is Refusal.UNREADABLE
    allowed = [(1001, ()), (1000, (8, 7)), (0, ())]
    for uid, gids in allowed:
        found = TargetDirectory.open("/traces/./theirs//folder/", uid, root, gids)
        assert isinstance(found, TargetDirectory), found
        found.close()
    assert refusal(TargetDirectory.open("/traces/theirs/../theirs/folder", 1001, root, ())) is Refusal.UNREADABLE
    assert refusal(TargetDirectory.open("/traces/theirs/link", 1001, root, ())) is Refusal.LINK
