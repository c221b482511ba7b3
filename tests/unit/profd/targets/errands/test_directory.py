"""Directories of targets, held by processes that are given up: also on a real file system that does not answer."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from profd import limits
from profd.disk.space import Claim, Space, Urgency
from profd.errors import DiskFull
from profd.targets.errands import office as office_module
from profd.targets.errands.directory import Directory, SilentDirectory
from profd.targets.errands.office import Errands
from profd.targets.pickup import NotTaken, Refusal, Taken

from tests.support.dead_files import dead_files, why_not
from tests.support.waiting import eventually

needs_fuse = pytest.mark.skipif(bool(why_not()), reason=why_not())
MALLORY, BOB = 61301, 61302
OWN = os.geteuid()
ROOT = Path("/")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was told to end and has not is stuck at once."""
    monkeypatch.setattr(office_module, "ERRANDS_STUCK_SECONDS", 0.0)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """What hangs hangs for ever, so nobody has to wait for long to see it."""
    monkeypatch.setattr(limits, "ERRAND_SECONDS", 2.0)


@pytest.fixture
def office() -> Iterator[Errands]:
    found = Errands()
    yield found
    found.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a user whose disk is well."""
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


async def opened(office: Errands, path: Path, uid: int = OWN, root: Path = ROOT) -> Directory:
    found = await Directory.open(str(path), uid, root, office)
    assert isinstance(found, Directory), found
    return found


async def test_what_a_directory_does(office: Errands, folder: Path, tmp_path: Path) -> None:
    (folder / "t").write_bytes(b"x" * 10_000)
    found = await opened(office, folder)
    assert await found.look("nothing") is None
    problem, free = await found.usable((os.getegid(),))
    assert (problem, free > 0) == ("", True)
    seen = await found.look("t")
    taken = await found.take("t", tmp_path / "copy")
    assert seen is not None
    assert isinstance(taken, Taken)
    assert (taken.inode, taken.bytes >= 10_000, taken.cut) == (seen.inode, True, "")
    assert (tmp_path / "copy").read_bytes() == b"x" * 10_000
    assert await found.remove("t", taken.inode)
    assert not await found.remove("t", taken.inode)
    found.close()
    found.close()
    await eventually(lambda: office.statistics() == {"processes": 0, "stuck": 0})


async def test_what_is_refused_is_said_as_before(office: Errands, folder: Path, tmp_path: Path) -> None:
    (folder / "link").symlink_to(tmp_path)
    missing = await Directory.open(str(folder / "no"), OWN, ROOT, office)
    assert isinstance(missing, NotTaken)
    assert missing.code is Refusal.MISSING
    found = await opened(office, folder)
    for name, code in (("link", Refusal.LINK), ("nothing", Refusal.MISSING)):
        refused = await found.take(name, tmp_path / "copy")
        assert isinstance(refused, NotTaken)
        assert refused.code is code
    found.close()


async def test_names_that_are_no_text(office: Errands, folder: Path, tmp_path: Path) -> None:
    strange = folder / os.fsdecode(b"\xff\xfe")
    strange.mkdir()
    (strange / os.fsdecode(b"\xfd.json")).write_bytes(b"x")
    found = await opened(office, strange)
    assert isinstance(await found.take(os.fsdecode(b"\xfd.json"), tmp_path / os.fsdecode(b"\xfc")), Taken)
    refused = await found.take(os.fsdecode(b"\xfb"), tmp_path / "copy")
    assert isinstance(refused, NotTaken)
    assert os.fsdecode(b"\xff\xfe") in refused.message
    found.close()


async def test_what_is_copied_is_counted_meanwhile(
    office: Errands, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ERRAND_PIECE_BYTES", 16 << 20)
    (folder / "t").write_bytes(os.urandom(40 << 20))
    counted: list[int] = []
    space = Space(tmp_path, uid_share=1.0, measure=lambda: (1 << 40, 1 << 40))

    class Noted(Claim):
        def hold(self, written: int, least: int, most: int | None = None) -> int:
            counted.append(written)
            return super().hold(written, least, most)

    claim = Noted(space, OWN, "it", Urgency.RECORDING)
    found = await opened(office, folder)
    taken = await found.take("t", tmp_path / "copy", claim)
    assert isinstance(taken, Taken)
    if len(counted) > 1:  # a file system that clones copies nothing
        assert counted == [0, 0, 16 << 20, 32 << 20]
    assert claim.written == taken.bytes
    found.close()


async def test_where_there_is_no_room_nothing_is_taken(office: Errands, folder: Path, tmp_path: Path) -> None:
    (folder / "t").write_bytes(os.urandom(1 << 20))
    claim = Space(tmp_path, measure=lambda: (0, 1 << 40)).claim(OWN, "it")
    with pytest.raises(DiskFull):
        claim.hold(0, 1)
    found = await opened(office, folder)
    refused = await found.take("t", tmp_path / "copy", claim)
    assert isinstance(refused, NotTaken)
    assert refused.code is Refusal.NO_SPACE
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own"]
    assert await found.look("t") is not None  # it goes on
    found.close()


@needs_fuse
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("silent", ["OPEN", "READ", "FLUSH", "LOOKUP:t.json"])
async def test_a_pick_up_from_a_dead_disk_is_given_up(office: Errands, tmp_path: Path, silent: str) -> None:
    claim = Space(tmp_path, uid_share=1.0, measure=lambda: (1 << 40, 1 << 40)).claim(MALLORY, "it")
    with dead_files(tmp_path / "mount", MALLORY, silent) as dead:
        found = await opened(office, dead.folder, MALLORY, dead.root)
        refused = await found.take("t.json", tmp_path / "copy", claim)
        # THEN it is told why, nothing is left of it, and its process waits for the file system
        assert isinstance(refused, NotTaken)
        assert refused.code is Refusal.NO_ANSWER
        assert "does not answer" in refused.message
        assert sorted(path.name for path in tmp_path.iterdir()) == ["mount"]
        assert claim.written == 0
        assert office.statistics() == {"processes": 1, "stuck": 1}
        with pytest.raises(SilentDirectory):
            await found.look("t.json")
        found.close()
    # until that goes
    await eventually(lambda: office.statistics() == {"processes": 0, "stuck": 0})


@needs_fuse
@pytest.mark.usefixtures("short")
async def test_opening_and_looking_are_given_up(office: Errands, tmp_path: Path) -> None:
    with dead_files(tmp_path / "mount", MALLORY, "OPENDIR", "LOOKUP:t.json") as dead:
        refused = await Directory.open(str(dead.folder), MALLORY, dead.root, office)
        assert isinstance(refused, NotTaken)
        assert refused.code is Refusal.NO_ANSWER
    with dead_files(tmp_path / "mount", MALLORY, "LOOKUP:t.json") as dead:
        found = await opened(office, dead.folder, MALLORY, dead.root)
        with pytest.raises(SilentDirectory):
            await found.look("t.json")
        found.close()


@needs_fuse
async def test_others_are_picked_up_meanwhile(
    office: Errands, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ERRAND_SECONDS", 60.0)
    (folder / "t.json").write_bytes(b"x")
    with dead_files(tmp_path / "mount", MALLORY, "READ") as dead:
        hanging = []
        for number in range(limits.ERRANDS_PER_UID_MAX):
            held = await opened(office, dead.folder, MALLORY, dead.root)
            hanging.append(asyncio.create_task(held.take("t.json", tmp_path / f"mallorys-{number}")))
        await asyncio.sleep(0)
        found = await opened(office, folder)
        assert isinstance(await found.take("t.json", tmp_path / "copy"), Taken)
        assert not any(task.done() for task in hanging)
        found.close()
        # WHEN these are not wanted any more
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
        # THEN nothing is left of them, and the office can be closed
        assert not list(tmp_path.glob("mallorys-*"))
        office.close()


@needs_fuse
async def test_who_has_many_that_are_stuck_is_refused_and_nobody_else(
    office: Errands, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dead_files(tmp_path / "mount", MALLORY, "OPENDIR") as dead:
        monkeypatch.setattr(limits, "ERRAND_SECONDS", 0.5)
        said = []
        for _ in range(limits.ERRANDS_STUCK_PER_UID_MAX + 2):
            refused = await Directory.open(str(dead.folder), MALLORY, dead.root, office)
            assert isinstance(refused, NotTaken)
            said.append(refused.message)
        monkeypatch.setattr(limits, "ERRAND_SECONDS", 60.0)
        assert office.statistics()["stuck"] == limits.ERRANDS_STUCK_PER_UID_MAX
        assert f"looks at files of uid {MALLORY} wait for a file system" in said[-1]
        (await opened(office, folder)).close()
        (await opened(office, folder, BOB)).close()
    await eventually(lambda: office.statistics()["stuck"] == 0)
    (await opened(office, folder, MALLORY)).close()


async def test_many_directories_of_a_user_share_processes(office: Errands, folder: Path, tmp_path: Path) -> None:
    found = [await opened(office, folder) for _ in range(3 * limits.ERRANDS_PER_UID_MAX)]
    assert office.statistics()["processes"] == limits.ERRANDS_PER_UID_MAX
    (folder / "t").touch()
    assert all(await asyncio.gather(*(each.look("t") for each in found)))
    # WHEN one is closed, those beside it stay open
    found[0].close()
    assert all(await asyncio.gather(*(each.look("t") for each in found[1:])))
    for each in found:
        each.close()
    await eventually(lambda: office.statistics() == {"processes": 0, "stuck": 0})


@pytest.mark.skipif(OWN != 0, reason="only root opens directories for others")
async def test_who_has_come_first_keeps_nobody_from_a_first_process(
    office: Errands, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(office_module, "ERRANDS_MAX", 3)
    first = [await opened(office, folder, uid) for uid in (BOB, BOB, BOB, BOB)]
    assert office.statistics()["processes"] == 3
    second = [await opened(office, folder, MALLORY + 100 + number) for number in range(3)]
    refused = await Directory.open(str(folder), MALLORY, ROOT, office)
    assert isinstance(refused, NotTaken)
    assert refused.code is Refusal.NO_ANSWER
    for each in (*first, *second):
        each.close()


def end_of(pidfd: int) -> bool:
    return bool(select.select([pidfd], [], [], 0)[0])


async def test_another_server_takes_the_place_of_one_that_was_killed(office: Errands, folder: Path) -> None:
    found = await opened(office, folder)
    server = office._server
    assert server is not None
    server.send_signal(signal.SIGKILL)
    server.wait()
    child = found._child
    await eventually(lambda: end_of(child._pidfd))  # its processes went with it
    with pytest.raises(SilentDirectory):
        await found.look("t")
    found.close()
    (await opened(office, folder)).close()


@pytest.fixture
async def confined(office: Errands, folder: Path) -> AsyncIterator[int]:
    found = await opened(office, folder)
    assert await found.look("t") is None  # it serves
    yield found._child.pid
    found.close()


@pytest.mark.skipif(OWN != 0, reason="only root sees which descriptors such a process has")
async def test_a_process_has_no_more_than_it_needs(confined: int) -> None:
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{confined}/status").read_text().splitlines())
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    needed = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 19
    for kind in ("CapPrm", "CapEff", "CapBnd"):
        assert int(status[kind], 16) & ~needed == 0
    assert int(status["CapAmb"], 16) == int(status["CapInh"], 16) == 0
    held = {os.readlink(f"/proc/{confined}/fd/{fd}") for fd in os.listdir(f"/proc/{confined}/fd")}
    assert len(held) == 3
    assert {"/dev/null"} < held
    assert sum(name.startswith("socket:") for name in held) == 1
