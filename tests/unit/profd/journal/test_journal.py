"""Raw files between targets and store."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from profd.errors import BadInput
from profd.fairness.sparing import Sparing
from profd.journal.journal import Journal
from profd.targets.process import ProcessId

ONE, TWO = ProcessId(10, 111), ProcessId(20, 222)
HOUR_NS = 3600 * 10**9


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "journal")


def put(journal, capture, process, size, hours):
    folder = journal.path(capture, process)  # directory() sweeps, and these are to look old
    folder.mkdir(parents=True)
    path = folder / "raw.json"
    path.write_bytes(bytes(size))
    when = hours * HOUR_NS
    os.utime(path, ns=(when, when))
    os.utime(path.parent, ns=(when, when))
    return path


def test_directory_is_private_and_kept(journal):
    path = journal.directory("c1", ONE)
    assert path.stat().st_mode & 0o777 == 0o700
    assert journal.directory("c1", ONE) == path
    assert journal.files("c1", ONE) == []
    (path / ".half").write_text("x")
    (path / "link").symlink_to("/etc/passwd")
    (path / "b").write_text("x")
    (path / "a").write_text("x")
    assert [file.name for file in journal.files("c1", ONE)] == ["a", "b"]
    assert journal.files("none", ONE) == []


def test_removed_session_takes_an_empty_capture_with_it(journal):
    one, two = put(journal, "c1", ONE, 1, 1), put(journal, "c1", TWO, 1, 1)
    journal.remove("c1", ONE)
    assert not one.exists()
    assert two.exists()
    journal.remove("c1", TWO)
    journal.remove("c1", TWO)
    assert not two.parent.parent.exists()


def test_what_no_capture_owns_goes(journal):
    kept, gone = put(journal, "c1", ONE, 1, 1), put(journal, "c2", ONE, 1, 1)
    journal.keep_only(["c1", "c3"])
    assert kept.exists()
    assert not gone.parent.parent.exists()


def test_survivors_are_named_oldest_first(journal, tmp_path):
    put(journal, "c2", TWO, 5, hours=2)
    put(journal, "c1", ONE, 3, hours=1)
    (tmp_path / "journal" / "c1" / "strange").mkdir()
    (tmp_path / "journal" / "file").write_text("")
    found = Journal(tmp_path / "journal").survivors()
    assert [(one.capture, one.process, one.bytes) for one in found] == [("c1", ONE, 3), ("c2", TWO, 5)]
    assert found[0].changed_ns == HOUR_NS


def test_sweep_bounds_age_and_bytes_and_spares_what_may_be_live(journal):
    for number in range(6):
        put(journal, f"c{number}", ONE, 100, hours=number)
    now = 5 * HOUR_NS + HOUR_NS // 2
    assert [one.capture for one in journal.survivors()] == [f"c{number}" for number in range(6)]
    gone = journal.sweep(seconds_max=4.6 * 3600, bytes_max=10**9, now_ns=now)
    assert [one.capture for one in gone] == ["c0"]
    gone = journal.sweep(seconds_max=1e9, bytes_max=250, now_ns=now)
    assert [one.capture for one in gone] == ["c1", "c2", "c3"]
    gone = journal.sweep(seconds_max=1e9, bytes_max=0, now_ns=now)
    assert [one.capture for one in gone] == ["c4"]
    assert [one.capture for one in journal.survivors()] == ["c5"]


def test_raw_data_of_others_is_not_pushed_out(journal):
    """Whoever has the most of it loses theirs, however old that of others is."""
    for number in range(4):
        put(journal, f"c{number}", ONE, 100, hours=number)
    journal.owner_of = {"c0": 1, "c1": 2, "c2": 2, "c3": 2}.__getitem__
    gone = journal.sweep(seconds_max=1e9, bytes_max=250, now_ns=10 * HOUR_NS)
    assert [one.capture for one in gone] == ["c1", "c2"]


def test_a_new_capture_takes_the_place_of_old_data(journal):
    old = put(journal, "c1", ONE, 1, hours=1)
    journal.directory("c2", TWO)
    assert not old.exists()


@pytest.mark.parametrize("capture", ["", "..", "a/b", "../x", "\0"])
def test_captures_are_never_paths(journal, capture):
    with pytest.raises(BadInput):
        journal.directory(capture, ONE)


def test_what_goes_while_it_is_looked_at_is_no_error(journal, monkeypatch):
    """A capture ended between the listing of the journal and that of its directory."""
    journal.directory("gone", ONE)
    seen = Path.is_symlink

    def ends_now(path):
        if path.name == "gone":
            journal.remove("gone", ONE)
        return seen(path)

    monkeypatch.setattr(Path, "is_symlink", ends_now)
    journal.sweep()
    assert not journal.path("gone", ONE).exists()


def test_targets_of_a_capture_come_and_go_at_once(journal):
    def turn(process):
        for _ in range(200):
            assert journal.directory("c1", process).name.startswith(str(process.pid))
            journal.remove("c1", process)

    with ThreadPoolExecutor() as pool:
        list(pool.map(turn, [ProcessId(10 + number, 1) for number in range(4)]))
    assert not journal.path("c1", ONE).parent.exists()


def test_a_capture_of_many_targets_sweeps_once(journal, monkeypatch):
    swept = []
    monkeypatch.setattr(type(journal), "sweep", lambda self: swept.append(1))
    for pid in range(1, 50):
        journal.directory("c" * 26, ProcessId(pid, 1))
    assert swept == [1]


def test_a_journal_that_takes_long_to_look_at_is_swept_less_often(journal, monkeypatch):
    """GIVEN thousands of folders of somebody WHEN others begin captures THEN not each looks at all of them."""
    spent, swept = [0.0], []
    journal._sparing = Sparing(0.02, clock=lambda: 5.0, spent=lambda: spent[0])

    def sweep(self):
        swept.append(1)
        spent[0] += 1

    monkeypatch.setattr(type(journal), "sweep", sweep)
    for number in range(9):
        journal.directory(f"c{number}", ONE)
    assert swept == [1]
