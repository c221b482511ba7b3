"""The user's own files of captures of many hosts."""

import json
import os

import pytest
from profclient.errors import NotFoundError, UsageError
from profclient.fleet import records
from profclient.fleet.records import Record
from profclient.fleet.way import Way

SOMEBODY = 65534
WAY = Way(("n1", "n2"), "ssh {host}", "/opt/python", 8, (("step {hosts}", ("n2",)),))


@pytest.fixture(autouse=True)
def _state(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_written_and_found_by_a_prefix():
    record = Record("f0123456789ab", WAY, {"n3": "ssh: no route"}, "/traces")
    records.write(record)
    records.write(Record("f1123456789ab", WAY))
    assert records.find("f01") == record
    with pytest.raises(UsageError, match="2 captures"):
        records.find("f")
    with pytest.raises(NotFoundError, match="is: give its whole id, and name its hosts with --hosts"):
        records.find("f2")
    with pytest.raises(NotFoundError, match="is: name its hosts with --hosts"):
        records.find("f2123456789ab")


def test_a_host_that_says_much_keeps_nobody_from_taking_the_capture_up():
    records.write(Record("f0123456789ab", WAY, {"n3": "x" * (5 << 20)}))
    assert records.find("f0").left_out == {"n3": "x" * 300}


@pytest.mark.parametrize("damaged", ["", "[]", '{"id": "f1"}', '{"id": "f1", "hosts": ["x"], "via": 3}'])
def test_a_damaged_file_is_as_good_as_none(damaged):
    records.write(Record("f0123456789ab", WAY))
    (records.folder() / "f0123456789ab.json").write_text(damaged)
    with pytest.raises(NotFoundError, match="--hosts"):
        records.find("f0")


def test_hosts_in_a_file_are_names_of_hosts_too():
    records.write(Record("f0123456789ab", WAY))
    path = records.folder() / "f0123456789ab.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "hosts": ["-oProxyCommand=x"]}))
    with pytest.raises(UsageError, match="no name"):
        records.find("f0")


def test_the_oldest_go(monkeypatch):
    monkeypatch.setattr(records, "KEPT_MAX", 2)
    for number in range(4):
        records.write(Record(f"f{number}123456789ab", WAY))
    assert sorted(path.stem for path in records.folder().iterdir()) == ["f2123456789ab", "f3123456789ab"]


def test_the_latest_come_first_and_damaged_ones_hide_no_other():
    for number in range(4):
        records.write(Record(f"f{number}123456789ab", WAY))
        os.utime(records.folder() / f"f{number}123456789ab.json", ns=(0, number))
    (records.folder() / "f2123456789ab.json").write_text("[")
    os.utime(records.folder() / "f2123456789ab.json", ns=(0, 2))
    assert [(written_ns, record.id[:2]) for written_ns, record in records.newest(3)] == [(3, "f3"), (1, "f1")]
    assert records.newest(1)[0][1].way == WAY


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away takes root")
@pytest.mark.parametrize("whose", ["", "profd", "profd/fleets"])
def test_files_in_a_folder_of_somebody_else_say_nothing(tmp_path, whose):
    """As after `su` without a dash: root would run the command that the caller of it has written there."""
    records.write(Record("f0123456789ab", WAY))
    os.chown(tmp_path / whose, SOMEBODY, SOMEBODY)
    for asked in (lambda: records.find("f0"), lambda: records.newest(9)):
        with pytest.raises(NotFoundError, match=r"another user can write there.*Set HOME"):
            asked()
    # AND nothing is written through links of theirs
    with pytest.raises(PermissionError, match="another user"):
        records.write(Record("f1123456789ab", WAY))
    assert [path.name for path in records.folder().iterdir()] == ["f0123456789ab.json"]


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away takes root")
def test_a_link_of_somebody_else_s_to_a_folder_of_ours_is_no_folder_of_ours(tmp_path, monkeypatch):
    """It leads to a folder of theirs as soon as it was looked at."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs" / "state").symlink_to(tmp_path / "ours")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "theirs" / "state"))
    records.write(Record("f0123456789ab", WAY))
    os.chown(tmp_path / "theirs", SOMEBODY, SOMEBODY)
    with pytest.raises(NotFoundError, match="another user can write there"):
        records.find("f0")


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away takes root")
def test_a_folder_that_is_not_there_yet_is_whose_the_one_above_is(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "theirs" / "state"))
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", SOMEBODY, SOMEBODY)
    with pytest.raises(PermissionError, match="another user"):
        records.write(Record("f1123456789ab", WAY))
    os.chown(tmp_path / "theirs", 0, 0)
    records.write(Record("f1123456789ab", WAY))
    assert records.find("f1").id == "f1123456789ab"


@pytest.mark.parametrize(("mode", "ours"), [(0o777, False), (0o1777, True), (0o755, True)])
def test_a_folder_that_everybody_may_write_into_is_nobodys(tmp_path, mode, ours):
    records.write(Record("f0123456789ab", WAY))
    tmp_path.chmod(mode)
    if ours:
        assert records.find("f0").way == WAY
    else:
        with pytest.raises(NotFoundError, match="another user can write there"):
            records.find("f0")
