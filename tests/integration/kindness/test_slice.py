"""A small slice of `make kindness`, with the same seed every time: captures of each kind of program, none is harmed.

What needs downloads, or another Python that has not been prepared, is left to `make kindness` (docs/kindness.md).
"""

from __future__ import annotations

import importlib.util
import os
import random
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kindness import cgroup, observer, pythons
from kindness.cases import Case, Trials
from kindness.catalog import PROGRAMS, Program
from kindness.daemons import daemons, killing
from kindness.ledger import Ledger
from kindness.shards import surroundings, tools
from kindness.storming import Storm, asker, one_job

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kindness")]

SECONDS = 3.0  # of a job: it is run again until something of it was recorded
AGAIN = 10
KILLS = (20, 40)  # captures that recorded between two daemons that are killed


@pytest.fixture(scope="module")
def storm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storm]:
    """Clients that capture whatever runs, and a daemon that is killed now and then."""
    with daemons() as found:
        folder = tmp_path_factory.mktemp("storm")
        rig = Storm(found, Ledger(folder, folder / "kept.jsonl"), observer=None)
        askers = [threading.Thread(target=asker, args=(rig, random.Random(seed))) for seed in range(2)]
        askers.append(killing(found, random.Random(2), KILLS, lambda: rig.tally.recorded, rig.over, lambda: None))
        for thread in askers[:2]:
            thread.start()
        yield rig
        rig.over.set()
        for thread in askers:
            thread.join()


def unharmed(rig: Storm, program: Program) -> None:
    """Jobs of it until something was recorded, and none is harmed."""
    chance, before = random.Random(program.name), rig.tally.recorded
    for _ in range(AGAIN):
        try:
            harm = one_job(rig, program, chance, SECONDS)
        except (cgroup.NoCgroups, LookupError) as error:
            pytest.skip(str(error))
        assert not harm
        if rig.tally.recorded > before:
            return
    pytest.fail(f"nothing of {program.name} was recorded in {AGAIN} jobs")


def needs_torch(program: Program) -> None:
    if program.torch and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_no_program_is_harmed(storm: Storm, program: Program) -> None:
    needs_torch(program)
    storm.observer = None
    unharmed(storm, replace(program, versions=(pythons.OWN,)))


@pytest.mark.parametrize("program", [each for each in PROGRAMS if each.torch], ids=lambda program: program.name)
def test_no_program_is_harmed_by_the_observer(storm: Storm, program: Program) -> None:
    needs_torch(program)
    storm.observer = observer.directory()
    if storm.observer is None:
        pytest.skip("needs a C++ compiler: the observer is built for the torch at hand")
    unharmed(storm, replace(program, environment=(*program.environment, ("PROFD_TORCH_DIR", str(storm.observer)))))


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    """A daemon that serves every user where we may be that."""
    with daemons(user=os.geteuid() != 0) as found:
        folder = tmp_path_factory.mktemp("cases")
        ledger = Ledger(folder, folder / "kept.jsonl")
        yield Trials(ledger, "slice", Path(sys.executable), found, random.Random(0))


def small(case: Case) -> Case:
    """A third of its turns: enough for a few captures."""
    return replace(case, arguments=tuple(str(int(each) // 3) if each.isdigit() else each for each in case.arguments))


@pytest.mark.parametrize("case", [*surroundings.CASES, *tools.OWN], ids=lambda case: case.name)
def test_no_surroundings_make_it_harmful(trials: Trials, case: Case) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounts, chroot and other users need root")
    try:
        harm, skipped = trials.judge(small(case)), trials.skipped
    except cgroup.NoCgroups as error:
        pytest.skip(str(error))
    if skipped:
        pytest.skip(skipped)
    assert not harm
