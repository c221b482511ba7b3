"""The audit log: lines survive, files rotate, nothing raises."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from profd.trust.audit import AUDIT_FILES_KEPT, DENIALS_PER_MINUTE_MAX, AuditLog


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_can_be_read_at_once_and_are_private(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", now_ns=lambda: 7)
    audit.write("capture.start", 1000, capture="c1", targets=[1, 2])
    assert lines(audit.path) == [
        {"capture": "c1", "targets": [1, 2], "time_ns": 7, "action": "capture.start", "uid": 1000}
    ]
    assert audit.path.stat().st_mode & 0o777 == 0o600
    audit.close()


def test_appends_after_a_restart(tmp_path: Path) -> None:
    for uid in (1, 2):
        audit = AuditLog(tmp_path / "audit.jsonl")
        audit.write("x", uid)
        audit.close()
    assert [line["uid"] for line in lines(tmp_path / "audit.jsonl")] == [1, 2]


def test_details_cannot_pose_as_the_facts(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", now_ns=lambda: 7)
    audit.write("denied", 5, time_ns=0, why="a\nb", what=Path("/x"), long="y" * 20_000)
    audit.write("denied", 5, time_ns=0, why="a\nb", what=Path("/x"))
    assert lines(audit.path) == [
        {"time_ns": 7, "action": "denied", "uid": 5, "details": "too long to keep"},
        {"time_ns": 7, "why": "a\nb", "what": "/x", "action": "denied", "uid": 5},
    ]
    audit.close()


def test_rotates_by_size_and_keeps_a_bounded_number(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", bytes_max=200)
    for number in range(100):
        audit.write("x", number)
    audit.close()
    files = sorted(path.name for path in tmp_path.iterdir())
    assert len(files) == AUDIT_FILES_KEPT + 1
    assert all((tmp_path / name).stat().st_size <= 200 for name in files)
    kept = [line["uid"] for name in ("audit.jsonl.1", "audit.jsonl") for line in lines(tmp_path / name)]
    assert kept == list(range(100))[-len(kept) :]


def test_a_flood_of_denials_is_counted_not_kept(tmp_path: Path) -> None:
    now = [0.0]
    audit = AuditLog(tmp_path / "audit.jsonl", clock=lambda: now[0])
    for _ in range(DENIALS_PER_MINUTE_MAX + 5):
        audit.write("denied", 1000)
    audit.write("denied", 2000)
    audit.write("capture.start", 1000)
    now[0] = 61.0
    audit.write("denied", 1000, why="x")
    audit.write("denied", 1000, why="y")
    audit.close()
    found = lines(audit.path)
    assert [line["uid"] for line in found].count(1000) == DENIALS_PER_MINUTE_MAX + 3
    assert found[-2]["left_out"] == 5
    assert "left_out" not in found[-1]


def test_many_deniers_are_bounded(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl")
    for uid in range(3000):
        audit.write("denied", uid)
    audit.close()
    assert len(lines(audit.path)) == 3000
    assert len(audit._denials._seen) <= 1024


def test_a_full_disk_goes_to_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditLog(Path("/dev/full"))
    with caplog.at_level(logging.ERROR):
        audit.write("capture.start", 1)
    assert "cannot be written" in caplog.text
    audit.close()
