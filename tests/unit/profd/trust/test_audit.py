"""The audit log: lines survive, nobody pushes out those of others, what has no line is counted, nothing raises."""

from __future__ import annotations

import contextvars
import json
import logging
import os
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from profd.errors import BadInput, Exhausted
from profd.limits import (
    AUDIT_DENIALS_MAX,
    AUDIT_FIELD_BYTES_MAX,
    AUDIT_FILES_KEPT,
    AUDIT_INTERVAL_SECONDS,
    AUDIT_LINE_BYTES_MAX,
    AUDIT_LINES_MAX,
    AUDIT_READS_MAX,
    AUDIT_SUBJECTS_MAX,
    AUDIT_UIDS_MAX,
)
from profd.trust import caller as callers
from profd.trust.audit import COUNTED, AuditLog
from profd.trust.audit_rates import OTHERS

ADMIN = callers.Caller(uid=700, gid=700, user="operator", admin=True, pid=0)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def everything(path: Path) -> list[dict[str, Any]]:
    """All that the log still holds, oldest first."""
    names = [f"{path.name}.kept", *(f"{path.name}.{n}" for n in range(AUDIT_FILES_KEPT + 1, 0, -1)), path.name]
    return [entry for name in names if (path.parent / name).exists() for entry in lines(path.parent / name)]


