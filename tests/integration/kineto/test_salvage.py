"""Whole traces that a killed daemon had not taken: the next one has them, before it sweeps."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from profd.capture.death import DeathWatch
from profd.disk.space import Claim, Space, Urgency, alone
from profd.gpu.lease_keeper import LeaseKeeper
from profd.journal.journal import Journal
from profd.model.capture import RawFile
from profd.sources.kineto import salvage
from profd.sources.kineto.leftovers import Leftover, Leftovers
from profd.sources.kineto.salvage import note
from profd.sources.kineto.source import KinetoSource
from profd.targets.process import ProcessId
from profd.targets.table import ProcessTable

from tests.support.waiting import eventually

TOKEN = "993aa79f8069b17f685ca15c0d3bac04"
NAME = f"profd-{TOKEN}_7.json"
WHOLE = f'{{"trace_id": "{TOKEN}", "traceEvents": [{{"ph": "X"}}], "traceName": "x"}}'
DEAD = ProcessId(4194303, 1)


class Scene:
    """The state that a killed daemon has left, and the folder that its target wrote to."""

    def __init__(self, root: Path) -> None:
        self.state, self.traces = root / "second", root / "traces"
        self.state.mkdir()
        self.traces.mkdir()
        self.journal = Journal(self.state / "journal")
        self.file = self.traces / NAME
        Leftovers(self.state).add(Leftover(DEAD.pid, DEAD.start_ticks, os.geteuid(), str(self.traces), NAME, 0.0))

    async def swept(self, claim: Callable[[int], Claim] = lambda uid: alone()) -> None:
        """A daemon begins, and has swept what it does not need."""
        leases = LeaseKeeper(DeathWatch(ProcessTable()))
        source = KinetoSource(None, abstract=False, state_dir=self.state, leases=leases, claim=claim)
        await source.open()
        try:
            await eventually(lambda: source.statistics()["leftovers"] == 0)
        finally:
            await source.close()
            await leases.close()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.mark.parametrize("part", [False, True], ids=["before", "during the copy"])
async def test_it_is_taken_and_only_then_removed(scene: Scene, part: bool) -> None:
    scene.file.write_text(WHOLE)
    directory = scene.journal.directory("c1", DEAD)
    if part:
        note(directory, whole=True)
        (directory / "trace.json.part").write_text(WHOLE[:20])
    await scene.swept()
    assert not scene.file.exists()
    assert (directory / "trace.json").read_text() == WHOLE
    assert scene.journal.unfinished("c1", DEAD) == [RawFile(str(directory / "trace.json"), "chrome")]
    assert scene.journal.whole("c1", DEAD)


async def test_the_journal_is_gone_through_once_for_all_that_may_come(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has others' captures by the thousand, and nobody is served meanwhile."""
    scene.file.write_text(WHOLE)
    leftovers = Leftovers(scene.state)
    for number in range(20):
        leftovers.add(Leftover(DEAD.pid - 1, number, os.geteuid(), str(scene.traces), f"profd-{number}.json", 0.0))
    leftovers.add(Leftover(DEAD.pid, DEAD.start_ticks, os.geteuid(), str(scene.traces), NAME, 0.0))
    for capture in ("c1", "c2", "c3"):
        scene.journal.directory(capture, DEAD)
    looked = []
    glob = Path.glob
    monkeypatch.setattr(Path, "glob", lambda path, pattern: looked.append(path) or glob(path, pattern))
    await scene.swept()
    taken = [path for path in glob(scene.state, "journal/*/*") if (path / "trace.json").exists()]
    assert len(taken) == 1
    assert looked.count(scene.state / "journal") == 1


async def test_it_is_swept_where_no_capture_waits_for_it(scene: Scene) -> None:
    scene.file.write_text(WHOLE)
    await scene.swept()
    assert not scene.file.exists()
    assert scene.journal.survivors() == []


async def test_what_was_taken_is_not_taken_again(scene: Scene) -> None:
    """The daemon was killed between the copy and the removal, or the record."""
    scene.file.write_text(WHOLE)
    directory = scene.journal.directory("c1", DEAD)
    (directory / "trace.json").write_text("taken")
    await scene.swept()
    assert (directory / "trace.json").read_text() == "taken"


@pytest.mark.parametrize(
    "content", ['{"trace_id": "0123456789", "traceEvents": []}', None], ids=["another's trace", "a link"]
)
async def test_what_would_be_refused_is_not_taken(scene: Scene, content: str | None) -> None:
    if content is None:
        scene.file.symlink_to("/etc/passwd")
    else:
        scene.file.write_text(content)
    directory = scene.journal.directory("c1", DEAD)
    await scene.swept()
    assert list(directory.iterdir()) == []


async def test_one_without_room_stays_where_it_is(scene: Scene, tmp_path: Path) -> None:
    """It has no other copy."""
    scene.file.write_text(WHOLE)
    directory = scene.journal.directory("c1", DEAD)
    full = Space(tmp_path, measure=lambda: (0, 1 << 30))
    await scene.swept(lambda uid: full.claim(uid, "a trace", Urgency.RECORDING))
    assert scene.file.read_text() == WHOLE
    assert list(directory.iterdir()) == []


async def test_one_that_was_not_taken_in_time_stays_where_it_is(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others' traces may be what has taken the time."""
    scene.file.write_text(WHOLE)
    scene.journal.directory("c1", DEAD)
    monkeypatch.setattr(salvage, "KINETO_SALVAGE_SECONDS", 0.0)
    await scene.swept()
    assert scene.file.read_text() == WHOLE


async def test_one_that_is_cut_off_says_so(scene: Scene) -> None:
    scene.file.write_text(WHOLE[:-20])
    scene.journal.directory("c1", DEAD)
    await scene.swept()
    assert scene.journal.unfinished("c1", DEAD)
    assert not scene.journal.whole("c1", DEAD)


async def test_a_copy_is_kept_where_the_daemon_ends_before_it_has_looked_at_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.file.write_text(WHOLE)
    directory = scene.journal.directory("c1", DEAD)

    def ends(path: Path) -> None:
        raise OSError(5, f"{path} cannot be read")

    monkeypatch.setattr(salvage, "edges", ends)
    await scene.swept()
    assert scene.journal.unfinished("c1", DEAD) == [RawFile(str(directory / "trace.json"), "chrome")]
    assert not scene.journal.whole("c1", DEAD)
