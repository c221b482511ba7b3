"""docs/adding-a-source.md, done: its patch is applied to a copy of the tree, and a real daemon there has the source."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from profproto.v1 import capture_pb2 as pb

from tests.support.attached import Captures, lost, sql
from tests.support.daemon import RunningDaemon, running_daemon, start_daemon
from tests.support.patched import Patched, patched, shown
from tests.support.waiting import until

BOUND, MOST = "READINGS_MAX: Final = 10_000", 40  # readings of one recording
FULL = "its file is full: readings are counted and not kept"
COUNTED = "select count(*) from events where name = 'ticks'"

pytestmark = pytest.mark.slow


OUTSIDE_MAX = 1  # files of code that are not the source's own


@pytest.fixture(scope="module")
def patch(tmp_path_factory: pytest.TempPathFactory) -> Patched:
    """With a bound that a test reaches soon."""
    patch = patched("a-source", tmp_path_factory.mktemp("tree"))
    source = patch.tree / "daemon/profd/sources/ticks/source.py"
    text = source.read_text()
    assert BOUND in text
    source.write_text(text.replace(BOUND, f"READINGS_MAX: Final = {MOST}"))
    return patch


@pytest.fixture
def daemon(patch: Patched) -> Iterator[RunningDaemon]:
    with running_daemon(environ=patch.environ) as running:
        yield running


@pytest.fixture
def program() -> Iterator[int]:
    """A program that no other source can record."""
    process = subprocess.Popen(["sleep", "600"])
    yield process.pid
    process.kill()
    process.wait()


def offered(daemon: RunningDaemon, pid: int) -> list[str]:
    request = pb.ListTargetsRequest(selector=pb.Selector(pids=[pid]), all=True)
    return [source for target in Captures(daemon).call("ListTargets", request).targets for source in target.sources]


def file_of(daemon: RunningDaemon) -> Path | None:
    return next(daemon.state_dir.glob("journal/*/*/ticks.json"), None)


def reads(daemon: RunningDaemon) -> bool:
    """It has read something of a process, which is on the disk."""
    file = file_of(daemon)
    return file is not None and "args" in file.read_text().partition("\n")[2].partition("\n")[2]


def kept(daemon: RunningDaemon, capture: str) -> bool:
    """The capture's record on the disk names the file: a daemon that is killed from now on leaves it."""
    return "ticks.json" in (daemon.state_dir / "records" / "captures" / f"{capture}.json").read_text()


def test_it_touches_few_files(patch: Patched) -> None:
    own = ("daemon/profd/sources/ticks/", "tests/")
    others = {file for file in patch.files if not file.startswith(own)}
    pages = {"CHANGELOG.md", "docs/captures.md"}
    assert pages < others
    assert len(others - pages) <= OUTSIDE_MAX


def test_it_is_taken_where_no_better_one_can_and_says_what_it_leaves_out(daemon: RunningDaemon, program: int) -> None:
    captures = Captures(daemon)
    assert offered(daemon, program) == ["ticks"]
    [target] = captures.record(program, memory=True, sample_hz=50, c_calls=True, torch="observer").targets
    assert (target.state, list(target.sources)) == (pb.STATE_STORED, ["ticks"]), target.message
    assert list(target.not_honoured) == [
        "c_calls: ticks reads /proc and sees no calls",
        "torch: ticks reads /proc and sees no operators",
    ]
    assert sql(daemon, target.trace, COUNTED)[0][0] > 0
    [refused] = captures.record(program, c_calls=True, strict=True).targets
    assert (refused.state, refused.reason) == (pb.STATE_REFUSED, pb.REASON_NOT_HONOURED)
    [refused] = captures.record(program, max_overhead=0.02).targets
    assert "does not serve --max-overhead" in refused.message


def test_what_is_lost_is_told(daemon: RunningDaemon, program: int) -> None:
    captures = Captures(daemon)
    capture = captures.recording(program, sample_hz=1000)
    captures.until(capture, lambda state: state.targets[0].doing == FULL)
    [target] = captures.stop(capture).targets
    assert (target.state, target.reason) == (pb.STATE_PARTIAL, pb.REASON_LOSSES), target.message
    assert list(lost(target)) == ["too_many"]
    assert sql(daemon, target.trace, COUNTED)[0][0] >= MOST


def test_it_is_stopped_and_lets_go(daemon: RunningDaemon, program: int) -> None:
    captures = Captures(daemon)
    capture = captures.recording(program)
    [busy] = captures.record(program).targets
    assert (busy.state, busy.reason) == (pb.STATE_BUSY, pb.REASON_CAPTURE_RUNNING)
    until(lambda: reads(daemon), "it reads")
    [target] = captures.stop(capture).targets
    assert target.state == pb.STATE_STORED, target.message
    assert offered(daemon, program) == ["ticks"]  # it says that nobody holds the process
    [target] = captures.record(program).targets
    assert target.state == pb.STATE_STORED, target.message


def test_a_daemon_that_is_killed_in_a_capture_leaves_what_had_been_read(
    daemon: RunningDaemon, program: int, patch: Patched
) -> None:
    capture = Captures(daemon).recording(program)
    until(lambda: reads(daemon), "it reads")
    until(lambda: kept(daemon, capture), "its file is kept")
    daemon.kill()
    daemon.process = start_daemon(daemon.directory, environ=patch.environ).process
    captures = Captures(daemon)
    [target] = captures.ended(capture).targets
    assert (target.state, target.reason) == (pb.STATE_FAILED, pb.REASON_DAEMON_RESTARTED)
    captures.call("RetryCapture", pb.CaptureRef(id=capture))
    [target] = captures.ended(capture).targets
    assert (target.state, target.reason) == (pb.STATE_PARTIAL, pb.REASON_TRUNCATED), target.message
    assert sql(daemon, target.trace, COUNTED)[0][0] > 0
    [target] = captures.record(program).targets
    assert target.state == pb.STATE_STORED, target.message


def test_its_page_shows_lines_of_it(patch: Patched) -> None:
    assert shown(patch, "adding-a-source.md") == []