def counted(entries: list[dict[str, Any]], uid: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for entry in entries:
        if entry["action"] == COUNTED and entry["uid"] == uid:
            found.update(entry["counts"])
    return found


@pytest.mark.parametrize(
    ("make", "error", "why"),
    [
        (os.mkfifo, BadInput, "is a pipe"),
        (os.mkdir, Exhausted, "Is a directory"),
        (lambda path: os.symlink("/dev/null", path), Exhausted, "symbolic links"),
    ],
)
def test_what_is_no_file_is_named(
    tmp_path: Path, make: Callable[[Path], None], error: type[Exception], why: str
) -> None:
    make(tmp_path / "audit.jsonl")
    with pytest.raises(error, match=f"audit.jsonl.*{why}"):
        AuditLog(tmp_path / "audit.jsonl")


def test_lines_can_be_read_at_once_and_are_private(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", now_ns=lambda: 7)
    audit.write("capture.start", 1000, capture="c1", targets=[1, 2])
    assert lines(audit.path) == [
        {"capture": "c1", "targets": [1, 2], "time_ns": 7, "action": "capture.start", "uid": 1000}
    ]
    assert audit.path.stat().st_mode & 0o777 == 0o600
    audit.close()


@pytest.mark.parametrize("remove", [os.unlink, lambda path: os.rename(path, path.with_name("audit.jsonl-20261129"))])
def test_lines_go_on_under_the_name_when_somebody_takes_the_file(
    tmp_path: Path, remove: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """As programs that rotate logs do. Of a file without a name nobody would read them."""
    audit = AuditLog(tmp_path / "audit.jsonl")
    audit.write("capture.start", 1000, capture="c1")
    remove(audit.path)
    audit.write("capture.start", 1000, capture="c2")
    audit.write("capture.start", 1000, capture="c3")
    assert [entry["capture"] for entry in lines(audit.path)] == ["c2", "c3"]
    audit.close()
    assert [record.message for record in caplog.records] == [
        "the audit log was moved or removed; it goes on in a new file"
    ]
    for file in tmp_path.glob("*-20261129"):
        assert [entry["capture"] for entry in lines(file)] == ["c1"]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/null", path)])
def test_what_takes_the_name_meanwhile_costs_lines_that_are_counted(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl")
    audit.path.unlink()
    make(audit.path)
    audit.write("capture.start", 1000, capture="c1")
    assert audit.statistics().failed == 1
    # WHEN that is away THEN lines are written again, and the count comes
    audit.path.rename(tmp_path / "away")
    audit.write("capture.start", 1000, capture="c2")
    audit.close()
    [line, summary] = lines(audit.path)
    assert (line["capture"], summary["counts"]) == ("c2", {"capture.start": 1})


def test_appends_after_a_restart(tmp_path: Path) -> None:
    for uid in (1, 2):
        audit = AuditLog(tmp_path / "audit.jsonl", clock=lambda: 0.0)
        audit.write("x", uid)
        audit.close()
    assert [line["uid"] for line in lines(tmp_path / "audit.jsonl")] == [1, 2]


def test_a_line_that_the_machine_died_in_takes_no_other_with_it(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text('{"action":"x","uid":1}\n{"acti')
    audit = AuditLog(path)
    audit.write("y", 2)
    audit.close()
    assert [json.loads(line)["uid"] for line in path.read_text().splitlines() if line.endswith("}")] == [1, 2]


def test_details_cannot_pose_as_the_facts(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", now_ns=lambda: 7)
    audit.write("denied", 5, time_ns=0, why='a\nb\r\x1b[2J\x7f","uid":0,"x":"', what=Path("/x"))
    audit.close()
    (line,) = audit.path.read_bytes().splitlines()
    assert all(32 <= byte < 127 for byte in line)
    facts = {"time_ns": 7, "action": "denied", "uid": 5}
    assert json.loads(line) == {**facts, "why": 'a\nb\r\x1b[2J\x7f","uid":0,"x":"', "what": "/x"}


def test_lines_and_fields_are_bounded_and_say_what_was_cut(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", clock=lambda: 0.0)
    audit.write("trace.share", 5, trace="t", names=["\U0001f4a5" * 200] * 100, why="y" * 100_000, pids=range(10**6))
    audit.write("x", 5, **{f"field{n}": "\udc80" * 300 for n in range(40)})
    audit.close()
    text = audit.path.read_text().splitlines()
    assert max(len(line) for line in text) < AUDIT_LINE_BYTES_MAX
    first, second = map(json.loads, text)
    assert first["trace"] == "t"
    assert first["why"] == "y" * 254 + "...(+99746 characters)"
    assert first["names"] == ["...(+100 more)"]
    assert first["pids"][:3] == [0, 1, 2]
    assert first["pids"][-1] == f"...(+{10**6 - len(first['pids']) + 1} more)"
    assert len(json.dumps(first["pids"])) < AUDIT_FIELD_BYTES_MAX + 32
    kept = [name for name in second if name.startswith("field")]
    assert kept
    assert sorted([*kept, *second["cut"]]) == sorted(f"field{n}" for n in range(40))


def test_ten_thousand_calls_leave_the_lines_of_others_and_are_counted_exactly(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", clock=lambda: 0.0)
    audit.write("capture.switch", 0, enabled=False)
    audit.write("trace.delete", 1001, trace="t1")
    for number in range(10_000):
        audit.write(
            "trace.share", 1000, trace=f"t{number % 7}", names=["x" * 256] * 60
        )  # of the length that flushed all files
    audit.write("denied", 1000, method="/profd.v1.TraceService/GetTrace")
    audit.write("trace.delete", 1001, trace="t2")
    audit.close()
    found = everything(audit.path)
    assert [entry["action"] for entry in found if entry["uid"] == 0] == ["capture.switch"]
    assert [entry["trace"] for entry in found if entry["uid"] == 1001] == ["t1", "t2"]
    theirs = [entry["action"] for entry in found if entry["uid"] == 1000]
    assert Counter(theirs) == {"trace.share": AUDIT_LINES_MAX, "denied": 1, COUNTED: 1}
    assert counted(found, 1000) == {"trace.share": 10_000 - AUDIT_LINES_MAX}
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 200_000


def test_each_interval_has_its_own_allowance_and_one_summary(tmp_path: Path) -> None:
    now = [0.0]
    audit = AuditLog(tmp_path / "audit.jsonl", clock=lambda: now[0])
    for _ in range(3):
        for _ in range(AUDIT_LINES_MAX + 5):
            audit.write("capture.start", 1000)
        now[0] += AUDIT_INTERVAL_SECONDS
    audit.close()
    found = everything(audit.path)
    assert sum(entry["action"] == "capture.start" for entry in found) == 3 * AUDIT_LINES_MAX
    assert [entry["counts"] for entry in found if entry["action"] == COUNTED] == [{"capture.start": 5}] * 3


def test_root_and_admins_write_all_they_do(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", clock=lambda: 0.0)

    def as_admin() -> None:
        callers.enter(ADMIN)
        for number in range(AUDIT_LINES_MAX * 2):
            audit.write("trace.delete", 0, trace=number)
            audit.write("trace.delete", ADMIN.uid, trace=number)
            audit.write("trace.delete", 1000, trace=number)  # of somebody whose capture ends just now

    contextvars.copy_context().run(as_admin)
    audit.close()
    found = Counter(entry["uid"] for entry in everything(audit.path) if entry["action"] == "trace.delete")
    assert found == {0: 2 * AUDIT_LINES_MAX, ADMIN.uid: 2 * AUDIT_LINES_MAX, 1000: AUDIT_LINES_MAX}
    assert all(entry.get("admin", False) == (entry["uid"] in (0, 700)) for entry in everything(audit.path))


def test_denials_and_reads_of_others_have_room_of_their_own(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", clock=lambda: 0.0)
    for number in range(AUDIT_LINES_MAX + 500):
        audit.write("trace.import", 1000, trace=number)
    for _ in range(AUDIT_DENIALS_MAX + 9):
        audit.write("denied", 1000, method="/profd.v1.TraceService/Sql", why="no")
    for _ in range(AUDIT_READS_MAX):
        audit.read("trace.export", 1000, 1001, trace="t0")
    audit.read("trace.sql", 1000, 1001, trace="t1")
    audit.close()
    found = everything(audit.path)
    assert sum(entry["action"] == "denied" for entry in found) == AUDIT_DENIALS_MAX
    assert counted(found, 1000) == {
        "trace.import": 500,
        "denied /profd.v1.TraceService/Sql": 9,
        "trace.sql t1": 1,
    }


def test_reads_of_ones_own_are_summed_up_and_those_of_others_written(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", now_ns=lambda: 7)
    for _ in range(3):
        audit.read("trace.top", 1000, 1000, trace="mine")
    audit.read("trace.top", 1000, 1001, trace="theirs")
    audit.read("trace.top", 0, 1001, trace="theirs")
    audit.close()
    assert lines(audit.path) == [
        {"time_ns": 7, "action": "trace.top", "uid": 1000, "trace": "theirs", "owner": 1001},
        {"time_ns": 7, "action": "trace.top", "uid": 0, "admin": True, "trace": "theirs", "owner": 1001},
        {"time_ns": 7, "action": COUNTED, "uid": 1000, "from_ns": 7, "to_ns": 7, "counts": {"trace.top": 3}},
    ]


def test_of_reads_while_one_moves_about_the_first_of_an_interval_has_a_line(tmp_path: Path) -> None:
    now = 0.0
    audit = AuditLog(tmp_path / "audit.jsonl", clock=lambda: now)
    for uid in (1000, 0):
        for trace in ("one", "one", "other", "one"):
            audit.read("trace.tiles", uid, 1001, again=True, trace=trace)
    now = AUDIT_INTERVAL_SECONDS + 1
    audit.read("trace.tiles", 0, 1001, again=True, trace="one")
    audit.close()
    found = everything(audit.path)
    read = [(entry["uid"], entry["trace"]) for entry in found if entry["action"] == "trace.tiles"]
    assert read == [(1000, "one"), (1000, "other"), (0, "one"), (0, "other"), (0, "one")]
    assert [counted(found, uid) for uid in (1000, 0)] == [{"trace.tiles one": 2}] * 2


def test_a_summary_names_some_and_counts_all(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", clock=lambda: 0.0)
    verbs = [f"trace.{verb}" for verb in ("export", "sql", "timeline", "top", "show", "tree", "steps", "gpu", "diff")]
    for _ in range(AUDIT_READS_MAX):
        audit.read("trace.sql", 1000, 1001, trace="0" * 13)
    for number in range(1000):
        audit.read(verbs[number % len(verbs)], 1000, 1001, trace=f"06v2k9x{number:06}")
    audit.close()
    (summary,) = [entry for entry in lines(audit.path) if entry["action"] == COUNTED]
    assert sum(summary["counts"].values()) == 1000
    assert sum(" " in name for name in summary["counts"]) == AUDIT_SUBJECTS_MAX
    assert "cut" not in summary


def test_many_uids_are_bounded_and_counted(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", clock=lambda: 0.0)
    many = AUDIT_UIDS_MAX + AUDIT_DENIALS_MAX + 500
    for uid in range(10_000, 10_000 + many):
        audit.write("denied", uid)
    assert len(audit._rates._written) == AUDIT_UIDS_MAX + 1
    audit.close()
    found = everything(audit.path)
    assert sum(entry["action"] == "denied" for entry in found) == AUDIT_UIDS_MAX + AUDIT_DENIALS_MAX
    assert counted(found, OTHERS) == {"denied": 500}


def test_a_flood_over_many_intervals_pushes_nobody_out(tmp_path: Path) -> None:
    """Ten thousand lines that all pass, and twenty times what the files hold."""
    now = [0.0]
    audit = AuditLog(tmp_path / "audit.jsonl", 4096, 8192, clock=lambda: now[0])
    audit.write("capture.switch", 0, enabled=False)
    audit.write("trace.delete", 1001, trace="t1")
    audit.write("denied", 1000, method="m")
    for number in range(10_000):
        if number % AUDIT_LINES_MAX == 0:
            now[0] += AUDIT_INTERVAL_SECONDS
        audit.write("trace.import", 1000, trace=number)
    audit.close()
    found = everything(audit.path)
    assert [entry["uid"] for entry in found[:3]] == [0, 1001, 1000]
    assert [entry["action"] for entry in found[:3]] == ["capture.switch", "trace.delete", "denied"]
    kept = [entry["trace"] for entry in found if entry["action"] == "trace.import"]
    assert kept == sorted(kept)
    assert kept[-1] == 9_999
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"audit.jsonl", "audit.jsonl.kept", *(f"audit.jsonl.{n}" for n in range(1, AUDIT_FILES_KEPT + 1))}
    assert (tmp_path / "audit.jsonl.kept").stat().st_size <= 8192
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())


def test_rotates_by_size(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", bytes_max=200)
    for number in range(AUDIT_FILES_KEPT):
        audit.write("x", number, why="y" * 100)
    audit.close()
    assert [entry["uid"] for entry in everything(audit.path)] == list(range(AUDIT_FILES_KEPT))
    assert all(path.stat().st_size <= 200 for path in tmp_path.iterdir())


@contextmanager
def file_size_limit(limit: int) -> Iterator[None]:
    """Files end here for this process, as on a disk without room: first a part of a line fits, then nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_a_full_disk_does_not_take_is_counted_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", clock=lambda: 0.0)
    audit.write("trace.delete", 0, trace="before")
    size = audit.path.stat().st_size
    with caplog.at_level(logging.ERROR), file_size_limit(size + 20):
        for _ in range(50):
            audit.write("trace.delete", 0, trace="lost")
            audit.write("denied", 1000, method="m")
        assert audit.path.stat().st_size == size
    audit.write("trace.delete", 0, trace="after")
    audit.close()
    found = lines(audit.path)
    assert [entry["trace"] for entry in found if entry["action"] == "trace.delete"] == ["before", "after"]
    assert (counted(found, 0), counted(found, 1000)) == ({"trace.delete": 50}, {"denied m": 50})
    assert caplog.text.count("cannot be written") == 1
    counts = audit.statistics()
    assert (counts.written, counts.counted, counts.failed) == (4, 0, 100)


def test_summaries_wait_for_the_disk(tmp_path: Path) -> None:
    now = [0.0]
    audit = AuditLog(tmp_path / "audit.jsonl", clock=lambda: now[0])
    audit.write("x", 0)
    with file_size_limit(audit.path.stat().st_size):
        for _ in range(3):
            audit.read("trace.top", 1000, 1000, trace="mine")
            now[0] += AUDIT_INTERVAL_SECONDS
            audit._sum_up()
    audit.close()
    assert counted(lines(audit.path), 1000) == {"trace.top": 3}


def test_what_is_never_written_is_in_the_daemons_log(caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditLog(Path("/dev/full"))
    with caplog.at_level(logging.ERROR):
        audit.write("capture.start", 1)
        audit.close()
    assert caplog.text.count("the audit log cannot be written") == 1
    last = caplog.records[-1]
    assert (last.message, last.__dict__["counts"]) == ("never written to the audit log", {"capture.start": 1})


def test_old_lines_that_cannot_be_sifted_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", bytes_max=200)
    (tmp_path / "audit.jsonl.kept.new").mkdir()  # in the way
    for number in range(50):
        audit.write("x", number, why="y" * 100)
    audit.close()
    assert [entry["uid"] for entry in everything(audit.path)] == list(range(50))
    assert caplog.text.count("cannot be sifted") == 1
    (tmp_path / "audit.jsonl.kept.new").rmdir()
    again = AuditLog(audit.path, bytes_max=200)
    again.close()
    assert [entry["uid"] for entry in everything(audit.path)] == list(range(50))
    assert not (tmp_path / f"audit.jsonl.{AUDIT_FILES_KEPT + 1}").exists()
