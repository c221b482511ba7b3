"""A kineto source of one's own, and sessions that remember what was reported."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from profd.capture.death import DeathWatch
from profd.gpu.lease_keeper import LeaseKeeper
from profd.model.capture import State
from profd.sources.base import Session
from profd.sources.kineto.source import KinetoSource
from profd.targets.errands.office import errands
from profd.targets.table import ProcessTable

from tests.support.waiting import eventually


@pytest.fixture
def socket_dir() -> Iterator[Path]:
    """A directory whose path is short enough for socket addresses; pytest's own are not."""
    path = Path(tempfile.mkdtemp(prefix="kp-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
async def source(socket_dir: Path, tmp_path: Path) -> AsyncIterator[KinetoSource]:
    state = tmp_path / "state"
    state.mkdir()
    # What an earlier test's names were asked of, and did not answer, would say that somebody keeps the lock of ours.
    await eventually(lambda: all(child.gone() for child in errands._over))
    leases = LeaseKeeper(DeathWatch(ProcessTable()))
    source = KinetoSource(socket_dir, abstract=False, state_dir=state, leases=leases)
    await source.open()
    yield source
    await source.close()
    await leases.close()


class Reports(list[tuple[State, str]]):
    """What a session was told, in order."""

    @property
    def states(self) -> list[State]:
        """Each state once, in order of appearance."""
        return list(dict.fromkeys(state for state, _ in self))


def session(folder: Path, capture: str = "c1") -> tuple[Session, Reports]:
    """A session with its journal directory in `folder`."""
    directory = folder / f"journal-{capture}"
    directory.mkdir()
    reports = Reports()

    def report(state: State, detail: str) -> None:
        reports.append((state, detail))

    return Session(capture, directory, asyncio.Event(), report), reports
